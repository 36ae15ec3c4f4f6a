//! Work beside the one that starts it. tokio compiles all of a task once more for every kind of work it is given; here
//! work is boxed before it gets there.

use std::any::Any;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use futures_util::task::AtomicWaker;
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

/// Work that waits and may compute for long in between: it is polled on threads for that, and holds none while it
/// waits. Where it is dropped it is not polled again.
pub fn on_threads<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> OnThreads<T> {
    let alarm = Alarm { rang: AtomicBool::new(true), waker: AtomicWaker::new() };
    OnThreads { stage: Stage::Waiting(Box::pin(work)), alarm: Arc::new(alarm) }
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

/// Waits for work that is polled on threads.
pub struct OnThreads<T> {
    stage: Stage<T>,
    alarm: Arc<Alarm>,
}

type PolledWork<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum Stage<T> {
    /// Nobody polls it.
    Waiting(PolledWork<T>),
    /// A thread does, and gives back what is not done.
    Polled(JoinHandle<Result<T, PolledWork<T>>>),
    Done,
}

/// Remembers that the work may go on, also while it is polled.
struct Alarm {
    rang: AtomicBool,
    waker: AtomicWaker,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl<T: Send + 'static> OnThreads<T> {
    /// Ends the work where it next waits. What it is computing at the moment is computed to its end; none if nothing is
    /// found by then.
    pub async fn settle(mut self) -> Option<T> {
        let Stage::Polled(polled) = std::mem::replace(&mut self.stage, Stage::Done) else { return None };
        // What has not begun does not begin any more.
        polled.abort();
        polled.await.map_or_else(|e| resume(e), Result::ok)
    }
}

impl<T: Send + 'static> Future for OnThreads<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.alarm.waker.register(context.waker());
        loop {
            match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Waiting(mut work) if self.alarm.rang.swap(false, Ordering::Acquire) => {
                    let waker = Waker::from(self.alarm.clone());
                    self.stage = Stage::Polled(spawn_blocking(move || {
                        match work.as_mut().poll(&mut Context::from_waker(&waker)) {
                            Poll::Ready(found) => Ok(found),
                            Poll::Pending => Err(work),
                        }
                    }));
                }
                Stage::Polled(mut polled) => match Pin::new(&mut polled).poll(context) {
                    Poll::Ready(Ok(Ok(found))) => return Poll::Ready(found),
                    Poll::Ready(Ok(Err(work))) => self.stage = Stage::Waiting(work),
                    Poll::Ready(Err(e)) => return resume(e).map_or(Poll::Pending, Poll::Ready),
                    Poll::Pending => {
                        self.stage = Stage::Polled(polled);
                        return Poll::Pending;
                    }
                },
                stage @ (Stage::Waiting(_) | Stage::Done) => {
                    self.stage = stage;
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<T> Drop for OnThreads<T> {
    fn drop(&mut self) {
        // What has not begun to be polled is not.
        if let Stage::Polled(polled) = &self.stage {
            polled.abort();
        }
    }
}

/// Goes on with a panic where the work is waited for. None: the runtime is about to end.
fn resume<T>(e: JoinError) -> Option<T> {
    match e.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => None,
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

    /// Work that looks where it is polled, before and after it waits.
    async fn wanders(wait: impl Future<Output = ()>) -> [std::thread::ThreadId; 2] {
        let before = std::thread::current().id();
        wait.await;
        [before, std::thread::current().id()]
    }

    #[tokio::test]
    async fn what_is_polled_on_threads_is_polled_nowhere_else() {
        let here = std::thread::current().id();
        let (told, hears) = tokio::sync::oneshot::channel::<()>();
        let mut work = on_threads(wanders(async move { hears.await.unwrap() }));
        // It waits, whoever looks.
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = &mut work => unreachable!("nobody has told it"),
                () = tokio::task::yield_now() => {}
            }
        }
        told.send(()).unwrap();
        assert!(!work.await.contains(&here));
        // What wakes itself while it is polled is polled again.
        assert!(!on_threads(wanders(tokio::task::yield_now())).await.contains(&here));
        assert!(!on_threads(wanders(tokio::time::sleep(std::time::Duration::from_millis(1)))).await.contains(&here));
        let panics = spawn(on_threads(async { panic!("on purpose") as u8 }));
        assert!(panics.await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn what_is_computed_at_the_end_is_not_lost() {
        assert!(on_threads(std::future::pending::<u8>()).settle().await.is_none());
        let (begins, begun) = tokio::sync::oneshot::channel();
        let (told, hears) = std::sync::mpsc::channel();
        let mut work = on_threads(async move {
            begins.send(()).unwrap();
            hears.recv().unwrap()
        });
        tokio::select! {
            biased;
            _ = &mut work => unreachable!("nobody has told it"),
            begun = begun => begun.unwrap(),
        }
        told.send(7_u8).unwrap();
        assert_eq!(work.settle().await, Some(7));
        // It is dropped while it waits.
        let (held, gone) = tokio::sync::oneshot::channel::<()>();
        let mut waits = on_threads(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(waits);
        gone.await.unwrap_err();
    }
}
