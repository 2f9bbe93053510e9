//! Progress bars: their one look, and the one that counts bytes. On a terminal a bar, in a pipe
//! nothing.

use crate::preparation::size;
use crate::screen;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Below this many columns there is no room for a bar next to its message.
const NARROW: usize = 60;

/// A progress bar of `length` steps, drawn at most `hz` times a second; hidden unless `shown`. In a
/// terminal under `narrow` columns it is only its message.
pub fn bar(length: u64, shown: bool, hz: u8, narrow: usize) -> ProgressBar {
    let bar = ProgressBar::new(length);
    bar.set_draw_target(match shown {
        true => ProgressDrawTarget::stdout_with_hz(hz),
        false => ProgressDrawTarget::hidden(),
    });
    let template = match screen::width() < narrow {
        true => "{percent}%  {msg}",
        false => "{wide_bar:.cyan} {percent}%  {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸ "));
    }
    bar
}

/// Shows how much of a file is written.
pub struct ByteBar(ProgressBar);

impl ByteBar {
    /// Shows a bar if standard output is a terminal.
    pub fn new() -> ByteBar {
        ByteBar(bar(0, screen::is_terminal(), 10, NARROW))
    }

    /// Shows that `done` of `total` bytes are written.
    pub fn set(&self, done: u64, total: u64) {
        if !self.0.is_hidden() {
            self.show(done, total, format!("{} of {}", size(done), size(total)));
        }
    }

    /// Shows that `done` of `total` parts are done, with a message.
    pub fn show(&self, done: u64, total: u64, message: String) {
        self.0.set_length(total);
        self.0.set_position(done);
        self.0.set_message(message);
    }
}

impl Drop for ByteBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
