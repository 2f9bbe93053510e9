//! Downloads: over HTTP, resumable, checked; and models from the Hugging Face hub.
//!
//! A [`Client`] downloads files complete and checked, or returns an error; `prepare` uses it for
//! data sets. [`Cache`] is Hugging Face's folder of downloaded repositories, in the layout that its
//! own Python library reads and writes. [`Client::model`] finds a [`ModelRepo`] there or downloads
//! it into that layout. Everything that the environment says is read in `environment.rs`.

#![forbid(unsafe_code)]

mod environment;
mod repo;
mod cache;
mod model;
mod lock;

mod download;
mod part;
mod checksum;
mod wire;

mod disk;
mod platform;
mod error;

pub use cache::Cache;
pub use checksum::{Checksum, hex};
pub use disk::{check_limit, free_space};
pub use download::{Client, FetchError, Page};
pub use environment::{ENDPOINT, Hub, home_folder};
pub use error::{HubError, Result, io_message, quoted};
pub use lock::{Locked, TryLock, no_locks, try_lock};
pub use model::{ModelFolder, Watch};
pub use part::remove as remove_part;
pub use repo::ModelRepo;
