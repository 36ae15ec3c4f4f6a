//! The log: a file under the state directory, chosen by `ADJUTANT_LOG` (a level, or directives as
//! of tracing-subscriber). Nothing is logged to standard error or output. What is logged are
//! shapes and names, never bodies or keys.

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::environment::{Environment, private_dir};

/// Starts logging when `ADJUTANT_LOG` asks for it; warnings and errors are logged without asking.
/// Logging ends when the guard is dropped. Where no file can be made there is no log: that is no
/// reason not to work.
pub(super) fn start(environment: &Environment) -> Option<WorkerGuard> {
    let dir = environment.dirs.state.join("log");
    private_dir(&dir).ok()?;
    let file = tracing_appender::rolling::Builder::new()
        .rotation(tracing_appender::rolling::Rotation::DAILY)
        .filename_prefix("adjutant")
        .filename_suffix("log")
        .max_log_files(7)
        .build(&dir)
        .ok()?;
    // The default queue takes 4 MB of memory at once.
    let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(1024).finish(file);
    let log = tracing_subscriber::fmt().with_writer(writer).with_ansi(false);
    let directives = environment.var("ADJUTANT_LOG").map(EnvFilter::try_new);
    match directives {
        Some(Ok(filter)) => log.with_env_filter(filter).try_init(),
        // Nobody asked for anything that would have to be understood.
        Some(Err(_)) | None => log.with_max_level(LevelFilter::WARN).try_init(),
    }
    .ok()?;
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tracing::error!("panic: {info}");
        // A panic is caught and answered; only a debugging session wants it on standard error.
        if cfg!(test) {
            default(info);
        }
    }));
    Some(guard)
}
