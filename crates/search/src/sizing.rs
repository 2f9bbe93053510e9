//! Chooses a run for a text, a machine and a time: which model, which context, how many tokens per
//! update. The rule has the form of Chinchilla's (Hoffmann et al. 2022: loss by model size and
//! tokens seen); its weights and the limits below were measured on small models
//! (`docs/experiments.md`). The caller says how fast the machine is.

use model::{Architecture, Dims};
use spec::Value;

/// The text to train on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    /// Tokens to train on.
    pub train_tokens: u64,
    /// Tokens to evaluate on.
    pub val_tokens: u64,
    /// Whether tokens are characters, of which a context needs more.
    pub is_characters: bool,
}

/// The size of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSize {
    /// Transformer blocks.
    pub n_layer: u64,
    /// Attention heads.
    pub n_head: u64,
    /// Width of the residual stream.
    pub n_embd: u64,
}

const fn size(n_layer: u64, n_head: u64, n_embd: u64) -> ModelSize {
    ModelSize { n_layer, n_head, n_embd }
}

/// From the smallest model that writes words to GPT-2 medium. Each is about twice as large as the
/// one before.
pub const LADDER: [ModelSize; 12] = [
    size(2, 2, 64),
    size(3, 3, 96),
    size(4, 4, 128),
    size(5, 5, 160),
    size(6, 6, 192),
    size(6, 4, 256),
    size(6, 5, 320),
    size(6, 6, 384),
    size(8, 8, 512),
    size(10, 10, 640),
    size(12, 12, 768),
    size(24, 16, 1024),
];

impl ModelSize {
    /// Weights of its blocks in an architecture; none if these sizes do not describe a model.
    /// Embeddings are a table and do not count.
    fn block_weights(self, architecture: &Architecture) -> Option<u64> {
        let ModelSize { n_layer, n_head, n_embd } = self;
        let dims = Dims { n_layer, n_head, n_embd, block_size: 1, vocab_size: 1, bias: false };
        Some(architecture.block_weights(&dims.checked().ok()?))
    }
}

/// Contexts, and how many tokens a run must see before each pays off. Every position learns only
/// from its own tokens, so a short run learns sooner with a short context.
const CONTEXTS: [(u64, f64); 5] = [(1024, 5e8), (512, 2e8), (256, 2e7), (128, 1e7), (64, 0.0)];

/// The longest context of characters that helps a small model.
const LONGEST_OF_CHARACTERS: u64 = 256;

/// The longest context that a text allows: the smaller of its two parts must contain several.
fn longest_context(text: &Text) -> u64 {
    let most = text.val_tokens.min(text.train_tokens) / 4;
    let usual = if text.is_characters { LONGEST_OF_CHARACTERS } else { CONTEXTS[0].0 };
    let fits = (SHORTEST_LOG..).take_while(|&log| 1 << log <= most.min(usual)).last();
    fits.map_or(1 << SHORTEST_LOG, |log| 1 << log)
}

/// The shortest context, as a power of two. Below it there is nothing to learn.
const SHORTEST_LOG: u32 = 3;

/// The smaller part of a text must have at least this many tokens.
pub const FEWEST_TOKENS: u64 = 4 << SHORTEST_LOG;

/// Passes over the text after which, even with dropout, more passes only memorise it.
const MOST_PASSES: f64 = 30.0;

/// The most weights per token of the text. Larger models memorise the text at once.
const MOST_WEIGHTS_PER_TOKEN: u64 = 12;

/// The most updates of a run. With fewer, a small batch is better; with more, a larger one.
const MOST_UPDATES: f64 = 12_000.0;

/// Tokens of an update, as powers of two.
const UPDATE_LOGS: std::ops::RangeInclusive<u32> = 9..=19;

/// A chosen run, before the number of its iterations is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizedRun {
    /// The model.
    pub size: ModelSize,
    /// Weights of its blocks.
    pub block_weights: u64,
    /// Tokens of a context.
    pub block_size: u64,
    /// Sequences of a micro-batch.
    pub batch_size: u64,
    /// Micro-batches of an update.
    pub accumulation: u64,
    /// Tokens that the run sees in the given time, or as many as are useful.
    pub tokens: f64,
    /// How many times the run sees each token of the text.
    pub passes: f64,
}

