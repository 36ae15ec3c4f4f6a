//! A scripted client: starts the binary, writes lines, reads lines, and waits for its exit.
//!
//! Threads read the agent's output, so that a full pipe is never caused by a test; every wait has a
//! limit.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::project::Project;

/// The limit of every wait that has no limit of its own. Generous, for an unoptimised binary on a
/// busy machine.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The time in which the agent must exit after the end of its input.
pub const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pace at which a client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPace {
    /// All output, at once.
    All,
    /// A byte in ten milliseconds.
    Slow,
    /// This number of bytes a second.
    Rate(usize),
    /// This number of lines, and the rest of the last read; then nothing.
    Lines(usize),
    /// Not at all.
    Nothing,
}

type SharedPace = Arc<(Mutex<ReadPace>, Condvar)>;

/// The agent's process, from the side of its client.
pub struct Editor {
    pid: Pid,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Receiver<String>,
    exit: Receiver<ExitStatus>,
    pace: SharedPace,
    gone: bool,
}

impl Editor {
    /// Starts `adjutant acp` in the project.
    pub fn start(project: &Project) -> Self {
        // Another build can be measured in the same run.
        let binary = std::env::var_os("ADJUTANT_BINARY")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_adjutant").into());
        let mut command = project.command(binary);
        command.arg("acp").current_dir(project.cwd());
        Self::run(command)
    }

    /// Starts it with a limit on the size of files, in KiB, which resembles a full disk.
    pub fn start_with_small_files(project: &Project, kib: u64) -> Self {
        Self::start_through(project, &format!("trap '' XFSZ; ulimit -f {}", kib * 2))
    }

    /// Starts it from a shell that has run a line before.
    pub fn start_through(project: &Project, line: &str) -> Self {
        let mut command = project.command("/bin/sh");
        let script = format!("{line}; exec \"$0\" acp");
        command
            .arg("-c")
            .arg(script)
            .arg(env!("CARGO_BIN_EXE_adjutant"))
            .current_dir(project.cwd());
        Self::run(command)
    }

    /// Returns whether the process exits within a time, although its input stays open.
    #[cfg(target_os = "linux")]
    pub fn exits_within(&mut self, within: Duration) -> bool {
        let start = Instant::now();
        let ended = self.exit.recv_timeout(within).ok();
        if let Some(status) = ended {
            // Available again for `finish`.
            let (exit_sender, exit) = channel();
            exit_sender.send(status).ok();
            self.exit = exit;
        }
        ended.is_some() && start.elapsed() <= within
    }

    /// Starts a command.
    pub fn run(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child: Child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().unwrap();
        let stderr = child.stderr.take().unwrap();
        let pace: SharedPace = Arc::new((Mutex::new(ReadPace::All), Condvar::new()));
        let reader_pace = pace.clone();
        let (line_sender, lines) = channel();
        thread::spawn(move || read_lines(stdout, &reader_pace, &line_sender));
        let (stderr_sender, complaints) = channel();
        thread::spawn(move || {
            let mut stderr = stderr;
            let mut all = Vec::new();
            stderr.read_to_end(&mut all).ok();
            stderr_sender
                .send(String::from_utf8_lossy(&all).into_owned())
                .ok();
        });
        let (exit_sender, exit) = channel();
        thread::spawn(move || {
            if let Ok(status) = child.wait() {
                exit_sender.send(status).ok();
            }
        });
        Self {
            pid,
            stdin,
            lines,
            stderr: complaints,
            exit,
            pace,
            gone: false,
        }
    }

    /// Changes the pace of reading, from the next read on.
    pub fn set_read_pace(&self, pace: ReadPace) {
        *self.pace.0.lock().unwrap() = pace;
        self.pace.1.notify_all();
    }

    /// Returns the process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends one line.
    pub fn send(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    /// Writes bytes unchanged. Ignores errors: the agent may have stopped reading.
    pub fn write(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin {
            stdin.write_all(bytes).and_then(|()| stdin.flush()).ok();
        }
    }

    /// Returns the next line; `None` after the timeout, or if the output has ended.
    pub fn receive(&self, timeout: Duration) -> Option<String> {
        self.lines.recv_timeout(timeout).ok()
    }

    /// Ends the agent's input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).ok();
    }

