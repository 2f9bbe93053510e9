//! Whole models through `model::Program`: gradients of every parameter, ten steps of AdamW,
//! evaluation, prefill and decode. Each has two layers and odd sizes.

use crate::case::{Attribute, Case, Form, Tolerance};
use crate::case_builder::{CaseBuilder, NEAR_ONE, Normal, spread};
use crate::masks::{MaskPlace, attention_mask, mask};
use crate::values::{Values, stream};
use model::{
    AdamW, Dims, Draft, EvalSpec, GenerateSpec, Gpt2, Level, ModelSpec, ModuleKind, Optimizer,
    OptimizerSpec, Param, ParamKind, Program, ProgramSpec, TrainSpec, Types,
};
use plan::ops::{Dropout, DropoutSite, GeluKind, Scaling};
use plan::{PlanError, Schedule, Scratch, StepInputs, StepState, TensorId};
use std::rc::Rc;

const LOSS_TOLERANCE: Tolerance = Tolerance {
    absolute: 1e-5,
    relative: 2e-6,
    reason: "f32 through two layers, logits of order 1, sums of up to 71 losses",
};

const GRADIENT_TOLERANCE: Tolerance = Tolerance {
    absolute: 1e-6,
    relative: 2e-5,
    reason: "f32 through two layers and back, gradients of order 0.03; PyTorch's are off by 1e-7",
};

const LOGITS_TOLERANCE: Tolerance = Tolerance {
    absolute: 2e-5,
    relative: 2e-5,
    reason: "f32 through two layers, logits of order 1",
};

const CURVE_TOLERANCE: Tolerance = Tolerance {
    absolute: 1e-4,
    relative: 0.0,
    reason: "the promise: ten losses and norms as PyTorch's, to four digits",
};

const WEIGHTS_TOLERANCE: Tolerance = Tolerance {
    absolute: 5e-5,
    relative: 0.0,
    reason: "weights move by up to 0.02. Adam divides a gradient by its own size, so rounding of \
             one near zero becomes a part of the step; here none is near enough to matter, and \
             PyTorch's own f32 is off by 4e-7",
};

struct Sizes {
    name: &'static str,
    dims: Dims,
    dropout: f32,
    gelu: GeluKind,
    positions: u64,
    slices: &'static [u64],
    head_chunk: u64,
    /// Levels of recompute by layer; empty if everything is kept.
    levels: &'static [Level],
}

const fn dims(n_head: u64, head_size: u64, block_size: u64, vocab_size: u64, bias: bool) -> Dims {
    Dims { n_layer: 2, n_head, n_embd: n_head * head_size, block_size, vocab_size, bias }
}

const BIAS: Sizes = Sizes {
    name: "model_bias",
    dims: dims(3, 5, 16, 61, true),
    dropout: 0.0,
    gelu: GeluKind::Erf,
    positions: 13,
    slices: &[3],
    head_chunk: 256,
    levels: &[],
};

const TABLE: [Sizes; 5] = [
    BIAS,
    Sizes {
        name: "model_plain",
        dims: dims(5, 4, 37, 97, false),
        positions: 37,
        slices: &[2],
        ..BIAS
    },
    Sizes { name: "model_tanh", gelu: GeluKind::Tanh, dims: dims(2, 7, 13, 61, true), ..BIAS },
    Sizes {
        name: "model_dropout",
        dropout: 0.2,
        dims: dims(4, 3, 13, 53, true),
        slices: &[2, 1],
        ..BIAS
    },
    // Three chunks of the head, and three blocks of tokens in every sum over them.
    Sizes {
        name: "model_chunks",
        dims: dims(2, 5, 72, 67, true),
        positions: 71,
        slices: &[8],
        ..BIAS
    },
];

/// A model that recomputes.
const fn again(name: &'static str, levels: &'static [Level]) -> Sizes {
    Sizes { name, dims: dims(2, 3, 9, 11, true), dropout: 0.2, positions: 9, levels, ..BIAS }
}

