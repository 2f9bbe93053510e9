//! Turns the bytes of documents into batches of valid text, split where a split changes no token.
//!
//! Readers push bytes and ends of documents; batches of about a mebibyte come out. A batch depends
//! only on the text, never on how it arrived, so a second run makes the same batches. No document
//! is held as a whole. Only a word or white space longer than [`WINDOW`] is split inside; its
//! tokens may then differ from those of the whole word.

use crate::error::Result;
use crate::split::{Rule, of_document};
use data::Split;
use tokenizer::last_safe_cut;

/// Most bytes of a piece.
pub const WINDOW: usize = 128 << 10;
/// A batch with this many bytes is full.
pub const BATCH: usize = 1 << 20;
/// A batch with this many pieces is full, because documents may be empty.
const PIECES: usize = 1 << 16;

/// A part of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it ends in the batch's text.
    pub end: usize,
    /// The half that it belongs to.
    pub split: Split,
    /// Whether it is the last piece of its document.
    pub ends_document: bool,
}

/// Text for one worker.
#[derive(Debug, Default)]
pub struct Batch {
    /// The text of all pieces.
    pub text: String,
    /// Its pieces, in order.
    pub pieces: Vec<Piece>,
    /// How many U+FFFD replaced invalid UTF-8.
    pub replaced: u64,
    /// Documents without text that were skipped.
    pub skipped: u64,
    /// Bytes of the source file read so far, as stored on disk.
    pub position: u64,
}

/// Receives the documents that a reader finds.
pub trait Sink {
    /// More bytes of the current document.
    fn bytes(&mut self, bytes: &[u8]) -> Result<()>;
    /// The current document is complete.
    fn end_document(&mut self) -> Result<()>;
    /// A document without text (null) was skipped.
    fn skip_document(&mut self);
    /// The reader replaced something that is not text by U+FFFD.
    fn replaced(&mut self);
    /// The number of bytes of the source file read so far.
    fn position(&mut self, bytes: u64);
}

/// Turns bytes into text. Invalid UTF-8 becomes U+FFFD, as in `String::from_utf8_lossy`, even if a
/// character is spread over two calls.
#[derive(Debug, Default)]
pub struct Cleaner {
    held: Vec<u8>,
    /// Replacements made so far.
    pub replaced: u64,
}

impl Cleaner {
    /// Appends the text of `bytes` to `out`, except for an incomplete character at the end.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        while !self.held.is_empty() && !bytes.is_empty() {
            self.held.push(bytes[0]);
            bytes = &bytes[1..];
            let held = std::mem::take(&mut self.held);
            self.take(&held, out);
        }
        self.take(bytes, out);
    }

    /// Ends the text. An incomplete character becomes one replacement.
    pub fn finish(&mut self, out: &mut String) {
        if !std::mem::take(&mut self.held).is_empty() {
            self.replaced += 1;
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn take(&mut self, mut bytes: &[u8], out: &mut String) {
        loop {
            match std::str::from_utf8(bytes) {
                Ok(text) => return out.push_str(text),
                Err(error) => {
                    let (good, rest) = bytes.split_at(error.valid_up_to());
                    out.push_str(std::str::from_utf8(good).unwrap_or_default());
                    let Some(bad) = error.error_len() else {
                        return self.held.extend(rest);
                    };
                    self.replaced += 1;
                    out.push(char::REPLACEMENT_CHARACTER);
                    bytes = &rest[bad..];
                }
            }
        }
    }
}

/// How documents end and which half they go to.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The rule that splits the text into halves.
    pub rule: Rule,
    /// The half of all documents of this source, if the source determines it.
    pub fixed: Option<Split>,
    /// Whether to append a missing line feed to each document. Character tokenizers need this,
    /// because they have no id that ends a document.
    pub end_lines: bool,
}

/// Makes batches and passes them on.
pub struct Segmenter<'a> {
    layout: Layout,
    /// Number of the next document, counted over all sources.
    document: u64,
    /// Characters placed so far, if this is one text.
    characters: u64,
    cleaner: Cleaner,
    pending: String,
    batch: Batch,
    give: &'a mut dyn FnMut(Batch) -> Result<()>,
}