impl SizedRun {
    /// Tokens of an update.
    pub fn tokens_per_iteration(&self) -> u64 {
        self.block_size.saturating_mul(self.batch_size).saturating_mul(self.accumulation)
    }

    /// Whether there is more time than the text can use.
    pub fn is_limited_by_text(&self) -> bool {
        self.passes >= MOST_PASSES
    }
}

/// What is fixed: the architecture, and what the user has already chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedSettings {
    /// What the model is made of.
    pub architecture: Architecture,
    /// Transformer blocks.
    pub n_layer: Option<u64>,
    /// Attention heads.
    pub n_head: Option<u64>,
    /// Width of the residual stream.
    pub n_embd: Option<u64>,
    /// Tokens of a context.
    pub block_size: Option<u64>,
    /// Sequences of a micro-batch.
    pub batch_size: Option<u64>,
    /// Micro-batches of an update.
    pub accumulation: Option<u64>,
}

impl FixedSettings {
    fn size(&self, size: ModelSize) -> ModelSize {
        ModelSize {
            n_layer: self.n_layer.unwrap_or(size.n_layer),
            n_head: self.n_head.unwrap_or(size.n_head),
            n_embd: self.n_embd.unwrap_or(size.n_embd),
        }
    }

    /// A run in which what the user fixed replaces what was chosen.
    fn run(&self, size: ModelSize, block_size: u64, tokens_per_update: u64) -> SizedRun {
        let block_size = self.block_size.unwrap_or(block_size).max(1);
        let accumulation = self.accumulation.unwrap_or(1).max(1);
        let chosen = (tokens_per_update / block_size / accumulation).max(1);
        SizedRun {
            size,
            block_weights: size.block_weights(&self.architecture).unwrap_or_default(),
            block_size,
            batch_size: self.batch_size.unwrap_or(chosen),
            accumulation,
            tokens: 0.0,
            passes: 0.0,
        }
    }
}

/// The smallest of all runs: the smallest model, one sequence at a time.
pub fn smallest(fixed: &FixedSettings) -> SizedRun {
    fixed.run(fixed.size(LADDER[0]), 1 << SHORTEST_LOG, 1)
}

/// The run with the lowest expected loss. `iteration_seconds` returns how long one update of a run
/// takes on this machine, or none if it does not fit.
pub fn choose(
    text: &Text,
    fixed: &FixedSettings,
    seconds: f64,
    mut iteration_seconds: impl FnMut(&SizedRun) -> Option<f64>,
) -> Option<SizedRun> {
    let mut best: Option<(f64, SizedRun)> = None;
    let largest = text.train_tokens.saturating_mul(MOST_WEIGHTS_PER_TOKEN);
    for size in LADDER.map(|size| fixed.size(size)) {
        let Some(weights) = size.block_weights(&fixed.architecture) else {
            continue; // a larger size may be a multiple of the given n_head
        };
        if best.is_some() && weights > largest {
            break;
        }
        let mut batched =
            |context: u64| batched((size, context), text, fixed, seconds, &mut iteration_seconds);
        let Some(sized) = with_context(text, &mut batched) else {
            break;
        };
        let loss = expected_loss(weights, sized.tokens);
        match &best {
            Some((lowest, _)) if loss >= *lowest => break,
            _ => best = Some((loss, sized)),
        }
    }
    best.map(|(_, sized)| sized)
}

/// A run with the longest context for which it sees enough tokens.
fn with_context(text: &Text, batched: &mut dyn FnMut(u64) -> Option<SizedRun>) -> Option<SizedRun> {
    let longest = longest_context(text);
    let contexts = CONTEXTS.iter().filter(|(context, _)| *context <= longest);
    let mut found = None;
    for &(context, least) in contexts {
        found = batched(context);
        if found.is_some_and(|sized| sized.tokens >= least) {
            return found;
        }
    }
    found.or_else(|| batched(longest))
}