/// Every level of recompute, in both layers: recomputing gives the same gradients.
const AGAIN: [Sizes; 7] = [
    again("model_r1", &[Level::R1; 2]),
    again("model_r2", &[Level::R2; 2]),
    again("model_r3", &[Level::R3; 2]),
    again("model_r3q", &[Level::R3q; 2]),
    again("model_r4", &[Level::R4; 2]),
    again("model_r5", &[Level::R5; 2]),
    again("model_r6", &[Level::R6; 2]),
];

/// Models whose loss curve is compared: with biases and without.
const CURVES: [Sizes; 2] = [
    Sizes { name: "curve_bias", slices: &[3, 2], ..BIAS },
    Sizes { name: "curve_plain", dims: dims(5, 4, 13, 67, false), slices: &[2, 1], ..BIAS },
];

/// nanoGPT's warm-up over 3 iterations to 4e-3, then its cosine to 4e-4 at the last.
const LRS: [f64; 10] =
    [1e-3, 2e-3, 3e-3, 4e-3, 3.758846e-3, 3.1e-3, 2.2e-3, 1.3e-3, 6.411543e-4, 4e-4];
const GRAD_CLIP: f64 = 1.0;
const OPTIMIZER: OptimizerSpec =
    OptimizerSpec { rule: Optimizer::AdamW(AdamW::NANOGPT), scaling: Scaling::Off, offload: None };

/// All model cases, with the scratch that the backend needs.
pub fn cases(scratch: &Rc<dyn Scratch>) -> Result<Vec<Case>, PlanError> {
    let mut all = Vec::new();
    for sizes in TABLE.iter().chain(&AGAIN) {
        all.push(gradients(sizes, scratch)?);
    }
    for sizes in &CURVES {
        all.push(curve(sizes, scratch)?);
    }
    // The model has dropout, which only training may apply.
    let unused_dropout = Sizes { name: "model_eval", dropout: 0.5, slices: &[2, 1], ..BIAS };
    all.push(eval(&unused_dropout, scratch)?);
    all.push(generate(&Sizes { name: "model_generate", ..unused_dropout }, scratch)?);
    let plain = Sizes { name: "model_generate_plain", dims: dims(5, 4, 16, 37, false), ..BIAS };
    all.push(generate(&plain, scratch)?);
    Ok(all)
}

/// The case of a model being built.
struct ModelCase {
    case: CaseBuilder,
    program: Program,
    schedule: Schedule,
}

impl ModelCase {
    /// The program, with its weights written and every other run-wide tensor cleared.
    fn new(
        sizes: &Sizes,
        kind: &'static str,
        tolerance: Tolerance,
        spec: &ProgramSpec,
        scratch: &Rc<dyn Scratch>,
    ) -> Result<ModelCase, PlanError> {
        let mut case = CaseBuilder::new(sizes.name, kind, tolerance);
        describe(&mut case, sizes);
        let Draft { program, schedule, .. } = Draft::new(spec, Rc::clone(scratch))?;
        let tensors = &schedule.tensors;
        // The padding between parameters must be zero, so whole arrays are cleared first.
        if let Some(first) = program.parameters.first() {
            let state = first.state.iter().map(|&(_, id)| id);
            for window in [first.weight].into_iter().chain(first.gradient).chain(state) {
                case.clear(tensors.root(window).0);
            }
        }
        if let Some(row_loss) = program.row_loss {
            case.clear(row_loss);
        }
        let words = StepState::initial(1.0).to_words().to_vec();
        case.write("state", program.state, &[words.len() as u64], Values::U32(words));
        for parameter in &program.parameters {
            let name = &parameter.param.name;
            let shape = parameter.param.shape.dims();
            let values = case.drawn(name, shape, distribution(&parameter.param))?;
            case.write(name, parameter.weight, shape, Values::F32(values));
        }
        Ok(ModelCase { case, program, schedule })
    }

    fn finish(self) -> Case {
        self.case.finish_with(self.schedule)
    }
}

