//! Runs a preparation from start to end: inspects the folder, surveys, reads and encodes, finishes.

use crate::disk;
use crate::error::{PrepareError, Result};
use crate::journal::{self, Journal, Totals};
use crate::lock::Lock;
use crate::output::{Expected, FolderState, Output, SideFiles, look};
use crate::pipeline::{self, Encoded, Event, Feed, Item, Next};
use crate::readers::{Packing, ReadSpec, read};
use crate::request::{Job, Request, TokenizerChoice};
use crate::segment::{Batch, Layout, Segmenter};
use crate::shelf::{Ahead, Shelf};
use crate::sniff::shape_of_file;
use crate::sources::{Format, Locator};
use crate::split::{Rule, train_characters};
use crate::survey::Survey;
use crate::tokenizers::{self, open_json, read_json};
use data::Split;
use hub::{Client, hex};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokenizer::Tokenizer;

/// How often to check whether the user wants to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// The progress of a preparation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes of the sources read so far.
    pub bytes: u64,
    /// Counts of everything written so far.
    pub totals: Totals,
    /// Bytes received over the network.
    pub received: u64,
    /// Whether this is the first of two passes.
    pub surveying: bool,
}

/// Receives messages and progress while a preparation runs.
pub trait Observer {
    /// A message for the user.
    fn note(&mut self, text: &str);
    /// Called a few times a second.
    fn progress(&mut self, progress: &Progress);
}

/// How a preparation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The data set is complete.
    Done(Totals),
    /// The data set was already complete.
    Already(Totals),
    /// The user stopped it; the same call resumes it.
    Interrupted(Totals),
}

/// Makes the data set.
///
/// # Errors
///
/// When a source, the network or the disk fails. The next call resumes from the last state that was
/// safely written.
pub fn run(mut job: Job, client: &Client, observer: &mut dyn Observer) -> Result<Outcome> {
    let out = job.request.out.clone();
    let stdin = job.sources.iter().position(|source| source.locator == Locator::Stdin);
    if stdin.is_none()
        && let FolderState::Done(totals) = look(&out, &expected(&job, &job.settings()?))?
    {
        return Ok(Outcome::Already(totals)); // a folder that may not be written to is as good
    }
    // Taken before anything is written, so that another preparation in this folder loses nothing.
    let lock = Lock::take(&out, client.try_lock)?;
    if !lock.is_locked {
        observer.note(&hub::no_locks(&out, "make a data set here"));
    }
    let mut settings = String::new();
    if let Some(index) = stdin {
        settings += &keep_standard_input(&mut job, index, client)?;
    }
    if client.is_stopped() {
        return Ok(Outcome::Interrupted(Totals::default()));
    }
    if let Some(index) = stdin {
        recognise_standard_input(&mut job, index, observer)?;
    }
    settings += &job.settings()?;
    let mut downloads = client.clone();
    downloads.checks_room = !job.request.ignore_space;
    let shelf = Shelf::new(job.sources.clone().into(), downloads, &out);
    let found = look(&out, &expected(&job, &settings));
    if matches!(found, Err(_) | Ok(FolderState::Done(_))) && !job.request.keep_downloads {
        shelf.clear(); // the copy of standard input is not needed
    }
    let journal = match found? {
        FolderState::Done(totals) => return Ok(Outcome::Already(totals)),
        FolderState::Begun(journal) => {
            if journal.totals.text_bytes > 0 {
                observer.note("resuming where the last run stopped");
            }
            journal
        }
        FolderState::Nothing { other } => {
            if other {
                observer.note(
                    "the unfinished preparation in the folder had other settings or \
                               sources; starting over",
                );
            }
            Journal { settings, ..Journal::default() }
        }
    };
    if journal.source > job.sources.len() as u64 {
        let (at, all) = (journal.source, job.sources.len());
        return Err(journal::damaged(&out, &format!("it is at source {at} of {all}")));
    }
    job.check_space()?;
    let output = Output::open(&out, journal, &lock)?;
    Work { job: &job, shelf, client, observer }.run(output)
}

/// What a complete folder of this job must hold.
fn expected<'a>(job: &Job, settings: &'a str) -> Expected<'a> {
    let side_files = SideFiles {
        meta: job.tokenizer != TokenizerChoice::Gpt2,
        tokenizer: matches!(job.tokenizer, TokenizerChoice::Json(_)),
    };
    Expected { settings, side_files, overwrite: job.request.overwrite }
}

