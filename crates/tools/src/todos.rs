//! The todo list of a session, as last written by the model. Editors show it as the plan.

use std::sync::Mutex;

use base::lock::lock;
use transcript::Todo;

/// The todo list of a session. The mutex is a leaf lock, held only to copy the list.
#[derive(Debug, Default)]
pub struct Todos {
    list: Mutex<Vec<Todo>>,
}

impl Todos {
    /// Returns a todo list with these entries.
    pub fn new(list: Vec<Todo>) -> Self {
        Self {
            list: Mutex::new(list),
        }
    }

    pub fn get(&self) -> Vec<Todo> {
        lock(&self.list).clone()
    }

    pub fn set(&self, list: Vec<Todo>) {
        *lock(&self.list) = list;
    }
}
