//! A program on a pseudo-terminal.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Starts a program on a terminal of its own; gives it, and our end of the terminal.
pub fn spawn(mut command: Command, rows: u16, columns: u16) -> (Child, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    fcntl_setfd(&ours, FdFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    resize(&ours, rows, columns);
    // The command holds the other end, and goes with the end of this function: else ours would not
    // end.
    let theirs = theirs(&ours);
    let end = || Stdio::from(theirs.try_clone().unwrap());
    if !command.get_envs().any(|(name, _)| name == "TERM") {
        command.env("TERM", "xterm-256color");
    }
    let child = command
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    (child, File::from(ours))
}

/// Sets the size of a terminal by our end of it.
pub fn resize(ours: &impl AsFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(ours, size).unwrap();
}

/// Writes a text to our end of a terminal after all that the program has written.
pub fn write_to_screen(ours: &File, text: &str) {
    File::from(theirs(ours)).write_all(text.as_bytes()).unwrap();
}

/// Opens the program's end of a terminal.
fn theirs(ours: &impl AsFd) -> OwnedFd {
    let name = ptsname(ours, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(name, flags, Mode::empty()).unwrap()
}

/// Waits until a line that was typed has arrived at the program's end, and was echoed if it is.
pub fn wait_for_input(ours: &File) {
    let theirs = theirs(ours);
    let mut ready = [PollFd::new(&theirs, PollFlags::IN)];
    poll(&mut ready, None).unwrap();
}
