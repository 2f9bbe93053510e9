//! The sinks. Each opens its file when the first point comes, on its own thread: a folder that
//! cannot be written ends neither the run nor the other sinks.

mod record_file;

mod csv;
mod tensorboard;
mod trackio;

pub use csv::CsvSink;
pub use tensorboard::TensorBoardSink;
pub use trackio::{TrackioRun, TrackioSink, trackio_inbox};

use std::path::{Path, PathBuf};

/// A sink that cannot write.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot write {what}: {error}; free some space, or leave out {key}=True")]
struct SinkFailed {
    path: PathBuf,
    what: &'static str,
    key: &'static str,
    error: std::io::Error,
}

impl SinkFailed {
    fn csv(path: &Path, error: std::io::Error) -> SinkFailed {
        SinkFailed { path: path.to_path_buf(), what: "the CSV file", key: "csv", error }
    }

    fn tensorboard(path: &Path, error: std::io::Error) -> SinkFailed {
        let what = "the events for TensorBoard";
        SinkFailed { path: path.to_path_buf(), what, key: "tensorboard", error }
    }

    fn trackio(path: &Path, error: std::io::Error) -> SinkFailed {
        let what = "the lines for trackio";
        SinkFailed { path: path.to_path_buf(), what, key: "trackio", error }
    }
}