/// A model with the smallest batch that does not exceed the useful number of updates.
fn batched(
    (size, block_size): (ModelSize, u64),
    text: &Text,
    fixed: &FixedSettings,
    seconds: f64,
    iteration_seconds: &mut impl FnMut(&SizedRun) -> Option<f64>,
) -> Option<SizedRun> {
    let worth = MOST_PASSES * text.train_tokens as f64;
    let mut found = None;
    for log in UPDATE_LOGS {
        let mut sized = fixed.run(size, block_size, 1 << log);
        let Some(each) = iteration_seconds(&sized).filter(|each| *each > 0.0) else {
            break;
        };
        let per_update = sized.tokens_per_iteration() as f64;
        sized.tokens = (seconds / each * per_update).min(worth);
        sized.passes = sized.tokens / text.train_tokens.max(1) as f64;
        let updates = sized.tokens / per_update;
        found = Some(sized);
        if updates <= MOST_UPDATES {
            break;
        }
    }
    found
}

/// Chinchilla's law without its constant term. The term for tokens counts one and a half times as
/// much as there, because the measured runs of minutes are far from the models it was fitted to.
fn expected_loss(weights: u64, tokens: f64) -> f64 {
    406.4 / (weights as f64).powf(0.34) + 1.5 * 410.7 / tokens.max(1.0).powf(0.28)
}

/// The keys of a chosen run with `iterations` iterations, evaluated several times with `eval_iters`
/// batches.
pub fn keys(sized: &SizedRun, iterations: u64, eval_iters: u64) -> Vec<(&'static str, Value)> {
    let SizedRun { size: ModelSize { n_layer, n_head, n_embd }, block_size, batch_size, .. } =
        *sized;
    let whole = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let rate = (1e-3 * (384.0 / n_embd as f64).powf(1.1)).min(HIGHEST_RATE);
    let rate = (rate * 1e5).round() / 1e5;
    let small_updates = sized.tokens_per_iteration() < 1 << 15;
    vec![
        ("n_layer", whole(n_layer)),
        ("n_head", whole(n_head)),
        ("n_embd", whole(n_embd)),
        ("block_size", whole(block_size)),
        ("batch_size", whole(batch_size)),
        ("gradient_accumulation_steps", whole(sized.accumulation)),
        ("dropout", Value::Float(dropout(sized))),
        ("learning_rate", Value::Float(rate)),
        ("min_lr", Value::Float((rate * 1e5 / 20.0).round() / 1e5)),
        ("beta2", Value::Float(if small_updates { 0.99 } else { 0.95 })),
        ("max_iters", whole(iterations)),
        ("lr_decay_iters", whole(iterations)),
        ("warmup_iters", whole((iterations / 50).clamp(1, 1000))),
        ("eval_interval", whole((iterations / EVALUATIONS).max(1))),
        ("eval_iters", whole(eval_iters.max(1))),
        ("log_interval", whole(round_number(iterations / 50))),
    ]
}

/// The highest learning rate. nanoGPT uses 1e-3 for a width of 384; narrower models tolerate more.
const HIGHEST_RATE: f64 = 4e-3;

/// Dropout is needed only by a model that could memorise its text, and only after several passes.
fn dropout(sized: &SizedRun) -> f64 {
    let text = sized.tokens / sized.passes.max(1e-9);
    match (sized.block_weights as f64 > text, sized.passes) {
        (true, passes) if passes > 15.0 => 0.2,
        (true, passes) if passes > 8.0 => 0.1,
        _ => 0.0,
    }
}

/// Evaluations of a run, without the one at its start.
pub const EVALUATIONS: u64 = 10;

