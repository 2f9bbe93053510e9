//! One thread reads, many encode, the caller's writes in order.
//!
//! Batches in flight are counted: the reader waits until one is written before it makes another
//! beyond the limit, so memory does not grow with the text, nor with a slow worker.

use crate::error::{PrepareError, Result};
use crate::segment::Batch;
use crate::tokens::Tokens;
use data::Split;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Most workers: beyond, the batches in flight alone could take a GiB.
pub const MOST_WORKERS: usize = 64;
/// Batches beside those in the workers' hands.
const SPARE: usize = 16;
/// How long the caller may go without a word.
const GLANCE: Duration = Duration::from_millis(100);

/// What goes through, in order.
pub enum Item<T> {
    /// Text, or what it became.
    Batch(T),
    /// A source is complete; the number of the next document.
    SourceEnd(u64),
}

/// The end of a document in a batch.
#[derive(Clone, Copy, Debug)]
pub struct DocumentEnd {
    /// The half it is in.
    pub split: Split,
    /// Tokens of the batch up to here, of either half.
    pub train: usize,
    /// As `train`.
    pub val: usize,
    /// Bytes of the batch's text up to here.
    pub text: usize,
}

/// Tokens of a batch.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Of the half that is trained on.
    pub train: Vec<u16>,
    /// Of the other.
    pub val: Vec<u16>,
    /// Ends of documents, in order.
    pub ends: Vec<DocumentEnd>,
    /// Bytes of text.
    pub text: usize,
    /// As in the batch.
    pub replaced: u64,
    /// As in the batch.
    pub skipped: u64,
    /// As in the batch.
    pub position: u64,
}

/// The reader's end.
pub struct Feed {
    permits: SyncSender<()>,
    jobs: SyncSender<(u64, Item<Batch>)>,
    index: u64,
}

/// The other end is gone: an error of the writer, or nobody wants more. Never shown.
fn nobody() -> PrepareError {
    PrepareError::Usage("stopped".to_owned())
}

/// A fault of ours, or of a library, in the middle of a text.
fn broken(who: &str) -> PrepareError {
    let what = "failed on this text; what was written is safe, please report it";
    PrepareError::source(who, what)
}

impl Feed {
    /// Hands on, waiting for room.
    ///
    /// # Errors
    ///
    /// When nobody wants more.
    pub fn give(&mut self, item: Item<Batch>) -> Result<()> {
        self.permits.send(()).map_err(|_| nobody())?;
        self.jobs.send((self.index, item)).map_err(|_| nobody())?;
        self.index += 1;
        Ok(())
    }
}

/// What the caller's function says to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More, please.
    GoOn,
    /// It is enough.
    Enough,
}

/// What comes to the caller's function.
pub enum Event {
    /// In order.
    Item(Item<Encoded>),
    /// Nothing came for a moment.
    Nothing,
}

/// Runs `read` in a thread of its own, encodes in `workers` threads, and calls `write` here. `halt`
/// is set when nobody wants more, so that the reader does not wait for what it would give.
///
/// # Errors
///
/// The writer's, a worker's or the reader's error; what came before it was written.
pub fn run(
    tokens: &Tokens,
    (workers, halt): (usize, &AtomicBool),
    read: impl FnOnce(&mut Feed) -> Result<()> + Send,
    mut write: impl FnMut(Event) -> Result<Next>,
) -> Result<()> {
    let workers = workers.clamp(1, MOST_WORKERS);
    let (permits, written) = sync_channel(workers + SPARE);
    let (jobs, queue) = sync_channel(workers + SPARE);
    let (results, finished) = channel();
    let queue = Mutex::new(queue);
    std::thread::scope(|scope| {
        let thread = || std::thread::Builder::new();
        // Workers first: without any, nothing has begun yet.
        let threads = team(workers, || {
            let (results, queue) = (results.clone(), &queue);
            let working = move || work(tokens, queue, |made| results.send(made).is_ok());
            thread().name("worker".to_owned()).spawn_scoped(scope, working)
        })?;
        drop(results);
        // Where it cannot start, its ends of the channels go with it, and the workers end.
        let reading = move || read(&mut Feed { permits, jobs, index: 0 });
        let reader = thread().name("reader".to_owned()).spawn_scoped(scope, reading);
        let reader = reader.map_err(|error| no_thread(&error))?;
        let outcome = in_order(&finished, &written, &mut write);
        if !matches!(outcome, Ok(Next::GoOn)) {
            halt.store(true, Ordering::Relaxed);
        }
        // Whoever still gives, gives to nobody from here on, and ends.
        drop((finished, written));
        for thread in threads {
            let _ = thread.join();
        }
        // The queue ends with its workers, so that the reader does not wait for room in it.
        while queue.lock().unwrap_or_else(PoisonError::into_inner).try_recv().is_ok() {}
        let read = reader.join().unwrap_or_else(|_| Err(broken("the reader")));
        match outcome {
            Ok(Next::Enough) => Ok(()),
            Ok(Next::GoOn) => read,
            Err(error) => Err(error),
        }
    })
}

