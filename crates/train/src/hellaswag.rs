//! HellaSwag: which of several endings does the model find most likely? The file has one JSON
//! object per line, with `ctx`, `endings` and `label`.
//!
//! An ending is scored after its context as `" " + ending`, by the sum of its tokens' losses
//! (`acc`) and by their mean (`acc_norm`, normalised by the number of tokens). Of
//! equals the first counts.

use crate::engine::Rows;
use crate::error::TrainError;
use crate::scoring::{Batch, Source};
use checkpoint::bounded_json;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use tokenizer::Tokenizer;

/// Most bytes of a line; the longest in use has two thousand.
const MOST_LINE: u64 = 1 << 20;
/// Memory for a parsed line.
const LINE_VALUES: usize = 8 << 20;

/// Most endings of a question; HellaSwag's have four.
const MOST_ENDINGS: usize = 100;

/// An ending after its context. The endings of a question share the context: many short ones after
/// a long one would take far more memory than the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ending {
    context: Arc<[i32]>,
    own: Vec<i32>,
    /// Tokens of the context that are left out, from its beginning.
    cut: usize,
}

impl Ending {
    /// An ending of which at most `most` tokens are kept, with the context.
    fn new(context: &Arc<[i32]>, mut own: Vec<i32>, most: usize) -> Ending {
        own.drain(..own.len().saturating_sub(most));
        own.shrink_to_fit();
        let cut = (context.len() + own.len()).saturating_sub(most);
        Ending { context: Arc::clone(context), own, cut }
    }

    /// Tokens of the row.
    fn len(&self) -> usize {
        self.context.len() - self.cut + self.own.len()
    }

    /// Where the ending begins; at least 1.
    fn first(&self) -> usize {
        (self.context.len() - self.cut).max(1)
    }

    fn ids(&self) -> impl Iterator<Item = i32> {
        self.context[self.cut..].iter().chain(&self.own).copied()
    }
}

/// A file of questions, tokenised.
#[derive(Debug, Default)]
pub struct Questions {
    endings: Vec<Ending>,
    /// For each question where its endings end, and which of them is right.
    questions: Vec<(usize, usize)>,
}

impl Questions {
    /// Reads a file. Contexts are cut at their beginning so that a row has at most `positions`
    /// inputs.
    pub fn read(
        path: &Path,
        tokenizer: &Tokenizer,
        positions: u64,
    ) -> Result<Questions, TrainError> {
        let failed = |error: std::io::Error| TrainError::Io {
            path: path.to_path_buf(),
            doing: "read the questions",
            error,
            advice: "--hellaswag needs a file of JSON lines",
        };
        if !path.metadata().map_err(failed)?.is_file() {
            return Err(failed(std::io::Error::other("it is not a regular file")));
        }
        let mut file = BufReader::new(std::fs::File::open(path).map_err(failed)?);
        let mut questions = Questions::default();
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read = file.by_ref().take(MOST_LINE + 1).read_until(b'\n', &mut line);
            if read.map_err(failed)? == 0 {
                break;
            }
            let wrong = |what: String| TrainError::Text {
                what: format!("{}: line {number} {what}", path.display()),
            };
            if line.len() as u64 > MOST_LINE {
                return Err(wrong(format!("has more than {MOST_LINE} bytes")));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                questions.add(&line, tokenizer, positions as usize).map_err(wrong)?;
            }
        }
        if questions.questions.is_empty() {
            let what = format!("{}: there are no questions in it", path.display());
            return Err(TrainError::Text { what });
        }
        Ok(questions)
    }

    fn add(&mut self, line: &[u8], tokenizer: &Tokenizer, positions: usize) -> Result<(), String> {
        let json = bounded_json::parse(line, LINE_VALUES)
            .map_err(|error| format!("is not JSON: {error}"))?;
        let context = json.get("ctx").and_then(Value::as_str).ok_or("has no text 'ctx'")?;
        let endings = json.get("endings").and_then(Value::as_array);
        let endings = endings.filter(|all| !all.is_empty()).ok_or("has no list 'endings'")?;
        if endings.len() > MOST_ENDINGS {
            return Err(format!("has {} endings; at most {MOST_ENDINGS} are read", endings.len()));
        }
        let label = match json.get("label") {
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(label) => label.as_u64(),
            None => None,
        };
        let label = label.and_then(|label| usize::try_from(label).ok());
        let label = label.filter(|label| *label < endings.len());
        let label = label.ok_or_else(|| {
            format!("has no 'label' from 0 to {}, the number of an ending", endings.len() - 1)
        })?;
        let context = encode(tokenizer, context)?;
        let most = positions.saturating_add(1);
        let context: Arc<[i32]> = context[context.len().saturating_sub(most)..].into();
        for ending in endings {
            let ending = ending.as_str().ok_or("has an ending that is no text")?;
            let ending = encode(tokenizer, &format!(" {ending}"))?;
            self.endings.push(Ending::new(&context, ending, most));
        }
        self.questions.push((self.endings.len(), label));
        Ok(())
    }

    /// Inputs of the longest row.
    pub fn longest(&self) -> u64 {
        self.endings.iter().map(Ending::len).max().unwrap_or(0).max(2) as u64 - 1
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.questions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Result<Vec<i32>, String> {
    let mut ids = Vec::new();
    tokenizer.encoder().encode(text, &mut ids).map_err(|character| {
        format!("has {character:?}, which is not one of the characters that the model knows")
    })?;
    Ok(ids.into_iter().map(i32::from).collect())
}

/// How many questions were answered rightly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Questions that were answered.
    pub questions: u64,
    /// Right by the sum of the losses.
    pub right: u64,
    /// Right by their mean.
    pub right_normalised: u64,
}