/// A running preparation.
struct Work<'a> {
    job: &'a Job,
    shelf: Shelf,
    client: &'a Client,
    observer: &'a mut dyn Observer,
}

impl Work<'_> {
    fn run(&mut self, mut output: Output) -> Result<Outcome> {
        let prepared = self.prepare();
        let (tokens, rule) = match prepared {
            Ok(prepared) => prepared,
            Err(_) if self.client.is_stopped() => {
                return Ok(Outcome::Interrupted(output.journal.totals));
            }
            Err(error) => return Err(error),
        };
        if !output.journal.complete {
            let result = self.encode(&tokens, rule, &mut output);
            let saved = output.save();
            result?;
            saved?;
            if self.client.is_stopped() && !output.journal.complete {
                return Ok(Outcome::Interrupted(output.journal.totals));
            }
        }
        let totals = output.journal.totals;
        self.check_halves(&totals)?;
        let tokenizer = match &self.job.tokenizer {
            TokenizerChoice::Json(path) => Some(read_json(path)?),
            _ => None,
        };
        output.finish(tokenizers::meta(&tokens).as_ref(), tokenizer.as_deref())?;
        if !self.job.request.keep_downloads {
            self.shelf.clear();
        }
        Ok(Outcome::Done(totals))
    }

    /// Refuses an empty half, because such a data set cannot be used.
    fn check_halves(&self, totals: &Totals) -> Result<()> {
        let empty = match (totals.train_tokens, totals.val_tokens) {
            (0, _) => "train",
            (_, 0) => "val",
            _ => return Ok(()),
        };
        let Totals { train_documents, val_documents, text_bytes, .. } = totals;
        let documents = train_documents + val_documents;
        Err(PrepareError::Usage(format!(
            "no text for {empty}: {text_bytes} bytes of text in {documents} documents, \
             of which --val {} go to validation; give more text or another --val",
            self.job.val
        )))
    }

    /// Makes the tokenizer and the split rule, with a first pass over the text if they need one.
    fn prepare(&mut self) -> Result<(Tokenizer, Rule)> {
        let job = self.job;
        let by_characters = job.tokenizer == TokenizerChoice::Char;
        let documents = Rule::Documents { seed: job.request.seed, share: job.val };
        if !by_characters && !job.by_position {
            return Ok((self.byte_pairs()?, documents));
        }
        let (client, observer) = (self.client, &mut *self.observer);
        let mut progress = |bytes: u64| {
            if client.is_stopped() {
                return Err(PrepareError::Usage("stopped".to_owned()));
            }
            observer.progress(&Progress { bytes, surveying: true, ..Progress::default() });
            Ok(())
        };
        let mut survey = Survey::new(by_characters, !job.by_position, &mut progress);
        for index in 0..job.sources.len() {
            let path = self.shelf.bring(index)?;
            survey.add(&spec_of(job, index, &path))?;
        }
        let characters = survey.characters;
        let table = if by_characters { Some(survey.table()?) } else { None };
        let rule = match job.by_position {
            true => Rule::Position { train: train_characters(characters, job.val) },
            false => documents,
        };
        let tokens = match table {
            Some(table) => Tokenizer::Char(table),
            None => self.byte_pairs()?,
        };
        Ok((tokens, rule))
    }

    fn byte_pairs(&self) -> Result<Tokenizer> {
        match &self.job.tokenizer {
            TokenizerChoice::Json(path) => open_json(path),
            _ => Ok(Tokenizer::Gpt2),
        }
    }

    /// Reads, encodes and writes everything that is not yet in the journal.
    fn encode(&mut self, tokens: &Tokenizer, rule: Rule, output: &mut Output) -> Result<()> {
        let job = self.job;
        let start = output.journal.clone();
        let reader =
            Reader { job, rule, shelf: self.shelf.clone(), start, halt: &self.client.halt };
        let sizes: Vec<u64> = job.sources.iter().map(|s| s.bytes.unwrap_or(0)).collect();
        let mut writer = Writer {
            job,
            before: total(sizes.iter().take(output.journal.source as usize)),
            sizes,
            output,
            surveyed: job.by_position || job.tokenizer == TokenizerChoice::Char,
            progress: Progress::default(),
        };
        let client = self.client;
        let (shelf, observer) = (&self.shelf, &mut *self.observer);
        let result = pipeline::run(
            tokens,
            (job.request.workers, &client.halt),
            |feed| reader.run(feed),
            |event| {
                let next = match event {
                    _ if client.is_stopped() => Ok(Next::Enough),
                    Event::Nothing => Ok(Next::Continue),
                    Event::Item(item) => writer.write(item, shelf),
                };
                writer.progress.received = client.received.load(Ordering::Relaxed);
                writer.progress.totals = writer.output.journal.totals;
                observer.progress(&writer.progress);
                next
            },
        );
        match result {
            Err(_) if client.is_stopped() => Ok(()),
            result => result,
        }
    }
}

