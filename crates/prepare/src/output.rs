//! The data set's folder: token files that grow under other names, and get their own when whole.
//!
//! `train.bin` gets its name last. So a folder with a `train.bin` has all the rest, and a folder
//! without one says to everybody that it is no data set yet.

use crate::disk;
use crate::error::{PrepareError, Result};
use crate::journal::{self, Journal, Totals};
use crate::lock::Lock;
use data::{Meta, Split};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The usual time from one safe state to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest share of the time that making states safe may take.
const SHARE: u32 = 20;
/// Bytes written at a time.
const BUFFER: usize = 1 << 20;
/// Bytes of a token.
const TOKEN_BYTES: u64 = 2;

/// What a folder holds before anything is done.
#[derive(Debug)]
pub enum Found {
    /// This very data set, complete.
    Done(Totals),
    /// A part of it.
    Begun(Journal),
    /// Nothing of it; a part of another one where `other` is set.
    Nothing {
        /// Whether an unfinished preparation with other settings is replaced.
        other: bool,
    },
}

/// Files beside the tokens without which nobody knows what the tokens stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Whether `meta.pkl` belongs to the data set.
    pub meta: bool,
    /// Whether `tokenizer.json` does.
    pub tokenizer: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// As in the journal.
    pub settings: &'a str,
    /// What else must be there.
    pub beside: Beside,
    /// Whether another data set is replaced.
    pub overwrite: bool,
}

/// Looks at a folder.
///
/// # Errors
///
/// When it holds another data set, or a damaged one, which is not replaced unless that is wished.
pub fn look(folder: &Path, wanted: &Wanted<'_>) -> Result<Found> {
    let Wanted { settings, beside, overwrite } = *wanted;
    let journal = match Journal::read(folder) {
        Err(_) if overwrite => None,
        journal => journal?,
    };
    let same = journal.as_ref().filter(|journal| journal.settings == settings);
    let whole = folder.join("train.bin").exists();
    match same {
        Some(journal) if journal.complete && whole && !overwrite => {
            let missing = missing(folder, &journal.totals, beside);
            return match missing.is_empty() {
                true => Ok(Found::Done(journal.totals)),
                false => Err(incomplete(folder, &missing)),
            };
        }
        Some(journal) if !whole => return Ok(Found::Begun(journal.clone())),
        _ => {}
    }
    if whole && !overwrite {
        return Err(PrepareError::OtherDataSet { path: folder.to_owned() });
    }
    let is_begun = |journal: &Journal| !journal.complete && journal.totals != Totals::default();
    let other = journal.as_ref().is_some_and(is_begun);
    Ok(Found::Nothing { other })
}

/// What a complete data set lacks, each with its name.
fn missing(folder: &Path, totals: &Totals, beside: Beside) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, tokens) in [("train.bin", totals.train_tokens), ("val.bin", totals.val_tokens)] {
        let want = tokens.saturating_mul(TOKEN_BYTES);
        match folder.join(name).metadata().map(|metadata| metadata.len()) {
            Err(_) => missing.push(format!("{name} is not there")),
            Ok(have) if have != want => {
                missing.push(format!("{name} has {have} bytes, but {want} were written"));
            }
            Ok(_) => {}
        }
    }
    for (name, belongs) in [("meta.pkl", beside.meta), ("tokenizer.json", beside.tokenizer)] {
        if belongs && !folder.join(name).is_file() {
            missing.push(format!("{name} is not there"));
        }
    }
    missing
}

fn incomplete(folder: &Path, missing: &[String]) -> PrepareError {
    let what = format!(
        "this data set is not whole: {}; to rebuild it, add --overwrite, or remove train.bin and \
         {} and run the same command again",
        missing.join(", "),
        journal::NAME
    );
    PrepareError::Output { path: folder.to_owned(), what }
}

/// Token files in the making.
pub struct Output {
    folder: PathBuf,
    train: BufWriter<File>,
    val: BufWriter<File>,
    /// What is written, safely or not.
    pub journal: Journal,
    safe_since: Instant,
    pause: Duration,
    /// Most bytes of a file.
    limit: Option<u64>,
    /// Whether a write failed: what the journal counts may not be there, so it is not saved again.
    failed: bool,
}

fn part(folder: &Path, split: Split) -> PathBuf {
    folder.join(format!("{}.bin.part", split.name()))
}

impl Output {
    /// Opens the parts at the state of `journal`; what was written after it is cut off.
    ///
    /// # Errors
    ///
    /// When the disk refuses, or a part is shorter than the journal says.
    pub fn open(folder: &Path, journal: Journal, _: &Lock) -> Result<Output> {
        let Totals { train_tokens, val_tokens, .. } = journal.totals;
        let is_new = journal.totals == Totals::default();
        if is_new {
            // Before the parts are cut: an older journal counts what is in them.
            journal.write(folder)?;
        }
        let train = open_part(folder, Split::Train, train_tokens)?;
        let val = open_part(folder, Split::Val, val_tokens)?;
        if is_new {
            // What an older data set left is no part of this one.
            for name in ["train.bin", "val.bin", "meta.pkl", "tokenizer.json"] {
                remove(&folder.join(name))?;
            }
        }
        let buffered = |file| BufWriter::with_capacity(BUFFER, file);
        let (train, val) = (buffered(train), buffered(val));
        let folder = folder.to_owned();
        Ok(Output {
            folder,
            train,
            val,
            journal,
            safe_since: Instant::now(),
            pause: PAUSE,
            limit: data::disk::file_limit(),
            failed: false,
        })
    }

