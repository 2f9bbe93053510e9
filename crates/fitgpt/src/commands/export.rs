//! `fitgpt export`: writes a trained model as a file of another program, or as our own.

use super::{INTERRUPTED, line};
use crate::byte_bar::ByteBar;
use crate::flags::{FlagSet, flags};
use crate::invocation::program;
use crate::model_name::{self, Named};
use crate::numbers::{grouped, short};
use crate::preparation::size;
use crate::screen::show;
use crate::{interrupt, screen};
use ::plan::ops::GeluKind;
use ::train::TrainError;
use ::train::export::Export;
use ::train::found;
use interop::{Existing, ExportError, ExportModel, Parents, Precision, gguf, hf};
use spec::shell::quoted;
use spec::{Gpt2, SpecError, Values, words};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use tokenizer::Tokenizer;

words! {
    /// The formats.
    pub enum Format {
        /// A folder for `transformers`.
        Hf = "hf",
        /// A file for llama.cpp and Ollama.
        Gguf = "gguf",
        /// nanoGPT's checkpoint.
        Ckpt = "ckpt",
        /// Our own.
        Native = "native",
    }
}

words! {
    /// The number formats of weights.
    pub enum Dtype {
        /// 32 bits.
        Float32 = "float32",
        /// IEEE's 16 bits.
        Float16 = "float16",
        /// The upper half of 32 bits.
        BFloat16 = "bfloat16",
    }
}

flags! {
    /// The flags of `export`.
    pub struct Flags {
        /// the format
        to: Option<String> = "--to", "FORMAT" Values::Words(Format::WORDS);
        /// the folder (hf) or file to write
        out: Option<String> = "--out", "PATH" Values::File;
        /// number format of the weights, not for native; default float32
        dtype: Option<String> = "--dtype", "DTYPE" Values::Words(Dtype::WORDS);
        /// replace what is at PATH; a folder only if it holds nothing but a model
        overwrite: bool = "--overwrite";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "export",
    about: "write a trained model for transformers, llama.cpp, Ollama or nanoGPT",
    text: &[
        "Writes a trained model as a file of another program, with its tokenizer. hf is a folder \
         that transformers loads, gguf a file for llama.cpp and Ollama, ckpt nanoGPT's ckpt.pt, \
         native a checkpoint of fitgpt. The run may go on meanwhile. PATH appears when it is \
         complete, or not at all.",
    ],
    usage: &[line("fitgpt export CHECKPOINT|OUT_DIR --to FORMAT --out PATH [flags]", "")],
    examples: &[
        line("fitgpt export out --to hf --out my-model", ""),
        line("fitgpt export out --to gguf --out my-model.gguf --dtype float16", ""),
        line("fitgpt export out --to ckpt --out out-nanogpt/ckpt.pt", "moments included"),
        line("fitgpt export out/last.safetensors --to hf --out my-model", "one checkpoint"),
        line("fitgpt export my-model --to native --out again.safetensors", "and back"),
    ],
    notes: &["From a run's folder it takes best.safetensors, or last.safetensors if there is no \
         best, or nanoGPT's ckpt.pt if it is newer. A folder of transformers is read, too."],
    lists_data_sets: false,
    arguments: &[Values::File],
    flags: Flags::TABLE,
    closing: &[],
    keys: None,
    run,
};

/// What was asked for.
struct Request {
    from: String,
    to: Format,
    out: PathBuf,
    precision: Precision,
    existing: Existing,
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, names) = Flags::read(arguments)?;
    let request = request(&flags, &names)?;
    match request.to {
        Format::Hf => hf::check_folder(&request.out, request.existing)?,
        Format::Gguf | Format::Ckpt | Format::Native => {
            interop::check_file(&request.out, request.existing)?
        }
    }
    if found::is_file_of_run(&request.out) {
        let advice = "it is a checkpoint of the run in that folder; give another --out".to_owned();
        return Err(ExportError::Exists { path: request.out, advice }.into());
    }
    let mut export = Export::open(&model_name::path_of(&request.from, Gpt2::WORDS)?)?;
    if let (Format::Gguf, Some(why)) = (request.to, &export.no_tokenizer) {
        let what = format!("{why}; a GGUF file needs a tokenizer, --to hf does not");
        return Err(ExportError::Refused { what }.into());
    }
    show(&introduction(&export))?;
    for note in notes(&request, &export) {
        screen::notice(&note);
    }
    let stop = interrupt::catch("stopping; nothing is written");
    let bar = ByteBar::new();
    // Beyond `ulimit -f` the system kills the process with a signal.
    let (limit, mut too_large) = (data::disk::file_limit(), None);
    let mut report = |done: u64, total: u64| {
        bar.set(done, total);
        too_large = limit.filter(|limit| total > *limit).map(|limit| (total, limit));
        too_large.is_none() && !stop.load(Ordering::Relaxed)
    };
    let parents = Parents::make(&request.out)?;
    let written = write(&request, &mut export, &mut report);
    drop(bar);
    match (written, too_large) {
        (_, Some((bytes, limit))) => Err(TrainError::FileLimit { path: request.out, bytes, limit }),
        (Ok(bytes), None) => {
            parents.keep();
            show(&closing(&request, &export, bytes)).map(|()| 0)
        }
        (Err(TrainError::Export(ExportError::Stopped)), None) => Ok(INTERRUPTED),
        (Err(error), None) => Err(error),
    }
}