/// The thread that reads.
struct Reader<'a> {
    job: &'a Job,
    rule: Rule,
    shelf: Shelf,
    start: Journal,
    halt: &'a AtomicBool,
}

impl Reader<'_> {
    fn run(self, feed: &mut Feed) -> Result<()> {
        let mut document = self.start.first_document;
        let mut ahead = Ahead::new(self.shelf.clone());
        for index in self.start.source as usize..self.job.sources.len() {
            let path = ahead.get(index)?;
            let is_first = index as u64 == self.start.source;
            let written = if is_first { self.start.batches } else { 0 };
            let mut count = 0;
            let mut give = |batch: Batch| {
                count += 1;
                if self.halt.load(Ordering::Relaxed) {
                    return Err(PrepareError::Usage("stopped".to_owned()));
                }
                if count <= written { Ok(()) } else { feed.give(Item::Batch(batch)) }
            };
            let layout = Layout {
                rule: self.rule,
                fixed: self.job.sources[index].split,
                end_lines: self.job.tokenizer == TokenizerChoice::Char && !self.job.by_position,
            };
            let mut segmenter = Segmenter::new(layout, document, &mut give);
            let result = read(&spec_of(self.job, index, &path), &mut segmenter);
            if result.is_err() && !self.halt.load(Ordering::Relaxed) {
                // Remove a damaged copy, so that the next call downloads it again.
                if let Locator::Url { .. } = self.job.sources[index].locator {
                    self.shelf.discard(index);
                }
            }
            result?;
            document = segmenter.finish()?;
            if count < written {
                let name = &self.job.sources[index].name;
                let what = format!("it counts {written} batches of {name}, which has {count}");
                return Err(journal::damaged(&self.job.request.out, &what));
            }
            feed.give(Item::SourceEnd(document))?;
        }
        Ok(())
    }
}

/// The writing side, which runs in the caller's thread.
struct Writer<'a> {
    job: &'a Job,
    output: &'a mut Output,
    /// Bytes of the sources before the current one.
    before: u64,
    sizes: Vec<u64>,
    /// Whether a resumed call has to survey the sources again.
    surveyed: bool,
    progress: Progress,
}

impl Writer<'_> {
    fn write(&mut self, item: Item<Encoded>, shelf: &Shelf) -> Result<Next> {
        let mut next = Next::Continue;
        match item {
            Item::Batch(encoded) => {
                next = self.write_batch(&encoded)?;
                // A call that resumes from here must not read another document.
                self.output.journal.complete = next == Next::Enough;
                self.output.journal.batches += 1;
                self.progress.bytes = self.before.saturating_add(encoded.position);
            }
            Item::SourceEnd(document) => {
                let journal = &mut self.output.journal;
                let size = self.sizes.get(journal.source as usize).copied().unwrap_or(0);
                self.before = self.before.saturating_add(size);
                self.progress.bytes = self.before;
                journal.source += 1;
                journal.batches = 0;
                journal.first_document = document;
            }
        }
        if self.output.save_sometimes()? && !self.job.request.keep_downloads && !self.surveyed {
            for index in 0..self.output.journal.source as usize {
                shelf.discard(index);
            }
        }
        Ok(next)
    }

    fn write_batch(&mut self, encoded: &Encoded) -> Result<Next> {
        let Encoded { train, val, ends, text, replaced, skipped, .. } = encoded;
        let most = self.job.request.max_tokens.unwrap_or(u64::MAX);
        let room = most.saturating_sub(self.output.journal.totals.train_tokens);
        let (mut train, mut val, mut text) = (&train[..], &val[..], *text);
        let mut next = Next::Continue;
        let mut counted = ends.len();
        if self.job.by_position {
            // The tail is for validation, so reading continues to the end.
            train = &train[..train.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        } else if let Some(last) = ends.iter().position(|end| end.train as u64 >= room) {
            let end = &ends[last];
            (train, val, text) = (&train[..end.train], &val[..end.val], end.text);
            counted = last + 1;
            next = Next::Enough;
        }
        self.output.append(Split::Train, train)?;
        self.output.append(Split::Val, val)?;
        let totals = &mut self.output.journal.totals;
        let of_train = ends[..counted].iter().filter(|end| end.split == Split::Train).count();
        totals.train_documents += of_train as u64;
        totals.val_documents += (counted - of_train) as u64;
        totals.text_bytes += text as u64;
        totals.replaced += replaced;
        totals.skipped += skipped;
        Ok(next)
    }
}

