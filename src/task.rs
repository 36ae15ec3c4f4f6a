//! Work beside the one that starts it. tokio compiles all of a task once more for every kind of work it is given; here
//! work is boxed before it gets there.

use std::any::Any;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::JoinError;
use tokio_util::task::TaskTracker;

/// A task of its own. It goes on where nobody waits for it.
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    JoinHandle { task: tokio::spawn(boxed(work)), finds: PhantomData }
}

/// A task of its own, among those that are waited for together.
pub fn spawn_in<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    JoinHandle { task: tasks.spawn(boxed(work)), finds: PhantomData }
}

/// What waits for the disk or for another program, or computes for long: on a thread for that.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let work: Box<dyn FnOnce() -> AnyValue + Send> = Box::new(move || Box::new(work()));
    JoinHandle { task: tokio::task::spawn_blocking(work), finds: PhantomData }
}

/// Its type is known again where the [`JoinHandle`] is awaited.
type AnyValue = Box<dyn Any + Send>;

fn boxed<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = AnyValue> + Send>> {
    Box::pin(async move { Box::new(work.await) as AnyValue })
}

/// Waits for what a task finds.
#[derive(Debug)]
pub struct JoinHandle<T> {
    task: tokio::task::JoinHandle<AnyValue>,
    finds: PhantomData<fn() -> T>,
}

impl<T> JoinHandle<T> {
    /// Ends the task where it next waits. What has begun on a thread of its own goes on.
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Whether there is nothing more to wait for.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl<T: 'static> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.task).poll(context));
        Poll::Ready(ended.map(|found| match found.downcast() {
            Ok(found) => *found,
            Err(_) => unreachable!("a task finds what it was started for"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_task_finds_and_how_it_ends() {
        assert_eq!(spawn(async { 7_u8 }).await.unwrap(), 7);
        assert_eq!(spawn_blocking(|| "read".to_owned()).await.unwrap(), "read");
        let (tasks, (told, hears)) = (TaskTracker::new(), tokio::sync::oneshot::channel());
        let waits = spawn_in(&tasks, hears);
        tasks.close();
        told.send([1, 2]).unwrap();
        assert_eq!(waits.await.unwrap(), Ok([1, 2]));
        tasks.wait().await;
        assert!(spawn(async { panic!("on purpose") as u8 }).await.unwrap_err().is_panic());
        let endless = spawn(std::future::pending::<()>());
        endless.abort();
        assert!(endless.await.unwrap_err().is_cancelled());
    }
}
