//! A fingerprint of a data set's files: the length and a sampled checksum of each. Checkpoints keep
//! it, so that a run never resumes on changed data without saying so.

use crate::error::TrainError;
use checkpoint::checksum::Checksum;
use data::{Dataset, Split};
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes read at each position.
const BLOCK: u64 = 4096;

/// Blocks between the first and the last. So 66 blocks (264 KiB) of a file are read; smaller files
/// are read whole. A change that touches a share `s` of a large file at random is missed with
/// probability (1 - s)^66: 1 in 1000 for a tenth.
const BLOCKS_BETWEEN: u64 = 64;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileFingerprint {
    /// Its name in the data set's folder.
    name: String,
    bytes: u64,
    /// Checksum of the sampled blocks.
    checksum: u64,
}

/// The fingerprint of all files of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFingerprint(Vec<FileFingerprint>);

/// How a file differs from its fingerprint. The text is the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It grew but begins as before, or it is new.
    Grown(String),
    /// Anything else.
    Changed(String),
}

impl DataFingerprint {
    /// Takes the fingerprint of a data set's files; none if it has no files.
    pub fn of(dataset: &Dataset) -> Result<Option<DataFingerprint>, TrainError> {
        if dataset.folder() == Path::new("") {
            return Ok(None);
        }
        let halves = [Split::Train, Split::Val].map(|split| dataset.split(split).paths());
        let mut paths = halves.concat();
        let meta = dataset.folder().join("meta.pkl");
        if dataset.meta().is_some() {
            paths.push(&meta);
        }
        // A checkpoint's document is text: it cannot contain a file name that is not UTF-8.
        paths.retain(|path| path.file_name().is_some_and(|name| name.to_str().is_some()));
        let marks = paths.into_iter().map(|path| mark(path).map_err(unreadable(path)));
        Ok(Some(DataFingerprint(marks.collect::<Result<_, _>>()?)))
    }

    /// Each file with its length and checksum.
    pub fn facts(&self) -> Vec<(String, String)> {
        let fact = |file: &FileFingerprint| {
            (file.name.clone(), format!("{} bytes, checksum {:016x}", file.bytes, file.checksum))
        };
        self.0.iter().map(fact).collect()
    }

    /// How the files in the data set's folder differ from this fingerprint; `now` is their
    /// fingerprint of today.
    pub fn differences(
        &self,
        now: &DataFingerprint,
        folder: &Path,
    ) -> Result<Vec<Difference>, TrainError> {
        let was_there = |mark: &&FileFingerprint| self.0.iter().any(|then| then.name == mark.name);
        let new = now.0.iter().filter(|mark| !was_there(mark)).map(|mark| {
            let path = folder.join(&mark.name);
            let what = "did not exist when the run was saved; the run now uses it too";
            Difference::Grown(format!("{} {what}", path.display()))
        });
        let mut found: Vec<Difference> = new.collect();
        for then in &self.0 {
            let path = folder.join(&then.name);
            let difference = then.difference(&path).map_err(unreadable(&path))?;
            found.extend(difference);
        }
        Ok(found)
    }

    /// As JSON for a checkpoint.
    pub fn to_json(marks: Option<&DataFingerprint>) -> Value {
        let entry = |mark: &FileFingerprint| {
            let value = json!({ "bytes": mark.bytes, "xxh64": format!("{:016x}", mark.checksum) });
            (mark.name.clone(), value)
        };
        marks.map_or(Value::Null, |DataFingerprint(marks)| marks.iter().map(entry).collect())
    }

    /// Parses the JSON of a checkpoint; none if there is nothing to compare with.
    pub fn from_json(json: Option<&Value>) -> Option<DataFingerprint> {
        let mark = |(name, mark): (&String, &Value)| {
            // Only names of files in the folder, never a path to somewhere else.
            let name = Some(name).filter(|name| Path::new(name).file_name() == Some(name.as_ref()));
            let checksum = u64::from_str_radix(mark.get("xxh64")?.as_str()?, 16).ok()?;
            Some(FileFingerprint {
                name: name?.clone(),
                bytes: mark.get("bytes")?.as_u64()?,
                checksum,
            })
        };
        json?.as_object()?.iter().map(mark).collect::<Option<_>>().map(DataFingerprint)
    }
}