/// As many threads as the system gives, up to `wanted`; fewer are slower, and do as well.
fn team<T>(wanted: usize, mut start: impl FnMut() -> io::Result<T>) -> Result<Vec<T>> {
    let mut threads = Vec::with_capacity(wanted);
    for _ in 0..wanted {
        match start() {
            Ok(thread) => threads.push(thread),
            Err(error) if threads.is_empty() => return Err(no_thread(&error)),
            Err(_) => break,
        }
    }
    Ok(threads)
}

/// No thread is to be had.
pub fn no_thread(error: &io::Error) -> PrepareError {
    let what = format!(
        "cannot start another thread ({error}); close other programs, or raise `ulimit -u` and \
         the memory limit"
    );
    PrepareError::System(what)
}

type Made = (u64, Result<Item<Encoded>>);

fn in_order(
    finished: &Receiver<Made>,
    written: &Receiver<()>,
    write: &mut impl FnMut(Event) -> Result<Next>,
) -> Result<Next> {
    let mut early: BTreeMap<u64, Result<Item<Encoded>>> = BTreeMap::new();
    let mut expected = 0;
    loop {
        match finished.recv_timeout(GLANCE) {
            Ok((index, made)) => {
                early.insert(index, made);
            }
            Err(RecvTimeoutError::Timeout) => {
                if write(Event::Nothing)? == Next::Enough {
                    return Ok(Next::Enough);
                }
            }
            Err(RecvTimeoutError::Disconnected) if early.is_empty() => return Ok(Next::GoOn),
            Err(RecvTimeoutError::Disconnected) => return Err(broken("a worker")),
        }
        while let Some(made) = early.remove(&expected) {
            let next = write(Event::Item(made?))?;
            expected += 1;
            let _ = written.recv();
            if next == Next::Enough {
                return Ok(next);
            }
        }
    }
}

/// Takes and encodes until there is nothing more, or nobody wants it.
fn work(tokens: &Tokens, queue: &Mutex<Receiver<(u64, Item<Batch>)>>, give: impl Fn(Made) -> bool) {
    let mut encoder = tokens.encoder();
    loop {
        let taken = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((index, item)) = taken else {
            return;
        };
        let made = match item {
            Item::SourceEnd(document) => Ok(Item::SourceEnd(document)),
            // A worker that died would leave a hole that nobody sees.
            Item::Batch(batch) => {
                let encoded = AssertUnwindSafe(|| encode(&mut encoder, tokens, &batch));
                catch_unwind(encoded)
                    .unwrap_or_else(|_| Err(broken("the tokenizer")))
                    .map(Item::Batch)
            }
        };
        if !give((index, made)) {
            return;
        }
    }
}

fn encode(
    encoder: &mut crate::tokens::Encoder<'_>,
    tokens: &Tokens,
    batch: &Batch,
) -> Result<Encoded> {
    let Batch { text, pieces, replaced, skipped, position } = batch;
    let mut made = Encoded {
        train: Vec::with_capacity(text.len() / 3),
        text: text.len(),
        replaced: *replaced,
        skipped: *skipped,
        position: *position,
        ..Encoded::default()
    };
    let mut start = 0;
    for piece in pieces {
        let out = match piece.split {
            Split::Train => &mut made.train,
            Split::Val => &mut made.val,
        };
        encoder.encode(&text[start..piece.end], out).map_err(|character| {
            let what = format!(
                "the text has {character:?}, which was not there when its characters were \
                 collected: it changed meanwhile; give the same command again"
            );
            PrepareError::Usage(what)
        })?;
        start = piece.end;
        if piece.ends_document {
            out.extend(tokens.end_of_text());
            let (train, val) = (made.train.len(), made.val.len());
            made.ends.push(DocumentEnd { split: piece.split, train, val, text: start });
        }
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_threads_do_and_none_is_an_error() {
        for (given, want) in [(9, Some(4)), (4, Some(4)), (1, Some(1)), (0, None)] {
            let mut left: u32 = given;
            let made = team(4, || {
                left = left.checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
                Ok(())
            });
            assert_eq!(made.ok().map(|made| made.len()), want, "{given}");
        }
    }

    /// The reader may be in the middle of a long download when a worker fails.
    #[test]
    fn a_worker_that_fails_ends_the_reader() {
        let tokens = Tokens::Char(data::CharTokenizer::new(vec!['a', 'b']).unwrap());
        let halt = AtomicBool::new(false);
        let read = |feed: &mut Feed| {
            let piece = crate::segment::Piece { end: 1, split: Split::Train, ends_document: true };
            let (text, pieces) = ("c".to_owned(), vec![piece]);
            feed.give(Item::Batch(Batch { text, pieces, ..Batch::default() }))?;
            let start = std::time::Instant::now();
            while !halt.load(Ordering::Relaxed) {
                assert!(start.elapsed() < Duration::from_secs(10), "nobody ended the reader");
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        };
        let start = std::time::Instant::now();
        let error = run(&tokens, (2, &halt), read, |_| Ok(Next::GoOn)).unwrap_err();
        assert!(error.to_string().contains("the text has 'c'"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    }
}