/// Larger than nanoGPT's 0.02, so that no gradient is tiny; biases are not zero.
fn distribution(parameter: &Param) -> Normal {
    match (parameter.kind, parameter.module.kind) {
        (ParamKind::Bias, _) => spread(0.1),
        (ParamKind::Weight, ModuleKind::TokenEmbedding) => spread(0.3),
        (ParamKind::Weight, ModuleKind::LayerNorm) => NEAR_ONE,
        (ParamKind::Weight, ModuleKind::Linear | ModuleKind::PositionEmbedding) => spread(0.15),
    }
}

fn describe(case: &mut CaseBuilder, sizes: &Sizes) {
    let dims = sizes.dims;
    let count = |value: u64| Attribute::Int(value as i64);
    case.attribute("n_layer", count(dims.n_layer));
    case.attribute("n_head", count(dims.n_head));
    case.attribute("bias", Attribute::Int(dims.bias.into()));
    case.attribute("block_size", count(dims.block_size));
    let form = match sizes.gelu {
        GeluKind::Erf => "erf",
        GeluKind::Tanh => "tanh",
    };
    case.attribute("form", Attribute::Text(form));
    case.attribute("norm_eps", Attribute::Float(model::NORM_EPSILON));
    case.attribute("slices", Attribute::Ints(sizes.slices.iter().map(|&r| r as i64).collect()));
}

fn program_spec(sizes: &Sizes) -> ProgramSpec {
    let model = ModelSpec {
        dims: sizes.dims,
        dropout: sizes.dropout,
        architecture: Gpt2 { gelu: sizes.gelu }.into(),
        types: Types::F32,
    };
    ProgramSpec { model, train: None, eval: None, generate: None }
}

fn train_spec(sizes: &Sizes) -> ProgramSpec {
    let train = TrainSpec {
        sharing: model::Sharing::NONE,
        slices: sizes.slices.to_vec(),
        positions: sizes.positions,
        head_chunk: sizes.head_chunk,
        loss_rows: sizes.slices.iter().sum(),
        levels: sizes.levels.to_vec(),
        optimizer: OPTIMIZER,
    };
    ProgramSpec { train: Some(train), ..program_spec(sizes) }
}

/// Tokens of one iteration, cut into slices.
struct Batch {
    tokens: Vec<Vec<i32>>,
    targets: Vec<Vec<i32>>,
    inverse_tokens: f32,
}

/// Draws an iteration's tokens and their targets. One target of seven is missing.
fn batch(sizes: &Sizes, name: &str) -> Batch {
    let mut stream = stream(sizes.name, name);
    let (mut tokens, mut targets, mut valid) = (Vec::new(), Vec::new(), 0);
    for rows in sizes.slices {
        let elements = rows * sizes.positions;
        let mut id = || stream.below(sizes.dims.vocab_size) as i32;
        tokens.push((0..elements).map(|_| id()).collect());
        let mut ids: Vec<i32> = (0..elements).map(|_| id()).collect();
        for id in &mut ids {
            if stream.below(7) == 0 {
                *id = -1;
            }
        }
        valid += ids.iter().filter(|&&id| id >= 0).count();
        targets.push(ids);
    }
    Batch { tokens, targets, inverse_tokens: 1.0 / valid.max(1) as f32 }
}

/// Runs every slice of a batch on its segment.
fn run_slices(model: &mut ModelCase, sizes: &Sizes, batch: Batch, prefix: &str, step: StepInputs) {
    let training = !model.program.train.is_empty();
    let segments = if training { model.program.train.clone() } else { model.program.eval.clone() };
    let mut first_row = 0;
    let slices = batch.tokens.into_iter().zip(batch.targets).zip(segments);
    for (index, ((tokens, targets), segment)) in slices.enumerate() {
        let dims = [segment.rows, sizes.positions];
        let case = &mut model.case;
        let name = |what: &str| format!("{prefix}{what}.{index}");
        case.write(&name("tokens"), segment.tokens, &dims, Values::I32(tokens));
        case.write(&name("targets"), segment.targets, &dims, Values::I32(targets));
        let inverse_tokens = batch.inverse_tokens;
        case.run(segment.segment, StepInputs { first_row, inverse_tokens, ..step });
        first_row += segment.rows;
    }
}

