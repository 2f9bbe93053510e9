//! Reads a run's `log.jsonl` and keeps reading as it grows, a piece at a time. The file may be
//! damaged, huge, replaced or removed at any moment.

use crate::platform::identity;
use crate::run::Run;
use events::{Entry, LONGEST, parse_line};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Bytes that are read at a time.
const PIECE: usize = 4 << 20;

/// Pieces smaller than this are parsed by one thread.
const WORTH_THREADS: usize = 256 << 10;

/// Threads that parse.
const MOST_THREADS: usize = 4;

/// Characters of a problem: it may quote the line.
const PROBLEM: usize = 300;

/// A log that is being followed.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// The file's identity and how far it was read.
    file: Option<(u64, u64)>,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
    /// Whether the rest of a line that is too long is skipped.
    is_skipping: bool,
    /// Lines so far.
    lines: u64,
}

/// How far a log is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// To its end.
    UpToDate,
    /// This share of it.
    Share(f64),
}

impl Follower {
    /// Follows the log at this path.
    pub fn new(path: PathBuf) -> Follower {
        Follower { path, file: None, rest: Vec::new(), is_skipping: false, lines: 0 }
    }

    /// The log's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the next piece. A file that was replaced or has become shorter is read from its start.
    pub fn read_on(&mut self, run: &Mutex<Run>) -> Progress {
        match self.piece(run) {
            Ok(progress) => progress,
            Err(error) => {
                let mut run = locked(run);
                if run.events == 0 && run.problem.is_none() {
                    run.problem = Some(shortened(&format!("the log cannot be read: {error}")));
                    run.version += 1;
                }
                Progress::UpToDate
            }
        }
    }

    fn piece(&mut self, run: &Mutex<Run>) -> std::io::Result<Progress> {
        let metadata = std::fs::metadata(&self.path)?;
        // A pipe or a device would never end.
        if !metadata.is_file() {
            return Err(std::io::Error::other("it is not a regular file"));
        }
        let (inode, length) = (identity(&metadata), metadata.len());
        let read = match self.file {
            Some((known, read)) if known == inode && read <= length => read,
            known => {
                self.begin(run, known.is_some());
                0
            }
        };
        if read == length {
            self.file = Some((inode, read));
            return Ok(Progress::UpToDate);
        }
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(read))?;
        let mut piece = Vec::new();
        file.take(PIECE as u64).read_to_end(&mut piece)?;
        let now = read + piece.len() as u64;
        self.file = Some((inode, now));
        self.parse(&piece, run);
        match now < length && !piece.is_empty() {
            true => Ok(Progress::Share(now as f64 / length as f64)),
            false => Ok(Progress::UpToDate),
        }
    }

    /// Forgets what was read.
    fn begin(&mut self, run: &Mutex<Run>, is_again: bool) {
        (self.rest, self.is_skipping, self.lines) = (Vec::new(), false, 0);
        let mut run = locked(run);
        run.forget(is_again);
    }

    fn parse(&mut self, piece: &[u8], run: &Mutex<Run>) {
        let Some(end) = piece.iter().rposition(|&byte| byte == b'\n') else {
            self.keep(piece);
            return;
        };
        let (mut whole, tail) = piece.split_at(end + 1);
        let mut first = Vec::new();
        if self.is_skipping || !self.rest.is_empty() {
            let line_end = whole.iter().position(|&byte| byte == b'\n').unwrap_or(end);
            self.keep(&whole[..line_end]);
            let line = std::mem::take(&mut self.rest);
            let is_long = std::mem::take(&mut self.is_skipping);
            first.push(if is_long { Err(too_long()) } else { parsed(&line) });
            whole = &whole[line_end + 1..];
        }
        let found = first.into_iter().chain(parse_lines(whole));
        let mut run = locked(run);
        run.is_catching_up = piece.len() > WORTH_THREADS;
        for entry in found {
            self.lines += 1;
            match entry {
                Ok(Some(entry)) => run.take(&entry),
                Ok(None) => {}
                Err(problem) => {
                    run.unreadable += 1;
                    run.version += 1;
                    let number = self.lines;
                    run.problem.get_or_insert_with(|| format!("line {number}: {problem}"));
                }
            }
        }
        drop(run);
        self.keep(tail);
    }

    /// Keeps the beginning of a line, unless the line is too long.
    fn keep(&mut self, part: &[u8]) {
        if self.is_skipping || self.rest.len() + part.len() > LONGEST as usize {
            (self.is_skipping, self.rest) = (true, Vec::new());
        } else {
            self.rest.extend_from_slice(part);
        }
    }
}

