//! One thread reads, many encode, and the caller's thread writes in order.
//!
//! The number of batches in flight is limited: at the limit, the reader waits until a batch is
//! written. So memory grows neither with the text nor with a slow worker.

use crate::error::{PrepareError, Result};
use crate::segment::Batch;
use data::Split;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokenizer::{Encoder, Tokenizer};

/// Most workers. With more, the batches in flight alone could take a GiB.
pub const MOST_WORKERS: usize = 64;
/// Batches in flight in addition to one for each worker.
const SPARE: usize = 16;
/// Longest time without a call of the caller's function.
const GLANCE: Duration = Duration::from_millis(100);

/// What passes through the pipeline, in order.
pub enum Item<T> {
    /// A batch of text, or its tokens.
    Batch(T),
    /// The end of a source, with the number of the next document.
    SourceEnd(u64),
}

/// The end of a document in a batch.
#[derive(Clone, Copy, Debug)]
pub struct DocumentEnd {
    /// The half that the document belongs to.
    pub split: Split,
    /// Training tokens of the batch up to here.
    pub train: usize,
    /// Validation tokens of the batch up to here.
    pub val: usize,
    /// Bytes of the batch's text up to here.
    pub text: usize,
}

/// Tokens of a batch.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Training tokens.
    pub train: Vec<u16>,
    /// Validation tokens.
    pub val: Vec<u16>,
    /// Ends of documents, in order.
    pub ends: Vec<DocumentEnd>,
    /// Bytes of text.
    pub text: usize,
    /// Same as in [`Batch`].
    pub replaced: u64,
    /// Same as in [`Batch`].
    pub skipped: u64,
    /// Same as in [`Batch`].
    pub position: u64,
}

/// The reader's side of the pipeline.
pub struct Feed {
    permits: SyncSender<()>,
    jobs: SyncSender<(u64, Item<Batch>)>,
    index: u64,
}

/// The receiver is gone, because the writer failed or has enough. This error is never shown.
fn nobody() -> PrepareError {
    PrepareError::Usage("stopped".to_owned())
}

/// A panic in our code or a library.
fn broken(who: &str) -> PrepareError {
    let what = "failed on this text; what was written is safe; please report this";
    PrepareError::source(who, what)
}

impl Feed {
    /// Sends an item, waiting while too many batches are in flight.
    ///
    /// # Errors
    ///
    /// When the receiver is gone.
    pub fn give(&mut self, item: Item<Batch>) -> Result<()> {
        self.permits.send(()).map_err(|_| nobody())?;
        self.jobs.send((self.index, item)).map_err(|_| nobody())?;
        self.index += 1;
        Ok(())
    }
}

/// What the caller's function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send the next item.
    Continue,
    /// Stop: there is enough.
    Enough,
}

/// What the caller's function receives.
pub enum Event {
    /// The next item, in order.
    Item(Item<Encoded>),
    /// Nothing arrived for a moment.
    Nothing,
}

/// Runs `read` in a thread of its own, encodes in `workers` threads, and calls `write` here. `halt`
/// is set when the writer is done, so that the reader stops waiting for its source.
///
/// # Errors
///
/// The error of the writer, a worker or the reader. Everything before it was written.
pub fn run(
    tokenizer: &Tokenizer,
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
        // Start the workers first: if none starts, nothing has to be undone.
        let threads = team(workers, || {
            let (results, queue) = (results.clone(), &queue);
            let working = move || work(tokenizer, queue, |made| results.send(made).is_ok());
            thread().name("worker".to_owned()).spawn_scoped(scope, working)
        })?;
        drop(results);
        // If it cannot start, its channel ends are dropped with it, and the workers end.
        let reading = move || read(&mut Feed { permits, jobs, index: 0 });
        let reader = thread().name("reader".to_owned()).spawn_scoped(scope, reading);
        let reader = reader.map_err(|error| no_thread(&error))?;
        let outcome = in_order(&finished, &written, &mut write);
        if !matches!(outcome, Ok(Next::Continue)) {
            halt.store(true, Ordering::Relaxed);
        }
        // From here on, every send fails, so the workers and the reader end.
        drop((finished, written));
        for thread in threads {
            let _ = thread.join();
        }
        // Empty the queue, so that the reader does not wait for room in it.
        while queue.lock().unwrap_or_else(PoisonError::into_inner).try_recv().is_ok() {}
        let read = reader.join().unwrap_or_else(|_| Err(broken("the reader")));
        match outcome {
            Ok(Next::Enough) => Ok(()),
            Ok(Next::Continue) => read,
            Err(error) => Err(error),
        }
    })
}

/// Starts up to `wanted` threads, as many as the system allows. Fewer are slower but work as well.
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

/// The error if no thread can be started.
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
            Err(RecvTimeoutError::Disconnected) if early.is_empty() => return Ok(Next::Continue),
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

/// Encodes batches until the queue ends or the receiver is gone.
fn work(
    tokenizer: &Tokenizer,
    queue: &Mutex<Receiver<(u64, Item<Batch>)>>,
    give: impl Fn(Made) -> bool,
) {
    let mut encoder = tokenizer.encoder();
    loop {
        let taken = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((index, item)) = taken else {
            return;
        };
        let made = match item {
            Item::SourceEnd(document) => Ok(Item::SourceEnd(document)),
            // A dead worker would lose its batch silently, so turn its panic into an error.
            Item::Batch(batch) => {
                let encoded = AssertUnwindSafe(|| encode(&mut encoder, tokenizer, &batch));
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

fn encode(encoder: &mut Encoder<'_>, tokenizer: &Tokenizer, batch: &Batch) -> Result<Encoded> {
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
                "the text has changed: {character:?} was not in it when its characters were \
                 collected; run the same command again"
            );
            PrepareError::Usage(what)
        })?;
        start = piece.end;
        if piece.ends_document {
            out.extend(tokenizer.end_of_text());
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
        let tokens = Tokenizer::Char(tokenizer::CharTokenizer::new(vec!['a', 'b']).unwrap());
        let halt = AtomicBool::new(false);
        let read = |feed: &mut Feed| {
            let piece = crate::segment::Piece { end: 1, split: Split::Train, ends_document: true };
            let (text, pieces) = ("c".to_owned(), vec![piece]);
            feed.give(Item::Batch(Batch { text, pieces, ..Batch::default() }))?;
            let start = std::time::Instant::now();
            while !halt.load(Ordering::Relaxed) {
                assert!(start.elapsed() < Duration::from_secs(10), "the reader was not stopped");
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        };
        let start = std::time::Instant::now();
        let error = run(&tokens, (2, &halt), read, |_| Ok(Next::Continue)).unwrap_err();
        assert!(error.to_string().contains("'c' was not in it"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    }
}