fn request(flags: &Flags, names: &[String]) -> Result<Request, SpecError> {
    let wrong = |what: String| SpecError::Conflict { what };
    let form = "fitgpt export CHECKPOINT|OUT_DIR --to FORMAT --out PATH";
    let Named { name: Some(from), rest } = Named::among(names)? else {
        return Err(wrong(format!("export needs a checkpoint or a run: {form}")));
    };
    if let Some(other) = rest.first() {
        let shown: String = other.chars().take(40).collect();
        return Err(wrong(format!("'{shown}' is neither a flag nor a model: {form}")));
    }
    let to = flags.to.as_deref().ok_or_else(|| {
        let words = Format::WORDS.join(", ");
        wrong(format!("export needs a format: --to {words}"))
    })?;
    let to = Format::of(to).ok_or_else(|| unknown("--to", to, Format::WORDS))?;
    let out = flags.out.as_deref().filter(|out| !out.is_empty());
    let out = out.ok_or_else(|| wrong(format!("export needs a place to write to: {form}")))?;
    if out == "-" {
        let what = "export writes files, not to standard output: give --out the name of a file or \
                    folder";
        return Err(wrong(what.to_owned()));
    }
    let precision = match flags.dtype.as_deref().map(|word| (word, Dtype::of(word))) {
        None | Some((_, Some(Dtype::Float32))) => Precision::Float32,
        Some((word, None)) => return Err(unknown("--dtype", word, Dtype::WORDS)),
        Some((word, Some(_))) if to == Format::Native => {
            return Err(wrong(format!(
                "--dtype {word} is not for native: a checkpoint of fitgpt keeps float32"
            )));
        }
        Some((_, Some(Dtype::Float16))) => Precision::Float16,
        Some((_, Some(Dtype::BFloat16))) => Precision::BFloat16,
    };
    let existing = if flags.overwrite { Existing::Replace } else { Existing::Keep };
    // Without a slash at the end.
    let out = Path::new(out).components().collect();
    Ok(Request { from, to, out, precision, existing })
}

fn unknown(flag: &str, given: &str, words: &[&str]) -> SpecError {
    let shown: String = given.chars().take(40).collect();
    let words = words.join(", ");
    SpecError::Conflict { what: format!("{flag} has no value '{shown}'; it has {words}") }
}

/// What was found.
fn introduction(export: &Export) -> String {
    let progress = &export.saved.document.progress;
    let mut parts = vec![format!("{:.2}M parameters", export.parameters as f64 / 1e6)];
    if progress.iteration > 0 {
        parts.push(format!("iteration {}", grouped(progress.iteration)));
    }
    if let Some(tokens) = export.tokens_seen.filter(|tokens| *tokens > 0) {
        parts.push(format!("{} tokens seen", short(tokens as f64)));
    }
    if progress.best_val_loss.is_finite() {
        parts.push(format!("best val loss {:.4}", progress.best_val_loss));
    }
    format!("{}: {}\n", export.saved.path.display(), parts.join(", "))
}

/// What the other program will do differently.
fn notes(request: &Request, export: &Export) -> Vec<String> {
    let mut notes = export.saved.notices.clone();
    if request.to == Format::Gguf && export.gelu == GeluKind::Erf {
        notes.push(
            "llama.cpp computes the tanh form of GELU, but this model was trained with the exact \
             one (gelu='erf'): its outputs differ slightly. Train with --gelu=tanh to avoid that."
                .to_owned(),
        );
    }
    if request.to == Format::Ckpt && export.gelu == GeluKind::Tanh {
        notes.push(
            "nanoGPT computes the exact GELU, but this model was trained with the tanh form: its \
             outputs differ slightly"
                .to_owned(),
        );
    }
    if request.to == Format::Ckpt && !export.saved.has_moments {
        notes.push(
            "the model has no optimizer state: nanoGPT can sample it, but not resume it".to_owned(),
        );
    }
    let meta = meta_file(export);
    match &export.saved.document.tokenizer {
        Some(Tokenizer::Char(_)) if request.to == Format::Ckpt => match meta {
            Some(meta) if meta.exists() => {}
            Some(meta) => notes.push(format!(
                "a ckpt.pt has no characters: nanoGPT reads them from {}, which is not here",
                meta.display()
            )),
            None => notes.push(
                "a ckpt.pt has no characters, and this model names no data set that has them: \
                 nanoGPT cannot print its text"
                    .to_owned(),
            ),
        },
        Some(Tokenizer::Json(_)) if request.to == Format::Ckpt => notes.push(
            "a ckpt.pt has no tokenizer, and nanoGPT reads no tokenizer.json: it cannot print this \
             model's text"
                .to_owned(),
        ),
        _ => {}
    }
    if let Some(why) = &export.no_tokenizer {
        notes.push(match request.to {
            Format::Hf | Format::Native => format!("no tokenizer is written: {why}"),
            Format::Ckpt | Format::Gguf => why.clone(),
        });
    }
    notes
}

