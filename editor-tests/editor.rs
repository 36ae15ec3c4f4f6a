//! A pretended editor: starts the binary, writes lines, reads lines, and sees it off.
//!
//! Threads read what the agent writes, so that a full pipe is never the test's fault; every wait
//! has an end.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::project::Project;

/// How long anything may take that is not timed on purpose. Generous: an unoptimised binary on a
/// busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How long the agent may take to leave once its input ended.
pub const FAREWELL: Duration = Duration::from_secs(2);

/// How an editor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    /// Everything, at once.
    All,
    /// A byte in ten milliseconds.
    Slow,
    /// So many bytes a second.
    Rate(usize),
    /// So many lines, and what the last read brought with them. Then nothing.
    Lines(usize),
    /// Not at all.
    Nothing,
}

type Ears = Arc<(Mutex<Hearing>, Condvar)>;

/// The agent, seen from the editor's side.
pub struct Editor {
    pid: Pid,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Receiver<String>,
    exit: Receiver<ExitStatus>,
    ears: Ears,
    gone: bool,
}

impl Editor {
    /// Starts `adjutant acp` in the project.
    pub fn start(project: &Project) -> Self {
        // Figures of an earlier build are taken in the same run.
        let binary = std::env::var_os("ADJUTANT_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_adjutant").into());
        let mut command = project.command(binary);
        command.arg("acp").current_dir(project.cwd());
        Self::run(command)
    }

    /// Starts it with a limit on how large a file may become, in KiB: the disk is full, more or less.
    pub fn start_with_small_files(project: &Project, kib: u64) -> Self {
        Self::start_through(project, &format!("trap '' XFSZ; ulimit -f {}", kib * 2))
    }

    /// Starts it after a shell has done something to itself.
    pub fn start_through(project: &Project, line: &str) -> Self {
        let mut command = project.command("/bin/sh");
        let script = format!("{line}; exec \"$0\" acp");
        command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_adjutant")).current_dir(project.cwd());
        Self::run(command)
    }

    /// Whether it ends within a time, though its input stays open.
    #[cfg(target_os = "linux")]
    pub fn ends_by_itself(&mut self, within: Duration) -> bool {
        let start = Instant::now();
        let ended = self.exit.recv_timeout(within).ok();
        if let Some(status) = ended {
            // Told again to whoever says farewell.
            let (leave, exit) = channel();
            leave.send(status).ok();
            self.exit = exit;
        }
        ended.is_some() && start.elapsed() <= within
    }

    /// Starts whatever a command starts.
    pub fn run(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child: Child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let ears: Ears = Arc::new((Mutex::new(Hearing::All), Condvar::new()));
        let own_ears = ears.clone();
        let (say, lines) = channel();
        thread::spawn(move || {
            let mut stdout = stdout;
            let (mut chunk, mut line) = (vec![0; 64 << 10], Vec::new());
            loop {
                let read = match wait_for_hearing(&own_ears) {
                    Hearing::Slow => {
                        thread::sleep(Duration::from_millis(10));
                        stdout.read(&mut chunk[..1])
                    }
                    Hearing::Rate(bytes) => {
                        thread::sleep(Duration::from_millis(5));
                        let length = chunk.len().min((bytes / 200).max(1));
                        stdout.read(&mut chunk[..length])
                    }
                    Hearing::All | Hearing::Lines(_) | Hearing::Nothing => stdout.read(&mut chunk),
                };
                let Ok(length @ 1..) = read else { break };
                for byte in &chunk[..length] {
                    if *byte != b'\n' {
                        line.push(*byte);
                        continue;
                    }
                    let text =
                        String::from_utf8(std::mem::take(&mut line)).unwrap_or_else(|e| format!("not UTF-8: {e}"));
                    one_less(&own_ears);
                    if say.send(text).is_err() {
                        return;
                    }
                }
            }
            if !line.is_empty() {
                say.send(format!("a line without an end: {}", String::from_utf8_lossy(&line))).ok();
            }
        });
        let (complain, complaints) = channel();
        thread::spawn(move || {
            let mut stderr = stderr;
            let mut all = Vec::new();
            stderr.read_to_end(&mut all).ok();
            complain.send(String::from_utf8_lossy(&all).into_owned()).ok();
        });
        let (leave, exit) = channel();
        thread::spawn(move || {
            if let Ok(status) = child.wait() {
                leave.send(status).ok();
            }
        });
        Self { pid, stdin, lines, stderr: complaints, exit, ears, gone: false }
    }

    /// Reads differently from now on. What is being read at the moment is still read.
    pub fn hearing(&self, hearing: Hearing) {
        *self.ears.0.lock().unwrap() = hearing;
        self.ears.1.notify_all();
    }

    /// The process's number.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Says one line.
    pub fn say(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    /// Writes bytes as they are. That the agent does not read any more is its own affair.
    pub fn write(&mut self, bytes: &[u8]) {
        if let Some(stdin) = &mut self.stdin {
            stdin.write_all(bytes).and_then(|()| stdin.flush()).ok();
        }
    }

    /// The next line, or none: nothing came in time, or nothing will come any more.
    pub fn hear(&self, patience: Duration) -> Option<String> {
        self.lines.recv_timeout(patience).ok()
    }

    /// Ends the agent's input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).ok();
    }

    /// Ends the input and waits for the end: what was said since, and how it went.
    pub fn finish(&mut self) -> Farewell {
        let start = Instant::now();
        self.hearing(Hearing::All);
        self.close_stdin();
        let mut lines = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
            lines.push(line);
        }
        let status = self.exit.recv_timeout(PATIENCE.saturating_sub(start.elapsed())).ok();
        let took = start.elapsed();
        self.gone = status.is_some();
        if !self.gone {
            self.signal(Signal::KILL);
        }
        let stderr = self.stderr.recv_timeout(PATIENCE).unwrap_or_else(|_| "(stderr stays open)".into());
        Farewell { lines, status, took, stderr }
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.hearing(Hearing::All);
        if !self.gone {
            self.signal(Signal::KILL);
        }
    }
}

/// A line was heard.
fn one_less(ears: &Ears) {
    let mut hearing = ears.0.lock().unwrap();
    match *hearing {
        Hearing::Lines(0 | 1) => *hearing = Hearing::Nothing,
        Hearing::Lines(lines) => *hearing = Hearing::Lines(lines - 1),
        _ => {}
    }
}

fn wait_for_hearing(ears: &Ears) -> Hearing {
    let hearing = ears.0.lock().unwrap();
    *ears.1.wait_while(hearing, |hearing| *hearing == Hearing::Nothing).unwrap()
}

/// How the agent left.
pub struct Farewell {
    /// Its last words.
    pub lines: Vec<String>,
    /// None: it did not leave, and was killed.
    pub status: Option<ExitStatus>,
    /// From the end of input to the end of the process.
    pub took: Duration,
    /// All of stderr.
    pub stderr: String,
}

impl Farewell {
    /// What was wrong with it, if it should have been an orderly one with this exit code.
    pub fn problems(&self, code: i32) -> Vec<String> {
        let mut problems = Vec::new();
        match self.status {
            None => problems.push("the process did not end after its input did".into()),
            Some(status) if status.code() == Some(code) => {}
            Some(status) => {
                problems.push(format!("the process ended with code {:?}, signal {:?}", status.code(), status.signal()));
            }
        }
        if self.took > FAREWELL {
            problems.push(format!("the process took {:?} to end", self.took));
        }
        if !self.stderr.is_empty() {
            problems.push(format!("stderr is not silent:\n{}", self.stderr));
        }
        problems
    }
}