impl FileFingerprint {
    fn difference(&self, path: &Path) -> io::Result<Option<Difference>> {
        let then = self.bytes;
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = format!("is missing: it had {then} bytes when the run was saved");
                return Ok(Some(Difference::Changed(format!("{} {what}", path.display()))));
            }
            Err(error) => return Err(error),
        };
        let now = file.metadata()?.len();
        let begins_so = now >= then && checksum(&file, then)? == self.checksum;
        let path = path.display();
        Ok(match (begins_so, now == then) {
            (true, true) => None,
            (true, false) => Some(Difference::Grown(format!(
                "{path} has grown since the run was saved, from {then} to {now} bytes; the run \
                 now uses all of it"
            ))),
            (false, true) => Some(Difference::Changed(format!(
                "{path} has changed: it still has {then} bytes, but different content"
            ))),
            (false, false) => Some(Difference::Changed(format!(
                "{path} has changed: it had {then} bytes and has {now} bytes now"
            ))),
        })
    }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> TrainError {
    let path = path.to_path_buf();
    let (doing, advice) = ("read it", "check that its disk is still mounted");
    move |error| TrainError::Io { path: path.clone(), doing, error, advice }
}

fn mark(path: &Path) -> io::Result<FileFingerprint> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(FileFingerprint { name, bytes, checksum: checksum(&file, bytes)? })
}

/// Checksum of the sampled blocks of a file's first `bytes` bytes.
fn checksum(file: &File, bytes: u64) -> io::Result<u64> {
    let mut buffer = [0; BLOCK as usize];
    let mut sum = Checksum::new();
    for start in block_starts(bytes) {
        let block = &mut buffer[..(bytes - start).min(BLOCK) as usize];
        file.read_exact_at(block, start)?;
        sum.update(block);
    }
    Ok(sum.value())
}

/// Where the sampled blocks begin: all blocks of a small file; else the first, the last, and evenly
/// spaced ones between them.
fn block_starts(bytes: u64) -> Vec<u64> {
    if bytes <= (BLOCKS_BETWEEN + 2) * BLOCK {
        return (0..bytes.div_ceil(BLOCK)).map(|block| block * BLOCK).collect();
    }
    let last = bytes - BLOCK;
    let at =
        |place: u64| (u128::from(last) * u128::from(place) / u128::from(BLOCKS_BETWEEN + 1)) as u64;
    (0..=BLOCKS_BETWEEN + 1).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_starts_cover_small_files_and_span_large_ones() {
        assert!(block_starts(0).is_empty());
        assert_eq!(block_starts(1), [0]);
        assert_eq!(block_starts(BLOCK + 1), [0, BLOCK]);
        let whole = block_starts(66 * BLOCK);
        assert_eq!((whole.len(), whole.last()), (66, Some(&(65 * BLOCK))));
        for bytes in [66 * BLOCK + 1, 17 << 30, u64::MAX] {
            let large = block_starts(bytes);
            assert_eq!((large.len(), large[0], large[65]), (66, 0, bytes - BLOCK));
            assert!(large.windows(2).all(|pair| pair[0] < pair[1]), "{bytes}");
        }
    }

    #[test]
    fn marks_survive_their_json_and_nonsense_is_none() {
        let mark = FileFingerprint { name: "train.bin".to_string(), bytes: 7, checksum: 0xab };
        let marks = DataFingerprint(vec![mark]);
        let json = DataFingerprint::to_json(Some(&marks));
        assert_eq!(json["train.bin"]["xxh64"], "00000000000000ab");
        assert_eq!(DataFingerprint::from_json(Some(&json)), Some(marks));
        for json in [
            json!(null),
            json!({ "../x": { "bytes": 1, "xxh64": "0" } }),
            json!({ "x": { "bytes": -1, "xxh64": "0" } }),
            json!({ "x": { "bytes": 1, "xxh64": "no" } }),
        ] {
            assert_eq!(DataFingerprint::from_json(Some(&json)), None, "{json}");
        }
        assert_eq!(DataFingerprint::from_json(None), None);
    }
}