impl<'a> Segmenter<'a> {
    /// A segmenter for one source, whose first document has number `document`.
    pub fn new(
        layout: Layout,
        document: u64,
        give: &'a mut dyn FnMut(Batch) -> Result<()>,
    ) -> Self {
        let (cleaner, pending) = (Cleaner::default(), String::new());
        Self { layout, document, characters: 0, cleaner, pending, batch: Batch::default(), give }
    }

    /// Passes on what is left; returns the number of the next document.
    pub fn finish(mut self) -> Result<u64> {
        if let Rule::Position { .. } = self.layout.rule {
            self.cleaner.finish(&mut self.pending);
            self.cut_windows()?;
            let rest = std::mem::take(&mut self.pending);
            self.place(&rest, false)?;
            self.document += 1;
        }
        self.hand_on()?;
        Ok(self.document)
    }

    fn hand_on(&mut self) -> Result<()> {
        let position = self.batch.position;
        self.batch.replaced = std::mem::take(&mut self.cleaner.replaced);
        if self.batch.pieces.is_empty() && self.batch.replaced + self.batch.skipped == 0 {
            return Ok(());
        }
        let next = Batch { position, ..Batch::default() };
        (self.give)(std::mem::replace(&mut self.batch, next))
    }

    /// Places full windows of the pending text.
    fn cut_windows(&mut self) -> Result<()> {
        let mut start = 0;
        while self.pending.len() - start >= WINDOW {
            let window = &self.pending[start..self.pending.floor_char_boundary(start + WINDOW)];
            let cut = last_safe_cut(window).unwrap_or(window.len());
            let piece = window[..cut].to_owned();
            self.place(&piece, false)?;
            start += cut;
        }
        self.pending.drain(..start);
        Ok(())
    }

    /// Puts a part of a document into the batch.
    fn place(&mut self, text: &str, ends_document: bool) -> Result<()> {
        let split = match (self.layout.fixed, self.layout.rule) {
            (Some(split), _) => split,
            (None, Rule::Documents { seed, share }) => of_document(seed, share, self.document),
            (None, Rule::Position { train }) => {
                return self.place_by_position(text, train);
            }
        };
        self.add(text, split, ends_document)
    }

    fn place_by_position(&mut self, text: &str, train: u64) -> Result<()> {
        let room = train.saturating_sub(self.characters);
        let count = text.chars().count() as u64;
        self.characters += count;
        let cut = match count <= room {
            true => text.len(),
            false => text.char_indices().nth(room as usize).map_or(text.len(), |(at, _)| at),
        };
        if cut > 0 {
            self.add(&text[..cut], Split::Train, false)?;
        }
        if cut < text.len() {
            self.add(&text[cut..], Split::Val, false)?;
        }
        Ok(())
    }

    fn add(&mut self, text: &str, split: Split, ends_document: bool) -> Result<()> {
        self.batch.text.push_str(text);
        let end = self.batch.text.len();
        self.batch.pieces.push(Piece { end, split, ends_document });
        if end >= BATCH || self.batch.pieces.len() >= PIECES {
            self.hand_on()?;
        }
        Ok(())
    }
}

impl Sink for Segmenter<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        // In steps, so that a document that arrives in one call is not copied at once.
        for part in bytes.chunks(WINDOW) {
            self.cleaner.push(part, &mut self.pending);
            self.cut_windows()?;
        }
        Ok(())
    }

    fn end_document(&mut self) -> Result<()> {
        self.cleaner.finish(&mut self.pending);
        if self.layout.end_lines && !self.pending.ends_with('\n') {
            self.pending.push('\n');
        }
        self.cut_windows()?;
        let rest = std::mem::take(&mut self.pending);
        self.place(&rest, true)?;
        self.document += 1;
        self.pending = rest;
        self.pending.clear();
        Ok(())
    }

    fn skip_document(&mut self) {
        self.batch.skipped += 1;
    }

    fn replaced(&mut self) {
        self.cleaner.replaced += 1;
    }

    fn position(&mut self, bytes: u64) {
        self.batch.position = bytes;
    }
}