/// Asks the questions.
pub struct Asked<'a> {
    questions: &'a Questions,
    next: usize,
    /// The summed loss of each ending so far.
    losses: Vec<f32>,
}

impl<'a> Asked<'a> {
    /// From the first question on.
    pub fn new(questions: &'a Questions) -> Asked<'a> {
        Asked { questions, next: 0, losses: Vec::new() }
    }

    /// The share of the rows that were filled into batches.
    pub fn share(&self) -> f64 {
        self.next as f64 / self.questions.endings.len().max(1) as f64
    }

    /// The answers to all questions whose endings were scored.
    pub fn answers(&self) -> Answers {
        let mut answers = Answers::default();
        let mut start = 0;
        for &(end, label) in &self.questions.questions {
            let Some(losses) = self.losses.get(start..end) else { break };
            let endings = &self.questions.endings[start..end];
            let scored = |ending: &Ending| (ending.len() - ending.first()).max(1) as f32;
            let means: Vec<f32> =
                losses.iter().zip(endings).map(|(loss, ending)| loss / scored(ending)).collect();
            answers.questions += 1;
            answers.right += u64::from(lowest(losses) == Some(label));
            answers.right_normalised += u64::from(lowest(&means) == Some(label));
            start = end;
        }
        answers
    }
}

/// The place of the first of the lowest numbers.
fn lowest(losses: &[f32]) -> Option<usize> {
    (0..losses.len()).min_by(|&one, &other| losses[one].total_cmp(&losses[other]))
}

impl Source for Asked<'_> {
    fn fill(&mut self, rows: &mut Rows) -> Result<Batch, TrainError> {
        let mut batch = Batch::default();
        let places = rows.tokens.chunks_mut(rows.positions);
        for (tokens, targets) in places.zip(rows.targets.chunks_mut(rows.positions)) {
            targets.fill(-1);
            let Some(ending) = self.questions.endings.get(self.next) else { continue };
            self.next += 1;
            batch.rows += 1;
            let inputs = ending.len().saturating_sub(1).min(tokens.len());
            tokens.fill(0);
            tokens[..inputs].iter_mut().zip(ending.ids()).for_each(|(place, id)| *place = id);
            let first = ending.first().min(inputs + 1);
            let scored = targets[first - 1..inputs].iter_mut();
            scored.zip(ending.ids().skip(first)).for_each(|(place, id)| *place = id);
            batch.tokens += (inputs + 1 - first) as u64;
        }
        Ok(batch)
    }