fn write(
    request: &Request,
    export: &mut Export,
    report: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<u64, TrainError> {
    let Request { to, out, precision, existing, .. } = request;
    match to {
        Format::Native => return export.write_native(out, *existing, report),
        Format::Ckpt => return export.write_ckpt(out, (*precision, *existing), report),
        Format::Hf | Format::Gguf => {}
    }
    let (dims, gelu) = (export.saved.document.dims, export.gelu);
    let tokenizer = export.saved.document.tokenizer.clone();
    let name = out.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let tensors = export.saved.tensors()?;
    let model = ExportModel { tensors, dims, gelu, tokenizer: tokenizer.as_ref(), name: &name };
    Ok(match *to == Format::Hf {
        true => hf::write(out, &model, *precision, *existing, report)?,
        false => gguf::write(out, &model, *precision, *existing, report)?,
    })
}

/// What was written, and a command to try it, if there is one that works.
fn closing(request: &Request, export: &Export, bytes: u64) -> String {
    let out = request.out.display();
    let written = match request.to {
        Format::Native => String::new(),
        Format::Hf | Format::Gguf | Format::Ckpt => format!(", {}", request.precision.name()),
    };
    let trial = export.saved.document.tokenizer.as_ref().and_then(|tokenizer| {
        let trial = trial(request, tokenizer, meta_file(export))?;
        Some(format!("try it: {trial}\n"))
    });
    format!("wrote {out}: {}{written}\n{}", size(bytes), trial.unwrap_or_default())
}

/// The file in which nanoGPT looks for the characters of the model's data set; none if the model
/// names no data set.
fn meta_file(export: &Export) -> Option<PathBuf> {
    let dataset = export.saved.document.config.get("dataset")?.as_str()?;
    Some(Path::new("data").join(dataset).join("meta.pkl"))
}

fn trial(request: &Request, tokenizer: &Tokenizer, meta: Option<PathBuf>) -> Option<String> {
    let out = request.out.to_string_lossy();
    let prompt = prompt(tokenizer);
    Some(match request.to {
        Format::Native => format!("{} sample {}", program(), model_name::typed(&out)),
        Format::Gguf => {
            format!("llama-completion -m {} -p {} -n 100", quoted(&out), quoted(&prompt))
        }
        Format::Ckpt => {
            let folder = request.out.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).to_string_lossy();
            let mut needs = match request.out.file_name().is_some_and(|name| name == "ckpt.pt") {
                true => vec![],
                false => vec!["the file must be named ckpt.pt".to_owned()],
            };
            match (tokenizer, meta.filter(|meta| meta.exists())) {
                (Tokenizer::Gpt2, _) => {}
                (Tokenizer::Char(_), Some(meta)) => {
                    needs.push(format!("it reads {}", meta.display()));
                }
                (Tokenizer::Char(_) | Tokenizer::Json(_), _) => return None,
            }
            let needs = match needs.is_empty() {
                true => String::new(),
                false => format!(" ({})", needs.join("; ")),
            };
            format!("python sample.py --out_dir={}{needs}", quoted(&folder))
        }
        Format::Hf => {
            let [out, prompt] = [&*out, &prompt].map(serde_json::Value::from);
            let code = format!(
                "from transformers import pipeline; print(pipeline(\"text-generation\", {out})\
                 ({prompt})[0][\"generated_text\"])"
            );
            format!("python -c {}", quoted(&code))
        }
    })
}

/// A short text that the model knows.
fn prompt(tokenizer: &Tokenizer) -> String {
    let usual = "The";
    match tokenizer {
        Tokenizer::Char(table) if usual.chars().any(|c| table.id(c).is_none()) => {
            let letter = table.characters().iter().find(|c| c.is_alphanumeric());
            letter.or(table.characters().first()).map_or(String::new(), char::to_string)
        }
        _ => usual.to_owned(),
    }
}
