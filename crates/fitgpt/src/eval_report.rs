//! What `eval` prints: which checkpoint and data, and what was measured, as text and as JSON.

use crate::numbers::grouped;
use data::Split;
use serde_json::{Value, json};
use train::TrainError;
use train::eval::Estimate;
use train::eval_data::Kind;
use train::eval_setup::{EvalSetup, Work};
use train::hellaswag::Answers;
use train::scoring::Total;

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// False if it was interrupted.
    pub is_whole: bool,
    /// The losses.
    pub total: Total,
    /// Mean and standard error of random batches; none of a single sequence, which has no spread.
    pub estimate: Option<Estimate>,
    /// The answers to questions.
    pub answers: Option<Answers>,
}

/// Which checkpoint is evaluated, and on what.
pub fn introduction(setup: &EvalSetup) -> Result<String, TrainError> {
    let EvalSetup { spec, dims, saved, .. } = setup;
    let parameters = spec.architecture().reported_parameters(dims);
    let parameters = parameters.map_err(search::SearchError::from)? as f64 / 1e6;
    let progress = &saved.document.progress;
    let mut first = format!("{}: {parameters:.2}M parameters", saved.path.display());
    if progress.iteration > 0 {
        first += &format!(", iteration {}", grouped(progress.iteration));
    }
    if progress.best_val_loss.is_finite() {
        first += &format!(", best val loss {:.4}", progress.best_val_loss);
    }
    Ok(format!("{first}\n{}\n", data(setup)))
}

/// What is scored, in words.
fn data(setup: &EvalSetup) -> String {
    let EvalSetup { spec, name, work, .. } = setup;
    let context = spec.eval_block_size;
    let of = |data: &train::eval_data::EvalData| match data.kind {
        Kind::Split => format!("{name}, {}", data.split.name()),
        Kind::Tokens | Kind::Text => name.clone(),
    };
    match work {
        Work::Whole(data, stride) => {
            let tokens = grouped(data.stream().len());
            let stride = stride.map(|stride| format!(", {stride} apart")).unwrap_or_default();
            format!("{}: {tokens} tokens in windows of {context}{stride}", of(data))
        }
        Work::Batches(data) => format!(
            "{}: {} random batch{} of {} x {context} tokens",
            of(data),
            grouped(spec.eval_iters),
            if spec.eval_iters == 1 { "" } else { "es" },
            spec.eval_batch_size
        ),
        Work::Questions(questions) => {
            format!("{name}: {} questions", grouped(questions.len() as u64))
        }
    }
}

/// The result as lines.
pub fn text(setup: &EvalSetup, measured: &Measured) -> String {
    let Measured { is_whole, total, estimate, answers } = measured;
    let mut out = String::new();
    if !is_whole {
        out += "interrupted: this is the part measured so far\n";
    }
    let mut row = |name: &str, value: String| out += &format!("{name:<15}{value}\n");
    if let Some(Answers { questions, right, right_normalised }) = answers {
        row("questions", grouped(*questions));
        let share = |right: u64| format!("{:.4}", share(right, *questions));
        row("acc", share(*right));
        row("acc_norm", format!("{} (by tokens)", share(*right_normalised)));
        return out;
    }
    row("tokens", grouped(total.tokens));
    let Some(loss) = total.loss() else { return out };
    let error = estimate.map(|estimate| format!(" ± {:.4}", estimate.standard_error));
    row("loss", format!("{loss:.4}{}", error.unwrap_or_default()));
    row("perplexity", perplexity(loss));
    row(
        "bits per byte",
        match (total.bits_per_byte(), &setup.tokenizer) {
            (Some(bits), _) => format!("{bits:.4}"),
            (None, Err(why)) => format!("unknown: {why}"),
            (None, Ok(_)) => "unknown: the tokens have no text".to_owned(),
        },
    );
    out
}

fn perplexity(loss: f64) -> String {
    match loss.exp() {
        large if large >= 1e6 => format!("{large:.3e}"),
        usual => format!("{usual:.4}"),
    }
}

fn share(right: u64, questions: u64) -> f64 {
    right as f64 / questions.max(1) as f64
}

/// The result as JSON; `docs/eval.md` lists the fields.
pub fn document(setup: &EvalSetup, measured: &Measured) -> Value {
    let EvalSetup { spec, saved, name, work, .. } = setup;
    let Measured { is_whole, total, estimate, answers } = measured;
    let progress = &saved.document.progress;
    let finite = |number: f64| Some(number).filter(|number| number.is_finite());
    let (mode, data, stride) = match work {
        Work::Whole(data, stride) => ("whole", Some(data), *stride),
        Work::Batches(data) => ("batches", Some(data), None),
        Work::Questions(_) => ("hellaswag", None, None),
    };
    let split = data.filter(|data| data.kind == Kind::Split).map(|data| Split::name(data.split));
    let loss = total.loss();
    let mut document = json!({
        "schema": "fitgpt.eval/1",
        "checkpoint": saved.path.display().to_string(),
        "iteration": progress.iteration,
        "best_val_loss": finite(progress.best_val_loss),
        "data": name,
        "split": split,
        "mode": mode,
        "context": spec.eval_block_size,
        "stride": stride,
        "partial": !is_whole,
    });
    let more = match answers {
        Some(Answers { questions, right, right_normalised }) => json!({
            "questions": questions,
            "acc": share(*right, *questions),
            "acc_norm": share(*right_normalised, *questions),
        }),
        None => json!({
            "tokens": total.tokens,
            "loss": loss.and_then(finite),
            "standard_error": estimate.and_then(|estimate| finite(estimate.standard_error)),
            "perplexity": loss.map(f64::exp).and_then(finite),
            "bytes": (total.bytes > 0).then_some(total.bytes),
            "bits_per_byte": total.bits_per_byte().and_then(finite),
        }),
    };
    if let (Value::Object(document), Value::Object(more)) = (&mut document, more) {
        document.extend(more);
    }
    document
}