/// Loss of each row and the gradient of each parameter after one iteration.
fn gradients(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let spec = train_spec(sizes);
    let mut model = ModelCase::new(sizes, "model_gradients", LOSS_TOLERANCE, &spec, scratch)?;
    let step = StepInputs { iteration: 17, seed: 1337, ..StepInputs::default() };
    let batch = batch(sizes, "batch");
    model.case.attribute("inverse_tokens", Attribute::Float(batch.inverse_tokens.into()));
    if sizes.dropout > 0.0 {
        write_masks(&mut model.case, sizes, &step);
    }
    run_slices(&mut model, sizes, batch, "", step);
    model.case.read("row_loss", row_loss(&model.program)?);
    model.case.set_tolerance(GRADIENT_TOLERANCE);
    for parameter in &model.program.parameters {
        let gradient = parameter.gradient.ok_or_else(|| missing("gradients"))?;
        model.case.read(&format!("d_{}", parameter.param.name), gradient);
    }
    Ok(model.finish())
}

/// The masks of all rows of the iteration, for the reference.
fn write_masks(case: &mut CaseBuilder, sizes: &Sizes, step: &StepInputs) {
    let (dims, rows) = (sizes.dims, sizes.slices.iter().sum::<u64>());
    let (positions, probability) = (sizes.positions, sizes.dropout);
    let place = MaskPlace { seed: step.seed, iteration: step.iteration, first_row: 0 };
    let mut stream_mask = |name: &str, layer: u32, site: DropoutSite| {
        let dropout = Dropout { probability, layer, site };
        let values = mask(dropout, place, rows * positions, dims.n_embd);
        case.aside(name, &[rows, positions, dims.n_embd], Values::F32(values));
    };
    stream_mask("mask.embedding", 0, DropoutSite::Embedding);
    for layer in 0..dims.n_layer as u32 {
        let site = DropoutSite::AttentionProjection;
        stream_mask(&format!("mask.{layer}.attention_projection"), layer, site);
        stream_mask(&format!("mask.{layer}.mlp_projection"), layer, DropoutSite::MlpProjection);
    }
    for layer in 0..dims.n_layer as u32 {
        let dropout = Dropout { probability, layer, site: DropoutSite::Attention };
        let values = attention_mask(dropout, place, rows * dims.n_head, positions);
        let shape = [rows, dims.n_head, positions, positions];
        case.aside(&format!("mask.{layer}.attention"), &shape, Values::F32(values));
    }
}

/// Ten iterations of two slices and an update. Two batches alternate, so that the loss falls.
fn curve(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let spec = train_spec(sizes);
    let mut model = ModelCase::new(sizes, "model_curve", CURVE_TOLERANCE, &spec, scratch)?;
    let update = model.program.update.ok_or_else(|| missing("an update"))?;
    let losses = row_loss(&model.program)?;
    describe_optimizer(&mut model.case);
    let mut scales = Vec::new();
    for (index, &lr) in LRS.iter().enumerate() {
        let batch = batch(sizes, if index % 2 == 0 { "even batch" } else { "odd batch" });
        let factor = batch.inverse_tokens;
        scales.push(f64::from(factor));
        let step = StepInputs { lr, grad_clip: GRAD_CLIP, iteration: index as u64, ..at(0) };
        run_slices(&mut model, sizes, batch, &format!("{index}."), step);
        model.case.run(update, step);
        model.case.read_as(&format!("loss.{index}"), losses, Form::Total { factor });
        model.case.read_as(&format!("state.{index}"), model.program.state, Form::State);
    }
    model.case.attribute("inverse_tokens", Attribute::Floats(scales));
    model.case.set_tolerance(WEIGHTS_TOLERANCE);
    for parameter in &model.program.parameters {
        let name = &parameter.param.name;
        if name.ends_with("c_attn.bias") {
            // A key's bias changes all scores of a query equally, so its gradient is zero except
            // for rounding, and Adam turns that into steps of full size.
            let width = sizes.dims.n_embd as usize;
            let (query, value) =
                (Form::Part { from: 0, to: width }, Form::Part { from: 2 * width, to: 3 * width });
            model.case.read_as(&format!("{name}.query"), parameter.weight, query);
            model.case.read_as(&format!("{name}.value"), parameter.weight, value);
        } else {
            model.case.read(name, parameter.weight);
        }
    }
    Ok(model.finish())
}