/// Sums sizes, saturating on overflow: a server may report any size.
fn total<'a>(sizes: impl Iterator<Item = &'a u64>) -> u64 {
    sizes.fold(0, |sum, size| sum.saturating_add(*size))
}

fn spec_of<'a>(job: &'a Job, index: usize, path: &'a Path) -> ReadSpec<'a> {
    let source = &job.sources[index];
    let Request { field, column, .. } = &job.request;
    let field = match source.format {
        Format::Parquet => &job.column,
        Format::Csv | Format::Tsv => column.as_ref().unwrap_or(field),
        Format::Jsonl | Format::Json | Format::Text => field,
    };
    ReadSpec {
        path,
        name: &source.name,
        format: source.format,
        packing: source.packing,
        field,
        ends_documents: !job.by_position,
    }
}

/// Detects JSON on standard input, which has no file extension.
fn recognise_standard_input(
    job: &mut Job,
    index: usize,
    observer: &mut dyn Observer,
) -> Result<()> {
    let path = job.request.out.join(crate::shelf::FOLDER).join(crate::shelf::STDIN);
    let shape = shape_of_file(&path, job.sources[index].packing)?;
    if job.recognise(index, shape) {
        let field = &job.request.field;
        observer.note(&format!(
            "standard input is JSON: the field '{field}' of each object is a document (--field \
             names another, --format text reads it as plain text)"
        ));
    }
    Ok(())
}

/// Copies standard input to disk and returns its checksum. A pipe can be read only once, and a
/// resumed call must find the same bytes.
fn keep_standard_input(job: &mut Job, index: usize, client: &Client) -> Result<String> {
    let folder = job.request.out.join(crate::shelf::FOLDER);
    std::fs::create_dir_all(&folder).map_err(PrepareError::io(&folder, "create the folder"))?;
    let path = folder.join(crate::shelf::STDIN);
    let writing = PrepareError::io(&path, "keep standard input");
    let mut file = File::create(&path).map_err(&writing)?;
    let limit = data::disk::file_limit();
    let input = standard_input()?;
    let mut hash = Sha256::new();
    let mut bytes = 0_u64;
    while !client.is_stopped() {
        let piece = match input.recv_timeout(GLANCE) {
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
            Ok(piece) => piece.map_err(PrepareError::io(Path::new("-"), "read standard input"))?,
        };
        if bytes == 0 {
            job.sources[index].packing = Packing::of_first_bytes(&piece);
        }
        hash.update(&piece);
        bytes = bytes.saturating_add(piece.len() as u64);
        disk::check_limit(&path, bytes, limit)?;
        file.write_all(&piece).map_err(&writing)?;
    }
    job.sources[index].bytes = Some(bytes);
    job.bytes = job.bytes.saturating_add(bytes);
    Ok(hex(&hash.finalize()))
}

/// Reads standard input in a separate thread, because the writer may be silent for a long time and
/// the user must be able to stop meanwhile.
fn standard_input() -> Result<Receiver<std::io::Result<Vec<u8>>>> {
    let (pieces, input) = sync_channel(2);
    let reading = move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; 256 << 10];
        loop {
            let piece = match stdin.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Ok(0) => return,
                Ok(count) => Ok(buffer[..count].to_vec()),
                Err(error) => Err(error),
            };
            if pieces.send(piece).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("stdin".to_owned());
    thread.spawn(reading).map_err(|error| pipeline::no_thread(&error))?;
    Ok(input)
}