type Parsed = Result<Option<Entry>, String>;

/// Parses whole lines, with several threads if there are many.
fn parse_lines(text: &[u8]) -> Vec<Parsed> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if text.len() < WORTH_THREADS { 1 } else { cores.min(MOST_THREADS) };
    if threads == 1 {
        return lines_of(text);
    }
    let mut parts = Vec::new();
    let mut rest = text;
    for left in (1..=threads).rev() {
        let middle = rest.len() / left;
        let end = rest[middle..].iter().position(|&byte| byte == b'\n');
        let (part, after) = rest.split_at(end.map_or(rest.len(), |end| middle + end + 1));
        parts.push(part);
        rest = after;
    }
    std::thread::scope(|scope| {
        let work: Vec<_> = parts.iter().map(|part| scope.spawn(|| lines_of(part))).collect();
        work.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    })
}

fn lines_of(text: &[u8]) -> Vec<Parsed> {
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines.map(parsed).collect()
}

fn parsed(line: &[u8]) -> Parsed {
    if line.len() as u64 > LONGEST {
        return Err(too_long());
    }
    parse_line(line).map_err(|problem| shortened(&problem))
}

fn too_long() -> String {
    format!("longer than {LONGEST} bytes")
}

/// A short message without control characters.
fn shortened(text: &str) -> String {
    text.chars().take(PROBLEM).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A lock. If a thread panicked while it held it, the numbers may be incomplete, and that is all.
pub fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn folder(name: &str) -> PathBuf {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("fitgpt-page-{name}-{id}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn counts(run: &Mutex<Run>) -> (u64, u64) {
        let run = locked(run);
        (run.events, run.unreadable)
    }

    const SAVE: &str = r#"{"kind":"save","iter":1,"path":"a","ms":1,"unix_time":1,"seconds":1}"#;

    #[test]
    fn lines_are_read_as_they_grow_and_damage_is_counted() {
        let folder = folder("follow");
        let path = folder.join("log.jsonl");
        let run = Mutex::new(Run::default());
        let mut follower = Follower::new(path.clone());
        assert_eq!(follower.read_on(&run), Progress::UpToDate);
        assert!(locked(&run).problem.as_ref().unwrap().contains("cannot be read"));
        let mut file = File::create(&path).unwrap();
        let (begin, end) = SAVE.split_at(20);
        write!(file, "{SAVE}\nrubbish\n\n{begin}").unwrap();
        follower.read_on(&run);
        assert_eq!(counts(&run), (1, 1));
        write!(file, "{end}\n{}\n{SAVE}\n", "y".repeat(LONGEST as usize + 5)).unwrap();
        follower.read_on(&run);
        assert_eq!(counts(&run), (3, 2));
        assert!(locked(&run).problem.as_ref().unwrap().starts_with("line 2: "));
        // A shorter file is another log.
        std::fs::write(&path, format!("{SAVE}\n")).unwrap();
        follower.read_on(&run);
        assert_eq!(counts(&run), (1, 0));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn pieces_are_parsed_by_several_threads_in_order() {
        let many: String =
            (0..20_000).map(|n| SAVE.replace(":1,\"p", &format!(":{n},\"p")) + "\n").collect();
        let found = parse_lines(many.as_bytes());
        assert_eq!(found.len(), 20_000);
        for (number, entry) in found.into_iter().enumerate() {
            let events::What::Save(save) = entry.unwrap().unwrap().what else { unreachable!() };
            assert_eq!(save.iter, number as u64);
        }
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let run = Mutex::new(Run::default());
        let mut follower = Follower::new(PathBuf::new());
        for _ in 0..10 {
            follower.parse(&vec![b'x'; 1 << 20], &run);
            assert!(follower.rest.len() <= LONGEST as usize);
        }
        follower.parse(format!("\n{SAVE}\n").as_bytes(), &run);
        assert_eq!(counts(&run), (1, 1));
    }
}
