//! A progress bar that counts bytes: on a terminal a bar, in a pipe nothing.

use crate::preparation::size;
use crate::screen;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Below this many columns there is no room for a bar next to its message.
const NARROW: usize = 60;

/// Shows how much of a file is written.
pub struct ByteBar(ProgressBar);

impl ByteBar {
    /// Shows a bar if standard output is a terminal.
    pub fn new() -> ByteBar {
        let bar = ProgressBar::new(0);
        bar.set_draw_target(match screen::is_terminal() {
            true => ProgressDrawTarget::stdout_with_hz(10),
            false => ProgressDrawTarget::hidden(),
        });
        let template = match screen::width() < NARROW {
            true => "{percent}%  {msg}",
            false => "{wide_bar:.cyan} {percent}%  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸ "));
        }
        ByteBar(bar)
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
