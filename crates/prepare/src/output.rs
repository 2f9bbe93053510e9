//! The data set's folder. Token files grow under temporary names and are renamed when complete.
//!
//! `train.bin` is renamed last. So a folder with a `train.bin` is complete, and a folder without
//! one is not yet a data set.

use crate::disk;
use crate::error::{PrepareError, Result};
use crate::journal::{self, Journal, Totals};
use crate::lock::Lock;
use data::{Meta, Split};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The usual time between two safe states.
const PAUSE: Duration = Duration::from_millis(100);
/// Saving may take at most one part in this many of the time.
const SHARE: u32 = 20;
/// Bytes written at a time.
const BUFFER: usize = 1 << 20;
/// Bytes of a token.
const TOKEN_BYTES: u64 = 2;

/// What a folder holds before the preparation starts.
#[derive(Debug)]
pub enum FolderState {
    /// The requested data set, complete.
    Done(Totals),
    /// A part of the requested data set.
    Begun(Journal),
    /// Nothing of it.
    Nothing {
        /// Whether there is an unfinished preparation with other settings, which is replaced.
        other: bool,
    },
}

/// Which other files the data set needs to define what its tokens mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideFiles {
    /// Whether it needs `meta.pkl`.
    pub meta: bool,
    /// Whether it needs `tokenizer.json`.
    pub tokenizer: bool,
}

/// What the folder is expected to hold.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Checksum of the request, as in the journal.
    pub settings: &'a str,
    /// The other files it needs.
    pub side_files: SideFiles,
    /// Whether to replace another data set.
    pub overwrite: bool,
}

/// Inspects a folder.
///
/// # Errors
///
/// When it holds another data set or a damaged one and `overwrite` is not set.
pub fn look(folder: &Path, expected: &Expected<'_>) -> Result<FolderState> {
    let Expected { settings, side_files, overwrite } = *expected;
    let journal = match Journal::read(folder) {
        Err(_) if overwrite => None,
        journal => journal?,
    };
    let same = journal.as_ref().filter(|journal| journal.settings == settings);
    let whole = folder.join("train.bin").exists();
    match same {
        Some(journal) if journal.complete && whole && !overwrite => {
            let missing = missing(folder, &journal.totals, side_files);
            return match missing.is_empty() {
                true => Ok(FolderState::Done(journal.totals)),
                false => Err(incomplete(folder, &missing)),
            };
        }
        Some(journal) if !whole => return Ok(FolderState::Begun(journal.clone())),
        _ => {}
    }
    if whole && !overwrite {
        return Err(PrepareError::OtherDataSet { path: folder.to_owned() });
    }
    let is_begun = |journal: &Journal| !journal.complete && !journal.is_new();
    let other = journal.as_ref().is_some_and(is_begun);
    Ok(FolderState::Nothing { other })
}

/// What a complete data set lacks, as a list of sentences.
fn missing(folder: &Path, totals: &Totals, side_files: SideFiles) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, tokens) in [("train.bin", totals.train_tokens), ("val.bin", totals.val_tokens)] {
        let want = tokens.saturating_mul(TOKEN_BYTES);
        match folder.join(name).metadata().map(|metadata| metadata.len()) {
            Err(_) => missing.push(format!("{name} is missing")),
            Ok(have) if have != want => {
                missing.push(format!("{name} has {have} bytes, but should have {want}"));
            }
            Ok(_) => {}
        }
    }
    for (name, belongs) in [("meta.pkl", side_files.meta), ("tokenizer.json", side_files.tokenizer)]
    {
        if belongs && !folder.join(name).is_file() {
            missing.push(format!("{name} is missing"));
        }
    }
    missing
}

fn incomplete(folder: &Path, missing: &[String]) -> PrepareError {
    let what = format!(
        "this data set is incomplete: {}; to rebuild it, add --overwrite, or remove train.bin and \
         {} and run the same command again",
        missing.join(", "),
        journal::NAME
    );
    PrepareError::Output { path: folder.to_owned(), what }
}

/// The token files that are being written.
pub struct Output {
    folder: PathBuf,
    /// None until there is something to write. Until then the folder stays as it is, and with it
    /// the data set that is going to be replaced.
    files: Option<Files>,
    /// Counts everything written, including what is not synced yet.
    pub journal: Journal,
    safe_since: Instant,
    pause: Duration,
    /// Limit on the size of a file.
    limit: Option<u64>,
    /// Whether a write failed. Then the journal may count tokens that are not in the files, so it
    /// is not saved again.
    failed: bool,
}

/// The partial files.
struct Files {
    train: BufWriter<File>,
    val: BufWriter<File>,
}

impl Files {
    /// Makes empty ones, and removes the tokens of the data set that was in the folder. Its other
    /// files stay until the end, because the tokenizer may be the one that is used now.
    fn create(folder: &Path, settings: &str) -> Result<Files> {
        let start = Journal { settings: settings.to_owned(), ..Journal::default() };
        // Before the files are truncated, because an older journal counts what is in them.
        start.write(folder)?;
        let files = Files::open(folder, &start)?;
        for name in ["train.bin", "val.bin"] {
            remove(&folder.join(name))?;
        }
        Ok(files)
    }

    /// Opens them at the state of `journal` and truncates what was written after it.
    fn open(folder: &Path, journal: &Journal) -> Result<Files> {
        let Totals { train_tokens, val_tokens, .. } = journal.totals;
        let train = open_part(folder, Split::Train, train_tokens)?;
        let val = open_part(folder, Split::Val, val_tokens)?;
        let buffered = |file| BufWriter::with_capacity(BUFFER, file);
        Ok(Files { train: buffered(train), val: buffered(val) })
    }
}

