//! The update: norm, clip, loss scale and AdamW over two groups, for several steps.

use crate::case::{Attribute, Case, Form, Tolerance};
use crate::case_builder::{CaseBuilder, spread};
use crate::values::Values;
use plan::ops::{AdamW, GRAD_NORM_BLOCK, GradNorm, LossScaler, Scaling};
use plan::{Bytes, Dtype, PlanError, Role, SegmentId, Shape, StepInputs, StepState, TensorId};

const WEIGHTS_TOLERANCE: Tolerance = Tolerance {
    absolute: 2e-7,
    relative: 2e-6,
    reason: "each step rounds a weight of order 0.1 twice; a step is of order 1e-3",
};

/// Moments are as large as the clipped gradients.
fn moments_tolerance(sizes: &Sizes) -> Tolerance {
    let clipped = sizes.grad_clip > 0.0 && sizes.gradient == 1.0;
    let gradient = if clipped { 0.07 } else { f64::from(sizes.gradient) };
    let reason = "each step rounds a moment twice, and the gradient once or twice";
    Tolerance { absolute: 5e-7 * gradient, relative: 2e-6, reason }
}

const STATE_TOLERANCE: Tolerance = Tolerance {
    absolute: 0.0,
    relative: 1e-5,
    reason: "counts and flags are exact; the norm is a sum of up to 150,000 squares",
};

/// Elements that decay, and elements that do not; aligned, as the model's flat arrays are.
const DECAYED: u64 = 128;
const OTHER: u64 = 77;
const ALL: u64 = DECAYED + OTHER;

struct Sizes {
    name: &'static str,
    /// Deviation of the unscaled gradients.
    gradient: f32,
    grad_clip: f64,
    weight_decay: f64,
    scaling: Scaling,
    start: StepState,
    steps: &'static [Gradient],
}

/// What a step's gradients look like.
#[derive(Clone, Copy, PartialEq)]
enum Gradient {
    Finite,
    /// One is infinite.
    Infinite,
    /// One is not a number.
    Nan,
}

use Gradient::{Finite, Infinite, Nan};

/// Learning rates of the steps.
const LRS: [f64; 8] = [1e-3, 2e-3, 3e-3, 2.5e-3, 2e-3, 1.5e-3, 1e-3, 5e-4];
const BETAS: [f64; 2] = [0.9, 0.95];
const EPS: f64 = 1e-8;
const DYNAMIC: Scaling = Scaling::Dynamic { growth_interval: 2 };

const FIRST: StepState = StepState {
    updates: 0,
    loss_scale: 1.0,
    growth: 0,
    found_inf: false,
    grad_norm: 0.0,
    grad_multiplier: 0.0,
    skipped: false,
};

const CLIPPED: Sizes = Sizes {
    name: "update_clip",
    gradient: 1.0,
    grad_clip: 1.0,
    weight_decay: 0.1,
    scaling: Scaling::Off,
    start: FIRST,
    steps: &[Finite; 4],
};

#[rustfmt::skip]
const TABLE: [Sizes; 9] = [
    CLIPPED,
    Sizes { name: "update_below_clip", gradient: 0.01, ..CLIPPED },
    // So small that eps matters, and also where it is added.
    Sizes { name: "update_tiny", gradient: 3e-8, ..CLIPPED },
    Sizes { name: "update_no_clip", grad_clip: 0.0, ..CLIPPED },
    Sizes { name: "update_no_decay", weight_decay: 0.0, ..CLIPPED },
    Sizes { name: "update_resumed", start: StepState { updates: 1000, ..FIRST }, ..CLIPPED },
    Sizes {
        name: "update_scaled",
        scaling: DYNAMIC,
        start: StepState { loss_scale: 65536.0, ..FIRST },
        steps: &[Finite, Finite, Infinite, Finite, Nan, Infinite, Finite, Finite],
        ..CLIPPED
    },
    // As in nanoGPT without a scaler: values that are not finite are applied.
    Sizes { name: "update_inf_unscaled", steps: &[Finite, Infinite], ..CLIPPED },
    Sizes { name: "update_nan_unscaled", steps: &[Finite, Nan], ..CLIPPED },
];

pub fn cases() -> Result<Vec<Case>, PlanError> {
    let mut all = TABLE.iter().map(case).collect::<Result<Vec<_>, _>>()?;
    // A norm of about 1e-3, at which the 1e-6 that is added to it is visible.
    all.push(norm("grad_norm_one", 1, 1e-4)?);
    all.push(norm("grad_norm_block", GRAD_NORM_BLOCK, 0.25)?);
    all.push(norm("grad_norm_blocks", 2 * GRAD_NORM_BLOCK + 18_928, 1.0)?);
    Ok(all)
}

/// The flat arrays and the segment, as a program has them.
struct Update {
    weights: TensorId,
    gradients: TensorId,
    moments: [TensorId; 2],
    state: TensorId,
    segment: SegmentId,
}

