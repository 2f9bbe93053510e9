//! The sinks. Each opens its file when the first point comes, on its own thread: a folder that
//! cannot be written ends neither the run nor the other sinks.

mod record_file;

mod csv;
mod tensorboard;
mod trackio;

pub use csv::CsvSink;
pub use tensorboard::TensorBoardSink;
pub use trackio::{TrackioRun, TrackioSink, trackio_inbox};

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// A sink that cannot write.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot write {what}: {error}; {}leave out {key}=True", advice(error))]
struct SinkFailed {
    path: PathBuf,
    what: &'static str,
    key: &'static str,
    error: Error,
}

/// What would let it write, besides leaving it out.
fn advice(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space, or ",
        ErrorKind::FileTooLarge => "raise the limit (`ulimit -f`), or ",
        ErrorKind::PermissionDenied => "give yourself the permission to write there, or ",
        ErrorKind::ReadOnlyFilesystem => "mount it for writing, or ",
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            "move away what is in its place, or "
        }
        // The error itself says what to do, or nothing is known.
        _ => "",
    }
}

impl SinkFailed {
    fn csv(path: &Path, error: Error) -> SinkFailed {
        SinkFailed { path: path.to_path_buf(), what: "the CSV file", key: "csv", error }
    }

    fn tensorboard(path: &Path, error: Error) -> SinkFailed {
        let what = "the events for TensorBoard";
        SinkFailed { path: path.to_path_buf(), what, key: "tensorboard", error }
    }

    fn trackio(path: &Path, error: Error) -> SinkFailed {
        let what = "the lines for trackio";
        SinkFailed { path: path.to_path_buf(), what, key: "trackio", error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_about_what_went_wrong() {
        for (kind, want) in [
            (ErrorKind::StorageFull, "; free some space, or leave out csv=True"),
            (ErrorKind::PermissionDenied, "; give yourself the permission to write there, or "),
            (ErrorKind::ReadOnlyFilesystem, "; mount it for writing, or leave out csv=True"),
            (ErrorKind::NotADirectory, "; move away what is in its place, or leave out csv=True"),
            (ErrorKind::Other, "; leave out csv=True"),
        ] {
            let text = SinkFailed::csv(Path::new("out/metrics.csv"), kind.into()).to_string();
            assert!(text.contains(want), "{text}");
            assert_eq!(text.contains("space"), kind == ErrorKind::StorageFull, "{text}");
        }
    }
}
