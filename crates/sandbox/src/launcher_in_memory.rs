//! The launcher as a file in memory, from which it is executed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use crate::launcher::{self, Step};
use crate::process::{Program, ProgramOwner};

/// The program that `build.rs` has compiled.
const LAUNCHER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/launcher"));

/// The time limit of the first start.
const FIRST_START_TIMEOUT: Duration = Duration::from_secs(5);

/// A sealed file in memory. Programs inherit it only when they are started by it.
#[derive(Debug)]
pub(crate) struct LauncherInMemory {
    file: Arc<OwnedFd>,
}

impl LauncherInMemory {
    /// Writes the file, and starts it once without a command.
    ///
    /// # Errors
    /// Errors of the system, including the case that files in memory cannot be executed.
    pub(crate) async fn prepare(owner: ProgramOwner) -> io::Result<Self> {
        let launcher = Self {
            file: Arc::new(write()?),
        };
        let program = Program::new(launcher.path(), "/", std::collections::BTreeMap::new())
            .owned_by(owner)
            .with_descriptor(launcher.file.clone());
        let ran = program.run(FIRST_START_TIMEOUT).await?;
        // This is how it ends without a command.
        if ran.status.code() != Some(126) {
            return Err(io::Error::other(ran.status.to_string()));
        }
        Ok(launcher)
    }

    /// Has the launcher start a program after these steps.
    pub(crate) fn start(&self, mut steps: Vec<OsString>, program: Program) -> Program {
        let close = Step::CloseLauncher(self.file.as_raw_fd());
        steps.insert(0, close.to_argument());
        program
            .started_by(self.path(), launcher::arguments(steps))
            .with_descriptor(self.file.clone())
    }

    /// Returns the path by which a process that has inherited the file executes it.
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

/// Creates the file and writes the launcher to it.
fn write() -> io::Result<OwnedFd> {
    const NAME: &std::ffi::CStr = c"adjutant-launcher";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(NAME, flags | MemfdFlags::EXEC) {
        // Before Linux 6.3, every such file can be executed.
        Err(Errno::INVAL) => memfd_create(NAME, flags)?,
        file => file?,
    };
    let mut file = File::from(file);
    file.write_all(LAUNCHER)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}