    /// Appends tokens.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn append(&mut self, split: Split, tokens: &[u16]) -> Result<()> {
        let (writer, count) = match split {
            Split::Train => (&mut self.train, &mut self.journal.totals.train_tokens),
            Split::Val => (&mut self.val, &mut self.journal.totals.val_tokens),
        };
        let path = part(&self.folder, split);
        let bytes = count.saturating_add(tokens.len() as u64).saturating_mul(2);
        if let Err(error) = disk::check_limit(&path, bytes, self.limit) {
            self.failed = true;
            return Err(error);
        }
        for some in tokens.chunks(4096) {
            let mut bytes = [0; 8192];
            for (pair, token) in bytes.chunks_exact_mut(2).zip(some) {
                pair.copy_from_slice(&token.to_le_bytes());
            }
            let written = writer.write_all(&bytes[..some.len() * 2]);
            self.failed |= written.is_err();
            written.map_err(PrepareError::io(&path, "write tokens"))?;
        }
        *count += tokens.len() as u64;
        Ok(())
    }

    /// Makes what was written safe if the last time is a while ago; whether it did.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn save_sometimes(&mut self) -> Result<bool> {
        if self.safe_since.elapsed() < self.pause {
            return Ok(false);
        }
        let start = Instant::now();
        self.save()?;
        self.pause = PAUSE.max(start.elapsed() * SHARE);
        Ok(true)
    }

    /// Makes what was written safe: after this, not even a power cut loses it.
    ///
    /// # Errors
    ///
    /// When the disk refuses, or did so before: the last safe state stays.
    pub fn save(&mut self) -> Result<()> {
        self.check_written()?;
        for (writer, split) in [(&mut self.train, Split::Train), (&mut self.val, Split::Val)] {
            let synced = writer.flush().and_then(|()| writer.get_ref().sync_data());
            self.failed |= synced.is_err();
            synced.map_err(PrepareError::io(&part(&self.folder, split), "write tokens"))?;
        }
        self.journal.write(&self.folder)?;
        self.safe_since = Instant::now();
        Ok(())
    }

    /// Refuses to go on where tokens that the journal counts may not be there.
    fn check_written(&self) -> Result<()> {
        match self.failed {
            true => {
                let what = "tokens could not be written to it; run the same command again, it \
                            continues from the last safe state";
                Err(PrepareError::Output { path: self.folder.clone(), what: what.to_owned() })
            }
            false => Ok(()),
        }
    }

    /// Everything is written: the files get their names.
    ///
    /// # Errors
    ///
    /// When the disk refuses; a later call goes on from there.
    pub fn finish(mut self, meta: Option<&Meta>, tokenizer: Option<&[u8]>) -> Result<()> {
        self.check_written()?;
        let meta_path = self.folder.join("meta.pkl");
        match meta {
            Some(meta) => journal::replace(&meta_path, &meta.to_pickle())?,
            None => remove(&meta_path)?,
        }
        if let Some(content) = tokenizer {
            journal::replace(&self.folder.join("tokenizer.json"), content)?;
        }
        self.journal.complete = true;
        self.save()?;
        for split in [Split::Val, Split::Train] {
            let (from, to) = (part(&self.folder, split), self.folder.join(split.name()));
            let to = to.with_extension("bin");
            if from.exists() {
                std::fs::rename(&from, &to).map_err(PrepareError::io(&to, "name it"))?;
            }
        }
        let synced = journal::sync_folder(&self.folder);
        synced.map_err(PrepareError::io(&self.folder, "write its names"))
    }
}

fn open_part(folder: &Path, split: Split, tokens: u64) -> Result<File> {
    let path = part(folder, split);
    let named = folder.join(split.name()).with_extension("bin");
    if tokens > 0 && !path.exists() && named.exists() {
        // A kill between the two renames of a finished preparation.
        std::fs::rename(&named, &path).map_err(PrepareError::io(&named, "take it back"))?;
    }
    let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let mut file = opened.map_err(PrepareError::io(&path, "open it"))?;
    let want = tokens.checked_mul(TOKEN_BYTES);
    let want = want.ok_or_else(|| journal::damaged(folder, &format!("{tokens} tokens")))?;
    let have = file.metadata().map_or(0, |metadata| metadata.len());
    if have < want {
        let what = format!(
            "has {have} bytes, but the journal counts {want}: it was changed; remove \
             {} to begin anew",
            folder.join(journal::NAME).display()
        );
        return Err(PrepareError::Output { path, what });
    }
    let cut = file.set_len(want).and_then(|()| file.seek(SeekFrom::End(0)));
    cut.map_err(PrepareError::io(&path, "cut off what the journal does not count"))?;
    Ok(file)
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(PrepareError::io(path, "remove it")(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal that counts tokens which are not there must not become a data set.
    #[test]
    fn a_failed_write_is_neither_saved_nor_finished() {
        let folder = std::env::temp_dir().join(format!("fitgpt-failed-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let lock = Lock::take(&folder).unwrap();
        let open = || Output::open(&folder, Journal::default(), &lock).unwrap();
        let mut output = open();
        output.append(Split::Val, &[1, 2]).unwrap();
        output.limit = Some(2);
        assert!(output.append(Split::Train, &[1, 2]).is_err());
        assert!(output.save().is_err());
        let error = output.finish(None, None).unwrap_err().to_string();
        assert!(error.contains("run the same command again"), "{error}");
        assert!(!folder.join("train.bin").exists() && !folder.join("val.bin").exists());
        let mut output = open();
        for split in [Split::Train, Split::Val] {
            output.append(split, &[1, 2]).unwrap();
        }
        output.finish(None, None).unwrap();
        assert_eq!(std::fs::read(folder.join("train.bin")).unwrap(), [1, 0, 2, 0]);
        drop(lock);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
