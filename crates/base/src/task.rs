//! Tasks and blocking work. tokio compiles the code of a task again for every type of future. Here
//! the futures are boxed before, so that it is compiled once. Tasks of a `JoinSet` and local tasks
//! are spawned directly.

use std::any::Any;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use futures_util::task::AtomicWaker;
use tokio::task::JoinError;
use tokio_util::task::TaskTracker;

/// Spawns a task. It continues if the handle is dropped.
#[expect(clippy::disallowed_methods, reason = "tasks are spawned here")]
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    JoinHandle {
        task: tokio::spawn(boxed(work)),
        result: PhantomData,
    }
}

/// Spawns a task that belongs to a group of tasks, which can be awaited together.
pub fn spawn_in<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    JoinHandle {
        task: tasks.spawn(boxed(work)),
        result: PhantomData,
    }
}

/// Runs work on a blocking thread: work that waits for the disk or another program, or that
/// computes for long.
#[expect(clippy::disallowed_methods, reason = "tasks are spawned here")]
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let work: Box<dyn FnOnce() -> AnyValue + Send> = Box::new(move || Box::new(work()));
    JoinHandle {
        task: tokio::task::spawn_blocking(work),
        result: PhantomData,
    }
}

/// Polls a future on blocking threads, for work that computes for long between its waits. It
/// occupies no thread while it waits, and is not polled again after it is dropped.
pub fn poll_on_blocking_threads<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> BlockingFuture<T> {
    let wake_flag = WakeFlag {
        is_woken: AtomicBool::new(true),
        waker: AtomicWaker::new(),
    };
    BlockingFuture {
        stage: Stage::Waiting(Box::pin(work)),
        wake_flag: Arc::new(wake_flag),
    }
}

/// The maximum size of the input of work that is done in place, in bytes. The change to another
/// thread and back takes longer than most work on less.
pub const MAX_IN_PLACE_BYTES: usize = 16 << 10;

/// Polls a future in place, or on blocking threads if its input is large: longer than
/// [`MAX_IN_PLACE_BYTES`], as the caller has found.
pub async fn poll_by_size<T: Send + 'static>(
    is_large: bool,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    if is_large {
        poll_on_blocking_threads(work).await
    } else {
        work.await
    }
}

/// The boxed result of a task; [`JoinHandle`] restores its type.
type AnyValue = Box<dyn Any + Send>;

fn boxed<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = AnyValue> + Send>> {
    Box::pin(async move { Box::new(work.await) as AnyValue })
}

/// A handle that waits for the result of a task.
#[derive(Debug)]
pub struct JoinHandle<T> {
    task: tokio::task::JoinHandle<AnyValue>,
    result: PhantomData<fn() -> T>,
}

impl<T> JoinHandle<T> {
    /// Ends the task at its next wait. Work that has begun on a blocking thread continues.
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl<T: 'static> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(Pin::new(&mut self.task).poll(context));
        Poll::Ready(ended.map(|result| match result.downcast() {
            Ok(result) => *result,
            Err(_) => unreachable!("a task finds what it was started for"),
        }))
    }
}

/// A future that is polled on blocking threads.
pub struct BlockingFuture<T> {
    stage: Stage<T>,
    wake_flag: Arc<WakeFlag>,
}

type PolledWork<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum Stage<T> {
    /// The work is not being polled.
    Waiting(PolledWork<T>),
    /// A blocking thread polls the work, and returns it if it is not finished.
    Polled(JoinHandle<Result<T, PolledWork<T>>>),
    Done,
}

/// Records that the work was woken, even while it is polled.
struct WakeFlag {
    is_woken: AtomicBool,
    waker: AtomicWaker,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl<T: Send + 'static> BlockingFuture<T> {
    /// Completes a computation in progress, so that the work can be dropped at a wait. Returns `None`
    /// if there is no result by then. Work whose computation was in progress continues when it is
    /// awaited again.
    pub async fn finish_current_poll(&mut self) -> Option<T> {
        let Stage::Polled(polled) = &mut self.stage else {
            return None;
        };
        // Cancels a poll that has not begun yet.
        polled.abort();
        let (stage, result) = match polled.await {
            Ok(Ok(result)) => (Stage::Done, Some(result)),
            Ok(Err(work)) => (Stage::Waiting(work), None),
            Err(e) => (Stage::Done, resume(e)),
        };
        self.stage = stage;
        result
    }
}

