//! `fitgpt eval`: loss, perplexity and bits per byte of a checkpoint, or its accuracy on HellaSwag.

use super::{INTERRUPTED, line};
use crate::byte_bar::ByteBar;
use crate::device::Device;
use crate::eval_report::{self, Measured};
use crate::flags::{FlagSet, flags};
use crate::invocation::{environment, settings};
use crate::model_name::Named;
use crate::{interrupt, screen};
use ::train::TrainError;
use ::train::engine::{Engine, Rows};
use ::train::eval_setup::{EvalRequest, EvalSetup, Work};
use ::train::feed;
use ::train::hellaswag::Asked;
use ::train::save;
use ::train::scoring::{Source, TextBytes, score};
use ::train::windows::{RandomBatches, Whole, Windows};
use data::Split;
use search::Machine;
use spec::{Command, Sampler, SpecError, Values};
use std::sync::atomic::{AtomicBool, Ordering};

/// Steps of the progress bar.
const STEPS: f64 = 1000.0;

flags! {
    /// The flags of `eval`.
    pub struct Flags {
        /// a data set, a file of tokens (.bin) or a text; default: the checkpoint's data set
        data: Option<String> = "--data", "DATA" Values::DataSet;
        /// the split of a data set; default val
        split: Option<String> = "--split", "SPLIT" Values::Words(&Split::NAMES);
        /// windows begin N tokens apart, and each scores only new tokens
        stride: Option<String> = "--stride", "N" Values::Any;
        /// accuracy on HellaSwag's JSON lines (ctx, endings, label) instead of a loss
        hellaswag: Option<String> = "--hellaswag", "FILE" Values::File;
        /// print a JSON document
        json: bool = "--json";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "eval",
    about: "loss, perplexity and bits per byte of a checkpoint",
    text: &[
        "Evaluates a checkpoint: fitgpt's, nanoGPT's ckpt.pt or a model of Hugging Face's. By \
         default every token of its data set's validation split is scored once, in windows of its \
         context without overlap. The run may go on meanwhile.",
    ],
    usage: &[line(
        "fitgpt eval [CHECKPOINT|OUT_DIR|MODEL] [--data FILE|DATASET] [flags] [--key=value ...]",
        "",
    )],
    examples: &[
        line("fitgpt eval out", "all of the validation split"),
        line("fitgpt eval out --data book.txt --stride 512", "any text, with more context"),
        line("fitgpt eval out --eval_iters=200", "random batches, as nanoGPT's estimate_loss"),
        line(
            "fitgpt eval gpt2 --hellaswag hellaswag_val.jsonl",
            "OpenAI's, or owner/name of the hub",
        ),
    ],
    notes: &[
        "eval_iters=N scores N random batches of batch_size sequences; --sampler=nanogpt replays \
         those that nanoGPT draws when it resumes. --stride N scores as transformers' strided \
         perplexity does. Ctrl-C prints what was measured so far. docs/eval.md has the arithmetic.",
    ],
    lists_data_sets: false,
    arguments: &[Values::File],
    flags: Flags::TABLE,
    closing: &[],
    keys: Some(Command::Train),
    run,
};

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    let request = request(&flags)?;
    let named = Named::among(&rest)?;
    let mut settings = settings(Command::Train, &keys(&named.rest))?;
    let gpu_setting = settings.asks_for_gpu();
    let model = named.open(&mut settings, COMMAND.name)?;
    let mut setup = EvalSetup::new(settings, &environment(), &request, model)?;
    for notice in &setup.notices {
        screen::note(&format!("note: {notice}"));
    }
    let device = Device::find(setup.spec.device, gpu_setting)?;
    let mut machine = device.machine(&setup.spec)?;
    let say = |text: &str| screen::note(&format!("note: {text}"));
    let plan = |machine: &Machine| setup.plan(machine);
    let (planned, backend) = device.load_planned(&setup.spec, &mut machine, &[], &say, plan)?;
    let mut engine = Engine::new(backend, planned.program, setup.dims);
    let mut generator = rng::torch::Generator::new(setup.spec.seed);
    if setup.spec.sampler == Sampler::Nanogpt {
        engine.initialise(&mut generator)?; // as in nanoGPT, the weights are drawn first
    }
    let mut buffer = save::buffer(&planned.host)?;
    setup.saved.load(&mut engine, &mut buffer)?;
    drop(buffer);
    let mut rows = Rows::of_bytes(planned.host.eval_batch, setup.spec.eval_block_size)?;
    if !flags.json {
        screen::show(&eval_report::introduction(&setup)?)?;
    }
    let stop = interrupt::catch("stopping; what was measured so far follows");
    let measured = measure(&setup, &mut engine, &mut rows, generator, &stop)?;
    match flags.json {
        true => screen::show_json(&eval_report::document(&setup, &measured))?,
        false => screen::show(&eval_report::text(&setup, &measured))?,
    }
    Ok(if measured.is_whole { 0 } else { INTERRUPTED })
}