    /// Closes the input and waits for the exit; returns the remaining output.
    pub fn finish(&mut self) -> Exit {
        let start = Instant::now();
        self.set_read_pace(ReadPace::All);
        self.close_stdin();
        let mut lines = Vec::new();
        while let Ok(line) = self
            .lines
            .recv_timeout(RESPONSE_TIMEOUT.saturating_sub(start.elapsed()))
        {
            lines.push(line);
        }
        let status = self
            .exit
            .recv_timeout(RESPONSE_TIMEOUT.saturating_sub(start.elapsed()))
            .ok();
        let took = start.elapsed();
        self.gone = status.is_some();
        if !self.gone {
            self.signal(Signal::KILL);
        }
        let stderr = self
            .stderr
            .recv_timeout(RESPONSE_TIMEOUT)
            .unwrap_or_else(|_| "(stderr stays open)".into());
        Exit {
            lines,
            status,
            took,
            stderr,
        }
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.set_read_pace(ReadPace::All);
        if !self.gone {
            self.signal(Signal::KILL);
        }
    }
}

/// Reads lines at the client's pace and sends them on, until the output ends or the receiver is
/// dropped.
fn read_lines(mut stdout: ChildStdout, pace: &SharedPace, line_sender: &Sender<String>) {
    let mut chunk = vec![0; 64 << 10];
    let mut line = Vec::new();
    loop {
        let read = match wait_for_pace(pace) {
            ReadPace::Slow => {
                thread::sleep(Duration::from_millis(10));
                stdout.read(&mut chunk[..1])
            }
            ReadPace::Rate(bytes) => {
                thread::sleep(Duration::from_millis(5));
                let length = chunk.len().min((bytes / 200).max(1));
                stdout.read(&mut chunk[..length])
            }
            ReadPace::All | ReadPace::Lines(_) | ReadPace::Nothing => stdout.read(&mut chunk),
        };
        let Ok(length @ 1..) = read else { break };
        for byte in &chunk[..length] {
            if *byte != b'\n' {
                line.push(*byte);
                continue;
            }
            let text = String::from_utf8(std::mem::take(&mut line))
                .unwrap_or_else(|e| format!("not UTF-8: {e}"));
            count_line(pace);
            if line_sender.send(text).is_err() {
                return;
            }
        }
    }
    if !line.is_empty() {
        line_sender
            .send(format!(
                "a line without an end: {}",
                String::from_utf8_lossy(&line)
            ))
            .ok();
    }
}

/// Counts a received line against the limit of [`ReadPace::Lines`].
fn count_line(pace: &SharedPace) {
    let mut current = pace.0.lock().unwrap();
    match *current {
        ReadPace::Lines(0 | 1) => *current = ReadPace::Nothing,
        ReadPace::Lines(lines) => *current = ReadPace::Lines(lines - 1),
        _ => {}
    }
}

fn wait_for_pace(pace: &SharedPace) -> ReadPace {
    let current = pace.0.lock().unwrap();
    *pace
        .1
        .wait_while(current, |current| *current == ReadPace::Nothing)
        .unwrap()
}

/// The end of an agent's process.
pub struct Exit {
    /// Its remaining output.
    pub lines: Vec<String>,
    /// `None` if it did not exit and was killed.
    pub status: Option<ExitStatus>,
    /// From the end of input to the end of the process.
    pub took: Duration,
    /// All of stderr.
    pub stderr: String,
}

impl Exit {
    /// Returns the deviations from an orderly exit with this code.
    pub fn problems(&self, code: i32) -> Vec<String> {
        let mut problems = Vec::new();
        match self.status {
            None => problems.push("the process did not end after its input did".into()),
            Some(status) if status.code() == Some(code) => {}
            Some(status) => {
                problems.push(format!(
                    "the process ended with code {:?}, signal {:?}",
                    status.code(),
                    status.signal()
                ));
            }
        }
        if self.took > EXIT_TIMEOUT {
            problems.push(format!("the process took {:?} to end", self.took));
        }
        if !self.stderr.is_empty() {
            problems.push(format!("stderr is not silent:\n{}", self.stderr));
        }
        problems
    }
}
