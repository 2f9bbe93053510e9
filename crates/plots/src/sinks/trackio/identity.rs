//! Which run of trackio's this is. `out_dir/trackio-run` keeps the id and the name, so that a
//! resumed run continues the same run.

use super::put;
use crate::utc::utc;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Result};
use std::path::{Path, PathBuf};

/// Most bytes of the file.
const MOST: u64 = 4096;

/// A run of trackio's.
#[derive(Debug, Default)]
pub struct Identity {
    pub id: String,
    pub name: String,
}

impl Identity {
    /// The file that keeps it.
    pub fn file(out_dir: &Path) -> PathBuf {
        out_dir.join("trackio-run")
    }

    /// That of a run which starts with this iteration, and whether it could be kept for the next
    /// resumption. A name that is given counts more than one that was kept.
    pub fn of(
        out_dir: &Path,
        name: Option<&str>,
        iter: u64,
        unix_time: f64,
    ) -> (Identity, Result<()>) {
        let path = Identity::file(out_dir);
        let kept = if iter > 0 { read(&path) } else { None };
        let is_new = kept.is_none();
        let (id, old_name) = kept.unwrap_or_else(|| (new_id(), None));
        let name = name.map(str::to_string).or(old_name);
        let name = name.unwrap_or_else(|| made_name(out_dir, unix_time));
        let text = format!("{id}\n{name}\n");
        let written = if is_new { put(&path, text.as_bytes()) } else { Ok(()) };
        (Identity { id, name }, written)
    }

    /// What names of its folders in the inbox begin with.
    pub fn folder_prefix(&self) -> String {
        format!("fitgpt-{}-", self.id)
    }

    /// A folder in the inbox that no other process has.
    pub fn new_folder(&self, inbox: &Path) -> PathBuf {
        inbox.join(self.folder_prefix() + &new_id()[..8])
    }
}

/// `out-shakespeare-20261118-140509`: the folder, and the start in UTC.
fn made_name(out_dir: &Path, unix_time: f64) -> String {
    let folder = out_dir.canonicalize().unwrap_or(out_dir.to_path_buf());
    let folder = folder.file_name().map_or("run".into(), |name| name.to_string_lossy());
    let folder: String = folder.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let time = utc(unix_time);
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let (day, time) = time.split_once('T').unwrap_or((&time, ""));
    let time = time.split('.').next().unwrap_or_default();
    format!("{folder}-{}-{}", digits(day), digits(time))
}

/// 32 random digits.
fn new_id() -> String {
    let [first, second] = [1, 2].map(|word: u64| RandomState::new().hash_one(word));
    format!("{first:016x}{second:016x}")
}

/// The id and the name in a file; none if the file is missing or holds something else. Older
/// versions wrote no name.
fn read(path: &Path) -> Option<(String, Option<String>)> {
    let mut text = String::new();
    File::open(path).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    let (id, name) = text.split_once('\n')?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = Some(name.trim_end_matches('\n')).filter(|name| !name.is_empty());
    is_id.then(|| (id.to_string(), name.map(str::to_string)))
}
