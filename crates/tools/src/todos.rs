//! The plan of a session, as the model last wrote it.

use std::sync::Mutex;

use base::lock::locked;
use transcript::Todo;

/// The plan. A leaf lock, held only to copy the list in or out.
#[derive(Debug, Default)]
pub struct Todos {
    list: Mutex<Vec<Todo>>,
}

impl Todos {
    /// A plan that was kept before.
    pub fn new(list: Vec<Todo>) -> Self {
        Self { list: Mutex::new(list) }
    }

    pub fn get(&self) -> Vec<Todo> {
        locked(&self.list).clone()
    }

    pub fn set(&self, list: Vec<Todo>) {
        *locked(&self.list) = list;
    }
}