fn request(flags: &Flags) -> Result<EvalRequest, SpecError> {
    let wrong = |flag: &str, needs: &str, given: &str| {
        let shown: String = given.chars().take(40).collect();
        SpecError::Conflict { what: format!("{flag} needs {needs}, not '{shown}'") }
    };
    let split = flags.split.as_deref().unwrap_or(Split::Val.name());
    let stride = flags.stride.as_deref().map(|given| {
        let number = given.parse().ok().filter(|stride| *stride > 0);
        number.ok_or_else(|| wrong("--stride", "a whole number above 0", given))
    });
    Ok(EvalRequest {
        data: flags.data.clone(),
        split: Split::of(split)
            .ok_or_else(|| wrong("--split", &Split::NAMES.join(" or "), split))?,
        stride: stride.transpose()?,
        hellaswag: flags.hellaswag.as_ref().map(Into::into),
    })
}

/// The arguments as keys of `train`; the built-in preset does not apply.
fn keys(arguments: &[String]) -> Vec<String> {
    let is_config = |argument: &String| !argument.starts_with('-');
    let says = |argument: &String| argument.starts_with("--init_from=") || is_config(argument);
    let resume = (!arguments.iter().any(says)).then(|| "--init_from=resume".to_owned());
    arguments.iter().cloned().chain(resume).collect()
}

/// Scores everything, with a progress bar.
fn measure(
    setup: &EvalSetup,
    engine: &mut Engine,
    rows: &mut Rows,
    generator: rng::torch::Generator,
    stop: &AtomicBool,
) -> Result<Measured, TrainError> {
    let EvalSetup { spec, dims, saved, tokenizer, work, .. } = setup;
    let text = tokenizer.as_ref().map(|found| TextBytes::of(found, dims.vocab_size));
    let text = text.unwrap_or_default();
    let bar = ByteBar::new();
    match work {
        Work::Whole(data, stride) => {
            let stream = data.stream();
            let windows = Windows::new(stream.len(), spec.eval_block_size, *stride);
            let source = Whole::new(stream, windows, &text);
            let mut source = Shown { source, share: |source: &Whole<'_>| source.share, bar: &bar };
            let is_whole = scored(engine, rows, &mut source, stop)?;
            Ok(Measured { is_whole, total: source.source.total, ..Measured::default() })
        }
        Work::Batches(data) => {
            let mut feed = feed::open(spec, &data.dataset, generator)?;
            let iteration = saved.document.progress.iteration;
            if spec.sampler == Sampler::Nanogpt && data.split == Split::Val {
                for batch in 0..spec.eval_iters {
                    feed.eval(Split::Train, iteration, batch, rows)?; // nanoGPT draws these first
                }
            }
            let which = (data.split, iteration, spec.eval_iters);
            let source = RandomBatches::new(&mut *feed, which, &text);
            let share = |source: &RandomBatches<'_>| source.share();
            let mut source = Shown { source, share, bar: &bar };
            let is_whole = scored(engine, rows, &mut source, stop)?;
            let source = source.source;
            let estimate = source.estimate();
            Ok(Measured { is_whole, total: source.total, estimate, ..Measured::default() })
        }
        Work::Questions(questions) => {
            let source = Asked::new(questions);
            let mut source =
                Shown { source, share: |source: &Asked<'_>| source.share(), bar: &bar };
            let is_whole = scored(engine, rows, &mut source, stop)?;
            let answers = Some(source.source.answers());
            Ok(Measured { is_whole, answers, ..Measured::default() })
        }
    }
}

fn scored(
    engine: &mut Engine,
    rows: &mut Rows,
    source: &mut dyn Source,
    stop: &AtomicBool,
) -> Result<bool, TrainError> {
    score(engine, rows, source, &mut || !stop.load(Ordering::Relaxed))
}

/// A source whose share a bar shows.
struct Shown<'a, S, F> {
    source: S,
    share: F,
    bar: &'a ByteBar,
}

impl<S: Source, F: Fn(&S) -> f64> Source for Shown<'_, S, F> {
    fn fill(&mut self, rows: &mut Rows) -> Result<::train::scoring::Batch, TrainError> {
        let batch = self.source.fill(rows)?;
        let share = (self.share)(&self.source);
        self.bar.show((share * STEPS) as u64, STEPS as u64, String::new());
        Ok(batch)
    }

    fn take(&mut self, batch: ::train::scoring::Batch, losses: &[f32]) {
        self.source.take(batch, losses);
    }
}
