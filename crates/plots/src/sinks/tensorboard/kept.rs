//! What earlier files say about the step that a resumed run starts with, and what stays true: the
//! evaluation and the sample at the end of the run before. The new file tells TensorBoard to forget
//! this step and all later ones, so they are copied into it.

use super::PREFIX;
use super::record::{HEAD, TAIL, is_whole};
use std::fs::File;
use std::io::{BufReader, Read, Result};
use std::path::{Path, PathBuf};

/// Longest record that is read; ours are a few kilobytes.
const LONGEST: u64 = 1 << 20;

/// How tags of a record begin: field 1 and its length. Iterations have neither.
const EVALUATION: &[u8] = b"\x0a\x08val/loss";
const SAMPLE: &[u8] = b"\x0a\x06sample";

/// The records of a step that stay, framed; `is_evaluated` says that the new run has its own
/// evaluation. Files that cannot be read keep nothing.
pub fn kept(folder: &Path, step: u64, is_evaluated: bool) -> Vec<u8> {
    let mut found = Found { step, records: [Vec::new(), Vec::new()] };
    for path in files(folder) {
        // What follows a damaged record cannot be found.
        let _ = File::open(path).and_then(|file| found.read(BufReader::new(file)));
    }
    let [evaluation, sample] = found.records;
    if is_evaluated { sample } else { [evaluation, sample].concat() }
}

/// Our files in the order of their names, in which TensorBoard reads them.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(PREFIX) && name.ends_with(".fitgpt") && path.is_file()
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
    files.sort();
    files
}

struct Found {
    step: u64,
    /// The evaluation and the sample.
    records: [Vec<u8>; 2],
}

impl Found {
    fn read(&mut self, mut file: impl Read) -> Result<()> {
        let mut record = vec![0; HEAD];
        loop {
            record.truncate(HEAD);
            file.read_exact(&mut record)?;
            let length = record[..8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            if length > LONGEST {
                return Ok(());
            }
            let whole = HEAD + length as usize + TAIL;
            record.resize(whole, 0);
            file.read_exact(&mut record[HEAD..])?;
            if !is_whole(&record) {
                return Ok(());
            }
            self.take(&record);
        }
    }

    fn take(&mut self, record: &[u8]) {
        let Some((step, body)) = step_of(&record[HEAD..record.len() - TAIL]) else { return };
        let has = |tag: &[u8]| body.windows(tag.len()).any(|part| part == tag);
        let is_start = body.first() == Some(&(7 << 3 | 2));
        if is_start && step <= self.step {
            self.records = Default::default();
        } else if step == self.step && has(EVALUATION) {
            self.records[0] = record.to_vec();
        } else if step == self.step && has(SAMPLE) {
            self.records[1] = record.to_vec();
        }
    }
}

/// The step of an event as we write it (time, step, the rest), and the rest.
fn step_of(event: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = event.strip_prefix(b"\x09")?.get(8..)?.strip_prefix(b"\x10")?;
    let mut step = 0;
    for place in 0..10 {
        let (first, after) = rest.split_first()?;
        step |= u64::from(first & 0x7f).checked_shl(7 * place)?;
        rest = after;
        if *first < 0x80 {
            return Some((step, rest));
        }
    }
    None
}