fn part(folder: &Path, split: Split) -> PathBuf {
    folder.join(format!("{}.bin.part", split.name()))
}

impl Output {
    /// Continues at the state of `journal`. A new preparation touches no file before it has tokens
    /// to write.
    ///
    /// # Errors
    ///
    /// When the disk fails, or a file is shorter than the journal says.
    pub fn open(folder: &Path, journal: Journal, _: &Lock) -> Result<Output> {
        let files = match journal.is_new() {
            true => None,
            false => Some(Files::open(folder, &journal)?),
        };
        Ok(Output {
            folder: folder.to_owned(),
            files,
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
    /// When the disk fails.
    pub fn append(&mut self, split: Split, tokens: &[u16]) -> Result<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        let files = match &mut self.files {
            Some(files) => files,
            none => none.insert(Files::create(&self.folder, &self.journal.settings)?),
        };
        let (writer, count) = match split {
            Split::Train => (&mut files.train, &mut self.journal.totals.train_tokens),
            Split::Val => (&mut files.val, &mut self.journal.totals.val_tokens),
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

    /// Saves if the last save was a while ago; returns whether it did.
    ///
    /// # Errors
    ///
    /// When the disk fails.
    pub fn save_sometimes(&mut self) -> Result<bool> {
        if self.files.is_none() || self.safe_since.elapsed() < self.pause {
            return Ok(false);
        }
        let start = Instant::now();
        self.save()?;
        self.pause = PAUSE.max(start.elapsed() * SHARE);
        Ok(true)
    }

    /// Syncs everything written so far, then the journal. Afterwards a power cut cannot lose it.
    /// If nothing was written, there is nothing to save.
    ///
    /// # Errors
    ///
    /// When the disk fails, or failed before; the last safe state remains.
    pub fn save(&mut self) -> Result<()> {
        self.check_written()?;
        let Some(Files { train, val }) = &mut self.files else {
            return Ok(());
        };
        for (writer, split) in [(train, Split::Train), (val, Split::Val)] {
            let synced = writer.flush().and_then(|()| writer.get_ref().sync_data());
            self.failed |= synced.is_err();
            synced.map_err(PrepareError::io(&part(&self.folder, split), "write tokens"))?;
        }
        self.journal.write(&self.folder)?;
        self.safe_since = Instant::now();
        Ok(())
    }

    /// Fails after a failed write, because the journal may count tokens that are not in the files.
    fn check_written(&self) -> Result<()> {
        match self.failed {
            true => {
                let what = "tokens could not be written to it; run the same command again to \
                            resume from the last safe state";
                Err(PrepareError::Output { path: self.folder.clone(), what: what.to_owned() })
            }
            false => Ok(()),
        }
    }

    /// Renames the files once everything is written.
    ///
    /// # Errors
    ///
    /// When the disk fails; a later call resumes from there.
    pub fn finish(mut self, meta: Option<&Meta>, tokenizer: Option<&[u8]>) -> Result<()> {
        self.check_written()?;
        let meta_path = self.folder.join("meta.pkl");
        match meta {
            Some(meta) => journal::replace(&meta_path, &meta.to_pickle())?,
            None => remove(&meta_path)?,
        }
        let tokenizer_path = self.folder.join("tokenizer.json");
        match tokenizer {
            Some(content) => journal::replace(&tokenizer_path, content)?,
            None => remove(&tokenizer_path)?,
        }
        self.journal.complete = true;
        self.save()?;
        for split in [Split::Val, Split::Train] {
            let (from, to) = (part(&self.folder, split), self.folder.join(split.name()));
            let to = to.with_extension("bin");
            if from.exists() {
                std::fs::rename(&from, &to).map_err(PrepareError::io(&to, "rename it"))?;
            }
        }
        let synced = data::disk::sync_folder(&self.folder);
        synced.map_err(PrepareError::io(&self.folder, "sync it"))
    }
}

fn open_part(folder: &Path, split: Split, tokens: u64) -> Result<File> {
    let path = part(folder, split);
    let named = folder.join(split.name()).with_extension("bin");
    if tokens > 0 && !path.exists() && named.exists() {
        // The last run was killed between the two renames at the end.
        std::fs::rename(&named, &path).map_err(PrepareError::io(&named, "rename it back"))?;
    }
    let opened = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let mut file = opened.map_err(PrepareError::io(&path, "open it"))?;
    let want = tokens.checked_mul(TOKEN_BYTES);
    let want = want.ok_or_else(|| journal::damaged(folder, &format!("{tokens} tokens")))?;
    let have = file.metadata().map_or(0, |metadata| metadata.len());
    if have < want {
        let what = format!(
            "has {have} bytes, but the journal counts {want}: the file was changed; remove \
             {} to start over",
            folder.join(journal::NAME).display()
        );
        return Err(PrepareError::Output { path, what });
    }
    let cut = file.set_len(want).and_then(|()| file.seek(SeekFrom::End(0)));
    cut.map_err(PrepareError::io(&path, "truncate it to what the journal counts"))?;
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

    /// A journal that counts missing tokens must not become a data set.
    #[test]
    fn a_failed_write_is_neither_saved_nor_finished() {
        let folder = std::env::temp_dir().join(format!("fitgpt-failed-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let lock = Lock::take(&folder, std::fs::File::try_lock).unwrap();
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