fn case(sizes: &Sizes) -> Result<Case, PlanError> {
    let mut case = CaseBuilder::new(sizes.name, "update", STATE_TOLERANCE);
    describe(&mut case, sizes);
    let update = update(&mut case, sizes)?;
    for (index, (&kind, &lr)) in sizes.steps.iter().zip(&LRS).enumerate() {
        let name = format!("gradients.{index}");
        let deviation = sizes.gradient * sizes.start.loss_scale;
        let mut values = case.drawn(&name, &[ALL], spread(deviation))?;
        match kind {
            Finite => {}
            Infinite => values[index * 7] = f32::NEG_INFINITY,
            Nan => values[index * 7] = f32::NAN,
        }
        case.write(&name, update.gradients, &[ALL], Values::F32(values));
        let grad_clip = sizes.grad_clip;
        case.run(update.segment, StepInputs { lr, grad_clip, ..StepInputs::default() });
        case.set_tolerance(STATE_TOLERANCE);
        case.read_as(&format!("state.{index}"), update.state, Form::State);
        case.set_tolerance(WEIGHTS_TOLERANCE);
        case.read(&format!("weights.{index}"), update.weights);
        if kind != Finite {
            case.read(&format!("gradients_after.{index}"), update.gradients);
        }
    }
    let [m, v] = update.moments;
    case.set_tolerance(moments_tolerance(sizes));
    case.read("m", m);
    case.read("v", v);
    case.read("gradients_after", update.gradients);
    Ok(case.finish())
}

fn describe(case: &mut CaseBuilder, sizes: &Sizes) {
    let growth_interval = match sizes.scaling {
        Scaling::Off => 0,
        Scaling::Dynamic { growth_interval } => growth_interval,
    };
    case.attribute("growth_interval", Attribute::Int(growth_interval.into()));
    case.attribute("loss_scale", Attribute::Float(sizes.start.loss_scale.into()));
    case.attribute("adam_t", Attribute::Int(sizes.start.updates as i64));
    case.attribute("decayed", Attribute::Int(DECAYED as i64));
    case.attribute("grad_clip", Attribute::Float(sizes.grad_clip));
    case.attribute("weight_decay", Attribute::Float(sizes.weight_decay));
    case.attribute("betas", Attribute::Floats(BETAS.to_vec()));
    case.attribute("eps", Attribute::Float(EPS));
    let lrs = LRS.iter().take(sizes.steps.len()).copied().collect();
    case.attribute("lrs", Attribute::Floats(lrs));
}

fn update(case: &mut CaseBuilder, sizes: &Sizes) -> Result<Update, PlanError> {
    let resumed = sizes.start.updates > 0;
    let (m, v) = if resumed { (0.3, 0.4) } else { (0.0, 0.0) };
    let weights = case.input("weights", &[ALL], spread(0.1))?;
    let gradients = case.tensor("gradients", &[ALL])?;
    let m = case.input("m", &[ALL], spread(m))?;
    let squares = case.drawn("v", &[ALL], spread(v))?.iter().map(|x| x * x).collect();
    let v = case.given("v", &[ALL], squares)?;
    let state = case.state(&sizes.start)?;
    let groups = [(0, DECAYED, sizes.weight_decay), (DECAYED, OTHER, 0.0)];
    let mut windows = Vec::new();
    for (first, elements, weight_decay) in groups {
        let offset = Bytes::new(first * Dtype::F32.size()).unwrap_or(Bytes::ZERO);
        let shape = Shape::new(&[elements])?;
        let mut window = |name: &str, root: TensorId| {
            case.schedule.window(&format!("{name} from {first}"), shape, root, offset, None)
        };
        let roots = [
            window("weights", weights)?,
            window("gradients", gradients)?,
            window("m", m)?,
            window("v", v)?,
        ];
        windows.push((roots, weight_decay));
    }
    let mut segment = case.segment();
    let partials = segment.local("partials", Dtype::U32, Shape::new(&[1, 2])?, Role::Partials)?;
    segment.push(GradNorm { gradients, partials, state })?;
    segment.push(LossScaler { state, scaling: sizes.scaling })?;
    for ([weights, gradients, m, v], weight_decay) in windows {
        let [beta1, beta2] = BETAS;
        let eps = EPS;
        segment.push(AdamW {
            weights,
            copy: None,
            split: false,
            gradients,
            m,
            v,
            state,
            beta1,
            beta2,
            eps,
            weight_decay,
            first: 0,
        })?;
    }
    let segment = segment.finish();
    Ok(Update { weights, gradients, moments: [m, v], state, segment })
}

/// The norm alone, of arrays too large for a golden.
fn norm(name: &str, elements: u64, grad_clip: f64) -> Result<Case, PlanError> {
    let mut case = CaseBuilder::new(name, "grad_norm", STATE_TOLERANCE);
    let loss_scale = 8.0;
    case.attribute("loss_scale", Attribute::Float(loss_scale.into()));
    case.attribute("grad_clip", Attribute::Float(grad_clip));
    let gradients = case.input("gradients", &[elements], spread(0.01))?;
    let state = case.state(&StepState::initial(loss_scale))?;
    let mut segment = case.segment();
    let blocks = Shape::new(&[elements.div_ceil(GRAD_NORM_BLOCK), 2])?;
    let partials = segment.local("partials", Dtype::U32, blocks, Role::Partials)?;
    segment.push(GradNorm { gradients, partials, state })?;
    segment.push(LossScaler { state, scaling: Scaling::Off })?;
    let segment = segment.finish();
    case.run(segment, StepInputs { grad_clip, ..StepInputs::default() });
    case.read_as("state", state, Form::State);
    Ok(case.finish())
}
