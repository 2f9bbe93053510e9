//! The processes of one run: which rank this is (`launch.rs`, from the launcher's variables), where
//! they meet and whether they agree (`meeting.rs`), and who notices when one is gone (`watch.rs`)
//! or stuck (`standing.rs`).
//! What the ranks compute, and by which library their tensors travel, is not known here.

#![forbid(unsafe_code)]

pub mod launch;
mod slurm;
pub mod facts;
pub mod meeting;
mod frames;
pub mod watch;
mod standing;
mod links;

pub use facts::Facts;
pub use launch::{Launch, LaunchError, Launcher, MeetingPlace};
pub use meeting::{MeetError, Meeting, Met};
pub use watch::{Failure, Farewell, Watch, WatchOptions};
