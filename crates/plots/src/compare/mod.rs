//! The comparison of runs: what their logs say, and charts of it for a terminal, as SVG and as PNG.

mod axis;
mod curve;
mod run_log;

mod chart;
mod terminal;
mod scene;
mod svg;
mod raster;
mod strokes;
mod png;

pub use axis::{By, label};
pub use chart::{Chart, Series};
pub use curve::{At, Curve};
pub use png::png;
pub use run_log::{LOSS, RunLog, VAL_LOSS};
pub use svg::svg;
pub use terminal::{Cell, has_faint, terminal};