/// The largest number that is at most `number` and 1, 2 or 5 times a power of ten.
fn round_number(number: u64) -> u64 {
    let power = 10u64.pow(number.max(1).ilog10());
    [5, 2, 1].map(|step| step * power).into_iter().find(|&round| round <= number).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAKESPEARE: Text =
        Text { train_tokens: 1_003_854, val_tokens: 111_540, is_characters: true };

    /// Nothing chosen by the user.
    fn open() -> FixedSettings {
        FixedSettings {
            architecture: model::Gpt2 { gelu: plan::ops::GeluKind::Erf }.into(),
            n_layer: None,
            n_head: None,
            n_embd: None,
            block_size: None,
            batch_size: None,
            accumulation: None,
        }
    }

    /// Attention has four matrices of width by width, the MLP eight.
    #[test]
    fn a_block_of_gpt2_has_twelve_square_matrices() {
        for size in LADDER {
            let ModelSize { n_layer, n_embd, .. } = size;
            let weights = size.block_weights(&open().architecture);
            assert_eq!(weights, Some(12 * n_layer * n_embd * n_embd));
        }
        for n_head in [0, 3] {
            let size = ModelSize { n_head, ..LADDER[0] };
            assert_eq!(size.block_weights(&open().architecture), None, "{n_head} heads");
        }
    }

    /// A machine with this many operations per second, whose smallest update takes `least` seconds.
    fn machine(flops: f64, least: f64) -> impl FnMut(&SizedRun) -> Option<f64> {
        move |sized| {
            let work = 6.0 * sized.block_weights as f64;
            Some(least.max(work * sized.tokens_per_iteration() as f64 / flops))
        }
    }

    #[test]
    fn more_time_buys_a_larger_model_and_the_text_ends_it() {
        let of =
            |seconds: f64| choose(&SHAKESPEARE, &open(), seconds, machine(8e10, 1e-3)).unwrap();
        let (short, long) = (of(60.0), of(3600.0));
        assert!(short.size.n_embd < long.size.n_embd, "{short:?} {long:?}");
        assert!(short.passes < 30.0);
        let gpu = choose(&SHAKESPEARE, &open(), 3600.0, machine(2e14, 2e-3)).unwrap();
        assert!(gpu.is_limited_by_text() && gpu.block_weights < 13_000_000, "{gpu:?}");
        assert!(gpu.tokens <= 30.0 * 1_003_854.0);
    }

    #[test]
    fn short_texts_get_short_contexts() {
        for (val_tokens, want) in [(111_540, 64), (1000, 64), (200, 32), (40, 8), (1, 8)] {
            let text = Text { val_tokens, ..SHAKESPEARE };
            let sized = choose(&text, &open(), 60.0, machine(8e10, 1e-3)).unwrap();
            assert_eq!(sized.block_size, want, "{val_tokens}");
        }
        let gpu = choose(&SHAKESPEARE, &open(), 3600.0, machine(2e14, 2e-3)).unwrap();
        assert_eq!(gpu.block_size, 256);
    }

    #[test]
    fn keys_are_of_the_table() {
        let sized = choose(&SHAKESPEARE, &open(), 60.0, machine(8e10, 1e-3)).unwrap();
        for (name, value) in keys(&sized, 1234, 50) {
            let key = spec::Key::find(name).unwrap();
            assert_eq!(key.accept(value.clone()), Ok(value), "{name}");
        }
        assert_eq!([0, 1, 7, 24, 99, 1234].map(round_number), [1, 1, 5, 20, 50, 1000]);
    }

    #[test]
    fn what_does_not_fit_is_not_chosen() {
        let small = |sized: &SizedRun| (sized.size.n_embd <= 128).then_some(1e-3);
        assert!(choose(&SHAKESPEARE, &open(), 600.0, small).unwrap().size.n_embd <= 128);
        assert_eq!(choose(&SHAKESPEARE, &open(), 600.0, |_| None), None);
    }

    #[test]
    fn what_was_given_is_followed() {
        let fixed = FixedSettings { n_embd: Some(768), n_head: Some(6), ..open() };
        let sized = choose(&SHAKESPEARE, &fixed, 60.0, machine(8e10, 1e-3)).unwrap();
        assert_eq!((sized.size.n_embd, sized.size.n_head), (768, 6));
        let rate = keys(&sized, 100, 10).into_iter().find(|(name, _)| *name == "learning_rate");
        assert_eq!(rate, Some(("learning_rate", Value::Float(0.00047))), "that of its width");
        // Six heads do not divide the first models of the ladder, but later ones.
        let heads = FixedSettings { n_head: Some(6), ..open() };
        let sized = choose(&SHAKESPEARE, &heads, 600.0, machine(8e10, 1e-3)).unwrap();
        assert!(sized.size.n_embd.is_multiple_of(6));
        let batch = FixedSettings { batch_size: Some(3), accumulation: Some(5), ..open() };
        let sized = choose(&SHAKESPEARE, &batch, 60.0, machine(8e10, 1e-3)).unwrap();
        assert_eq!(sized.tokens_per_iteration(), 15 * sized.block_size);
    }
}
