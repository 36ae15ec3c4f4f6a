//! The plan of a session, as last written by the model.

use std::sync::Mutex;

use base::lock::lock;
use transcript::Todo;

/// The plan. The mutex is a leaf lock, held only to copy the list.
#[derive(Debug, Default)]
pub struct Todos {
    list: Mutex<Vec<Todo>>,
}

impl Todos {
    /// Returns a stored plan.
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