fn describe_optimizer(case: &mut CaseBuilder) {
    let Optimizer::AdamW(AdamW { beta1, beta2, eps, weight_decay, .. }) = OPTIMIZER.rule;
    case.attribute("betas", Attribute::Floats(vec![beta1, beta2]));
    case.attribute("eps", Attribute::Float(eps));
    case.attribute("weight_decay", Attribute::Float(weight_decay));
    case.attribute("grad_clip", Attribute::Float(GRAD_CLIP));
    case.attribute("lrs", Attribute::Floats(LRS.to_vec()));
}

/// Loss of each row without gradients.
fn eval(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let eval = EvalSpec {
        slices: sizes.slices.to_vec(),
        positions: sizes.positions,
        head_chunk: sizes.head_chunk,
        loss_rows: sizes.slices.iter().sum(),
    };
    let spec = ProgramSpec { eval: Some(eval), ..program_spec(sizes) };
    let mut model = ModelCase::new(sizes, "model_eval", LOSS_TOLERANCE, &spec, scratch)?;
    run_slices(&mut model, sizes, batch(sizes, "batch"), "", at(0));
    model.case.read("row_loss", row_loss(&model.program)?);
    Ok(model.finish())
}

/// Known sequences, longer than the context, token by token as `next_logits` says: one prefill,
/// then decode steps up to the last position, then a prefill of the last `block_size` tokens for
/// each further token. Then once more from a context shorter than its prefill.
fn generate(sizes: &Sizes, scratch: &Rc<dyn Scratch>) -> Result<Case, PlanError> {
    let rows = 2;
    let length = sizes.dims.block_size + 3;
    let generate = GenerateSpec { rows, prefill: vec![4, 8] };
    let spec = ProgramSpec { generate: Some(generate), ..program_spec(sizes) };
    let mut model = ModelCase::new(sizes, "model_generate", LOGITS_TOLERANCE, &spec, scratch)?;
    let segments = model.program.generate.clone().ok_or_else(|| missing("generation"))?;
    let case = &mut model.case;
    let ids = case.drawn_ids("sequence", &[rows, length], sizes.dims.vocab_size)?;
    case.aside("sequence", &[rows, length], Values::I32(ids.clone()));
    for (index, first, last) in [(0, 4, 7), (1, 5, length as usize)] {
        let mut cached = 0;
        for tokens in first..=last {
            let next = segments.next_logits(tokens, cached).ok_or_else(|| missing("a segment"))?;
            cached = next.cached;
            let positions = next.segment.positions;
            let mut given = vec![0; (rows * positions) as usize]; // padding: never looked at
            let sequences = ids.chunks_exact(length as usize);
            for (row, sequence) in given.chunks_exact_mut(positions as usize).zip(sequences) {
                row[..tokens - next.from].copy_from_slice(&sequence[next.from..tokens]);
            }
            let name = format!("tokens.{index}.{tokens}");
            case.write(&name, next.segment.tokens, &[rows, positions], Values::I32(given));
            case.run(next.segment.segment, at(next.position));
            case.read(&format!("logits.{index}.{tokens}"), next.segment.logits);
        }
    }
    Ok(model.finish())
}

fn at(position: u64) -> StepInputs {
    StepInputs { position, ..StepInputs::default() }
}

fn row_loss(program: &Program) -> Result<TensorId, PlanError> {
    program.row_loss.ok_or_else(|| missing("losses"))
}

fn missing(what: &str) -> PlanError {
    PlanError::Attribute { op: "program", problem: format!("it has no {what}") }
}
