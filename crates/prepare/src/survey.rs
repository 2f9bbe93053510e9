//! A first pass over the text, if the second pass needs to know all of it: the number of characters
//! (to split one text by position) or the set of characters (for a character tokenizer).

use crate::error::{PrepareError, Result};
use crate::readers::{ReadSpec, read};
use crate::segment::{Cleaner, Sink};
use tokenizer::CharTokenizer;

/// What the first pass has found.
pub struct Survey<'a> {
    /// Total number of characters.
    pub characters: u64,
    present: Vec<bool>,
    wants_set: bool,
    end_lines: bool,
    cleaner: Cleaner,
    text: String,
    progress: &'a mut dyn FnMut(u64) -> Result<()>,
    /// Bytes of the sources before the current one.
    before: u64,
    position: u64,
}

impl<'a> Survey<'a> {
    /// `wants_set` collects the set of characters; `end_lines` is as in `Layout`.
    pub fn new(
        wants_set: bool,
        end_lines: bool,
        progress: &'a mut dyn FnMut(u64) -> Result<()>,
    ) -> Survey<'a> {
        let present = vec![false; if wants_set { char::MAX as usize + 1 } else { 0 }];
        let (cleaner, text) = (Cleaner::default(), String::new());
        Survey {
            characters: 0,
            present,
            wants_set,
            end_lines,
            cleaner,
            text,
            progress,
            before: 0,
            position: 0,
        }
    }

    /// Adds a source.
    ///
    /// # Errors
    ///
    /// The reader's.
    pub fn add(&mut self, spec: &ReadSpec<'_>) -> Result<()> {
        read(spec, self)?;
        self.cleaner.finish(&mut self.text);
        self.count();
        self.before = self.before.saturating_add(std::mem::take(&mut self.position));
        Ok(())
    }

    /// The characters in code point order, like Python's `sorted(set(text))`.
    ///
    /// # Errors
    ///
    /// When there are none, or too many.
    pub fn table(&self) -> Result<CharTokenizer> {
        let all = (0..=char::MAX as u32).filter_map(char::from_u32);
        let found: Vec<char> = all.filter(|&c| self.present[c as usize]).collect();
        let count = found.len();
        if count == 0 {
            return Err(PrepareError::Usage("the text is empty".to_owned()));
        }
        CharTokenizer::new(found).ok_or_else(|| {
            let what = format!(
                "the text has {count} different characters, but token files hold 65536 ids; use \
                 --tokenizer gpt2"
            );
            PrepareError::Usage(what)
        })
    }

    fn count(&mut self) {
        self.characters += self.text.chars().count() as u64;
        if self.wants_set {
            for character in self.text.chars() {
                self.present[character as usize] = true;
            }
        }
        self.text.clear();
    }
}

impl Sink for Survey<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(1 << 18) {
            self.cleaner.push(part, &mut self.text);
            self.count();
        }
        (self.progress)(self.before.saturating_add(self.position))
    }

    fn end_document(&mut self) -> Result<()> {
        self.cleaner.finish(&mut self.text);
        if self.end_lines {
            self.text.push('\n');
        }
        self.count();
        Ok(())
    }

    fn skip_document(&mut self) {}

    fn replaced(&mut self) {}

    fn position(&mut self, bytes: u64) {
        self.position = bytes;
    }
}