    fn take(&mut self, _: Batch, losses: &[f32]) {
        self.losses.extend_from_slice(losses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"ctx": "Hello", "endings": ["world", "a b c"], "label": 1, "ind": 4}"#,
        "\n\n",
        r#"{"ctx": "", "endings": ["one"], "label": "0"}"#,
    );

    fn parsed(lines: &str, positions: u64) -> Result<Questions, TrainError> {
        let name = format!("fitgpt-hellaswag-{}-{positions}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, lines).unwrap();
        let questions = Questions::read(&path, &Tokenizer::Gpt2, positions);
        std::fs::remove_file(&path).unwrap();
        questions
    }

    #[test]
    fn rows_score_the_ending_alone() {
        let questions = parsed(LINES, 8).unwrap();
        assert_eq!((questions.len(), questions.longest()), (2, 3));
        let mut asked = Asked::new(&questions);
        let mut rows = Rows::new(4, 3).unwrap();
        let batch = asked.fill(&mut rows).unwrap();
        assert_eq!(batch, Batch { rows: 3, tokens: 4, bytes: 0 });
        // "Hello", then " world"; " a", " b", " c"; nothing stands before " one".
        assert_eq!(rows.tokens, [15496, 0, 0, 15496, 257, 275, 0, 0, 0, 0, 0, 0]);
        assert_eq!(rows.targets, [995, -1, -1, 257, 275, 269, -1, -1, -1, -1, -1, -1]);
        assert_eq!(asked.fill(&mut rows).unwrap().rows, 0);
    }

    #[test]
    fn both_ways_to_answer() {
        let questions = parsed(LINES, 9).unwrap();
        let mut asked = Asked::new(&questions);
        assert_eq!(asked.answers(), Answers::default());
        // The second ending has three tokens: its sum is higher, its mean is lower.
        asked.take(Batch::default(), &[2.0, 3.0]);
        assert_eq!(asked.answers(), Answers { questions: 1, right: 0, right_normalised: 1 });
        asked.take(Batch::default(), &[0.0]);
        assert_eq!(asked.answers(), Answers { questions: 2, right: 1, right_normalised: 2 });
    }

    #[test]
    fn long_contexts_lose_their_beginning() {
        let question = parsed(LINES, 2).unwrap();
        let ending = &question.endings[1];
        assert_eq!(ending.ids().collect::<Vec<i32>>(), [257, 275, 269]);
        assert_eq!((ending.len(), ending.first(), ending.own.len()), (3, 1, 3));
        let longer = parsed(LINES, 3).unwrap();
        assert_eq!(longer.endings[1].ids().collect::<Vec<i32>>(), [15496, 257, 275, 269]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        let many =
            format!(r#"{{"ctx": "a", "endings": [{}"b"], "label": 0}}"#, "\"\",".repeat(199));
        for (line, want) in [
            ("[", "line 1 is not JSON"),
            ("\n{}", "line 2 has no text 'ctx'"),
            (r#"{"ctx": "a"}"#, "has no list 'endings'"),
            (r#"{"ctx": "a", "endings": []}"#, "has no list 'endings'"),
            (r#"{"ctx": "a", "endings": ["b", "c"], "label": 2}"#, "'label' from 0 to 1"),
            (r#"{"ctx": "a", "endings": ["b"], "label": ""}"#, "'label' from 0 to 0"),
            (r#"{"ctx": "a", "endings": [1], "label": 0}"#, "an ending that is no text"),
            ("\n", "no questions"),
            (&many, "has 200 endings; at most 100 are read"),
        ] {
            let error = parsed(line, 7).unwrap_err().to_string();
            assert!(error.contains(want) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
