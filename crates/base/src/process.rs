//! The end of processes that are not children of this one.

use std::time::{Duration, Instant};

use rustix::process::Pid;

/// Blocks until all of these processes have ended, for `limit` at most. Returns whether they have
/// ended.
pub fn await_ends(processes: &[Pid], limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    processes
        .iter()
        .all(|process| await_end(*process, deadline))
}

/// Blocks until a process has ended, or until `deadline`. A process that was not waited for yet
/// counts as ended on Linux alone.
#[cfg(target_os = "linux")]
fn await_end(process: Pid, deadline: Instant) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, pidfd_open};

    let handle = match pidfd_open(process, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH) => return true,
        // No descriptor is free, or the kernel has no such call.
        Err(_) => return await_end_unseen(process, deadline),
    };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return false;
        };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left)) {
            Ok(ended) => return ended > 0,
            Err(Errno::INTR) => {}
            Err(_) => return await_end_unseen(process, deadline),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn await_end(process: Pid, deadline: Instant) -> bool {
    await_end_unseen(process, deadline)
}

/// Asks for a process until it has ended, on a system that does not report that.
fn await_end_unseen(process: Pid, deadline: Instant) -> bool {
    const INTERVAL: Duration = Duration::from_millis(5);
    while rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(INTERVAL); // the system has no event for it
    }
    true
}

/// Returns whether a process is stopped, as by Ctrl-Z. `false` on a system that does not show it.
pub fn is_stopped(process: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // The name, in brackets, may contain any character.
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    after_name.is_some_and(|rest| rest.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a process that is no child of adjutant's"
    )]
    fn process_is_awaited_until_it_ends() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = Pid::from_child(&child);
        assert!(!await_ends(&[process], Duration::ZERO));
        assert!(!await_end_unseen(process, Instant::now()));
        // The end of its input ends it.
        drop(child.stdin.take());
        if cfg!(target_os = "linux") {
            assert!(await_ends(&[process, process], Duration::from_secs(60)));
        }
        child.wait().unwrap();
        assert!(await_ends(&[process], Duration::ZERO));
        assert!(await_end_unseen(process, Instant::now()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[expect(
        clippy::disallowed_methods,
        reason = "a process that is no child of adjutant's"
    )]
    fn stopped_process_is_recognised() {
        use rustix::process::{Signal, WaitOptions, getpid, kill_process, waitpid};

        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = Pid::from_child(&child);
        kill_process(process, Signal::STOP).unwrap();
        waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
        assert!(is_stopped(process.as_raw_nonzero().get()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(process.as_raw_nonzero().get()));
        assert!(!is_stopped(getpid().as_raw_nonzero().get()));
    }
}