impl<T: Send + 'static> Future for BlockingFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.wake_flag.waker.register(context.waker());
        loop {
            match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Waiting(mut work)
                    if self.wake_flag.is_woken.swap(false, Ordering::Acquire) =>
                {
                    let waker = Waker::from(self.wake_flag.clone());
                    self.stage = Stage::Polled(spawn_blocking(move || {
                        match work.as_mut().poll(&mut Context::from_waker(&waker)) {
                            Poll::Ready(result) => Ok(result),
                            Poll::Pending => Err(work),
                        }
                    }));
                }
                Stage::Polled(mut polled) => match Pin::new(&mut polled).poll(context) {
                    Poll::Ready(Ok(Ok(result))) => return Poll::Ready(result),
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

impl<T> Drop for BlockingFuture<T> {
    fn drop(&mut self) {
        // Cancels a poll that has not begun yet.
        if let Stage::Polled(polled) = &self.stage {
            polled.abort();
        }
    }
}

/// Resumes a panic of the task in the thread that waits for it. Returns `None` if the task was
/// cancelled because the runtime is shutting down.
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
    async fn join_handle_returns_result_panic_or_cancellation() {
        assert_eq!(spawn(async { 7_u8 }).await.unwrap(), 7);
        assert_eq!(spawn_blocking(|| "read".to_owned()).await.unwrap(), "read");
        let tasks = TaskTracker::new();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let handle = spawn_in(&tasks, receiver);
        tasks.close();
        sender.send([1, 2]).unwrap();
        assert_eq!(handle.await.unwrap(), Ok([1, 2]));
        tasks.wait().await;
        assert!(
            spawn(async { panic!("on purpose") as u8 })
                .await
                .unwrap_err()
                .is_panic()
        );
        let endless = spawn(std::future::pending::<()>());
        endless.abort();
        assert!(endless.await.unwrap_err().is_cancelled());
    }

    /// Returns the threads on which the future is polled, before and after it waits.
    async fn polling_threads(wait: impl Future<Output = ()>) -> [std::thread::ThreadId; 2] {
        let before = std::thread::current().id();
        wait.await;
        [before, std::thread::current().id()]
    }

    #[tokio::test]
    async fn large_work_is_polled_on_other_threads() {
        let own = std::thread::current().id();
        for is_large in [false, true] {
            let used = poll_by_size(is_large, async { std::thread::current().id() }).await;
            assert_eq!(used != own, is_large);
        }
    }

    #[tokio::test]
    async fn work_is_polled_only_on_blocking_threads() {
        let here = std::thread::current().id();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let mut work =
            poll_on_blocking_threads(polling_threads(async move { receiver.await.unwrap() }));
        // It stays pending, however often it is polled.
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = &mut work => unreachable!("nothing was sent"),
                () = tokio::task::yield_now() => {}
            }
        }
        sender.send(()).unwrap();
        assert!(!work.await.contains(&here));
        // Work that wakes itself while it is polled is polled again.
        assert!(
            !poll_on_blocking_threads(polling_threads(tokio::task::yield_now()))
                .await
                .contains(&here)
        );
        assert!(
            !poll_on_blocking_threads(polling_threads(tokio::time::sleep(
                std::time::Duration::from_millis(1)
            )))
            .await
            .contains(&here)
        );
        let panics = spawn(poll_on_blocking_threads(async {
            panic!("on purpose") as u8
        }));
        assert!(panics.await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn settle_completes_computation_in_progress() {
        assert!(
            poll_on_blocking_threads(std::future::pending::<u8>())
                .finish_current_poll()
                .await
                .is_none()
        );
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut work = poll_on_blocking_threads(async move {
            begin.send(()).unwrap();
            receiver.recv().unwrap()
        });
        tokio::select! {
            biased;
            _ = &mut work => unreachable!("nothing was sent"),
            begun = begun => begun.unwrap(),
        }
        sender.send(7_u8).unwrap();
        assert_eq!(work.finish_current_poll().await, Some(7));
        // The work is dropped while it waits.
        let (guard, dropped) = tokio::sync::oneshot::channel::<()>();
        let mut work = poll_on_blocking_threads(async move {
            std::future::pending::<()>().await;
            drop(guard);
        });
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        dropped.await.unwrap_err();
    }
}
