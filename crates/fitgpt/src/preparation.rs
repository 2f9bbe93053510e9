//! What the user sees while a data set is prepared: a progress bar on a terminal, an occasional
//! line in a pipe; and the summary at the end.

use crate::numbers::{duration, grouped, short};
use crate::{byte_bar, screen};
use indicatif::ProgressBar;
use prepare::{Job, Locator, Observer, Progress, TokenizerChoice, Totals};
use std::time::{Duration, Instant};

/// Pause between two lines in a pipe.
const PAUSE: Duration = Duration::from_secs(5);

/// Below this many columns there is no room for a bar next to its message.
const NARROW: usize = 70;

/// Shows the progress of a preparation.
pub struct Preparation {
    bar: ProgressBar,
    /// Bytes of all sources; none if a size is unknown.
    whole: Option<u64>,
    began: Option<Beginning>,
    last_line: Instant,
}

/// Where and when this process began to read.
#[derive(Clone, Copy)]
struct Beginning {
    surveying: bool,
    at: Instant,
    bytes: u64,
    text: u64,
}

impl Preparation {
    /// Shows a bar if standard output is a terminal.
    pub fn new(job: &Job) -> Preparation {
        let whole = job.sizes_known.then_some(job.bytes);
        let shown = screen::is_terminal() && whole.is_some();
        let bar = byte_bar::bar(whole.unwrap_or(0), shown, 5, NARROW);
        Preparation { bar, whole, began: None, last_line: Instant::now() }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn words(&self, began: Beginning, progress: &Progress) -> String {
        let seconds = began.at.elapsed().as_secs_f64().max(1e-3);
        let read = progress.bytes.saturating_sub(began.bytes) as f64;
        let left = self.whole.map(|whole| whole.saturating_sub(progress.bytes) as f64);
        let left = match left {
            Some(left) if read > 0.0 && seconds > 1.0 => {
                format!("  {} left", duration(left / read * seconds))
            }
            _ => String::new(),
        };
        if progress.surveying {
            return format!("counting characters  {:.0} MB/s{left}", read / seconds / 1e6);
        }
        let text = progress.totals.text_bytes.saturating_sub(began.text) as f64;
        let tokens = progress.totals.train_tokens + progress.totals.val_tokens;
        let received = match progress.received {
            0 => String::new(),
            bytes => format!("  {} downloaded", size(bytes)),
        };
        let rate = text / seconds / 1e6;
        format!("{} tokens  {rate:.1} MB/s{received}{left}", short(tokens as f64))
    }
}

impl Observer for Preparation {
    fn note(&mut self, text: &str) {
        screen::notice(text);
    }

    fn progress(&mut self, progress: &Progress) {
        let (bytes, text) = (progress.bytes, progress.totals.text_bytes);
        let surveying = progress.surveying;
        let fresh = Beginning { surveying, at: Instant::now(), bytes, text };
        let began = match self.began {
            Some(began) if began.surveying == surveying => began,
            _ => *self.began.insert(fresh),
        };
        if !self.bar.is_hidden() {
            self.bar.set_position(bytes);
            self.bar.set_message(self.words(began, progress));
        } else if self.last_line.elapsed() >= PAUSE {
            self.last_line = Instant::now();
            let share = self.whole.filter(|whole| *whole > 0).map(|whole| 100 * bytes / whole);
            let share = share.map_or_else(String::new, |share| format!("{share}%  "));
            screen::line(&format!("{share}{}", self.words(began, progress)));
        }
    }
}

/// `1.12 MB`, `28.5 GB`.
pub fn size(bytes: u64) -> String {
    match bytes as f64 {
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.2} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kB", b / 1e3),
        b => format!("{b:.0} bytes"),
    }
}

/// What will be done, printed before it starts.
pub fn introduction(job: &Job) -> String {
    let count = job.sources.len();
    let s = if count == 1 { "" } else { "s" };
    let known = if job.sizes_known { size(job.bytes) } else { "of unknown size".to_owned() };
    let tokenizer = match &job.tokenizer {
        TokenizerChoice::Gpt2 => "GPT-2's BPE".to_owned(),
        TokenizerChoice::Char => "characters".to_owned(),
        TokenizerChoice::Json(path) => path.display().to_string(),
    };
    let is_stdin = job.sources.iter().any(|source| source.locator == Locator::Stdin);
    let split = match job.by_position {
        // Standard input may turn out to be documents.
        true if is_stdin && job.request.format.is_none() => String::new(),
        true => format!("; the last {} % of the characters are val", percent(job.val)),
        false => format!("; {} % of the documents are val", percent(job.val)),
    };
    let mut text = format!("{count} file{s}, {known}; {tokenizer}{split}\n");
    if !job.left_out.is_empty() {
        let count = job.left_out.len();
        text += &format!("{count} files are skipped because they are not text\n");
    }
    text
}

/// A percentage without trailing zeros.
fn percent(share: f64) -> String {
    let text = format!("{:.4}", 100.0 * share);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What was done.
pub fn summary(totals: &Totals, seconds: Option<f64>) -> String {
    let Totals { train_tokens, val_tokens, train_documents, val_documents, .. } = *totals;
    let tokens = train_tokens + val_tokens;
    let row = |name: &str, said: String| format!("{name:<16}{said}\n");
    let mut text = String::new();
    let all = train_documents + val_documents;
    if all > 0 {
        let all = grouped(all);
        let (train, val) = (grouped(train_documents), grouped(val_documents));
        text += &row("documents", format!("{all} ({train} train, {val} val)"));
    }
    let per_token = totals.text_bytes as f64 / tokens.max(1) as f64;
    text += &row("text", format!("{}, {per_token:.2} bytes per token", size(totals.text_bytes)));
    text += &row("train.bin", format!("{} tokens", grouped(train_tokens)));
    text += &row("val.bin", format!("{} tokens", grouped(val_tokens)));
    if totals.replaced > 0 {
        let count = grouped(totals.replaced);
        text += &row("invalid UTF-8", format!("{count} sequences became U+FFFD"));
    }
    if totals.skipped > 0 {
        let count = grouped(totals.skipped);
        text += &row("skipped", format!("{count} documents without text"));
    }
    if let Some(seconds) = seconds {
        text += &row("took", duration(seconds));
    }
    text
}

/// A warning if there is too little text for a useful validation loss, with what to do.
pub fn few_val_tokens(job: &Job, totals: &Totals) -> Option<String> {
    let (tokens, enough) = (totals.val_tokens, job.enough_val());
    if tokens > totals.train_tokens && totals.val_documents > 0 {
        return Some(
            "val.bin is larger than train.bin: the first document is always used for validation. \
             Join the files into one text, or put a short one first."
                .to_owned(),
        );
    }
    if tokens >= enough {
        return None;
    }
    let help = match job.larger_val(totals) {
        Some(share) => {
            format!("Prepare it again with --val {share} --overwrite, or give more text.")
        }
        None => "Even half of this text would be too little: give more text.".to_owned(),
    };
    Some(format!(
        "val.bin has only {} tokens. With fewer than {} the validation loss is mostly noise. \
         {help}",
        grouped(tokens),
        grouped(enough)
    ))
}
