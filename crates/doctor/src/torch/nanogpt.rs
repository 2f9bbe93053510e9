//! The allocations of nanoGPT's training loop in PyTorch 2.11, eager and compiled. The model
//! follows recorded allocations and is checked against measured peaks. Autocast keeps a 16-bit copy
//! of every weight for the backward pass, layer norms and the residual stream are f32, and several
//! full copies of the logits exist.

use super::tape::{Peak, Phase, Played, Tape};
use model::{Architecture, Dims, Gpt2, ModuleKind, Param};
use plan::{Dtype, PlanError, Role, TensorId};

/// A nanoGPT run.
#[derive(Clone, Debug, PartialEq)]
pub struct TorchRun {
    /// nanoGPT has this one architecture.
    pub model: Gpt2,
    /// The model's sizes.
    pub dims: Dims,
    /// Sequences of a micro-batch.
    pub batch: u64,
    /// Sequences of an evaluation batch; in nanoGPT the same as a micro-batch.
    pub eval_batch: u64,
    /// Tokens of a sequence.
    pub positions: u64,
    /// Autocast's format; f32 if autocast is off.
    pub compute: Dtype,
    /// Whether the model runs under `torch.compile`.
    pub compiled: bool,
    /// Probability of dropout; its masks are kept.
    pub dropout: f64,
    /// Micro-batches of an iteration.
    pub accumulation: u64,
    /// Whether every block is recomputed in the backward pass, which needs a change to nanoGPT's
    /// code.
    pub checkpointed: bool,
    /// Whether the loops' variables keep the last batch's logits; if not, that needs a change to
    /// nanoGPT's code.
    pub keeps_logits: bool,
    /// Whether it resumes from a checkpoint, so that Adam's state exists from the start.
    pub resumed: bool,
    /// Bytes of a cuBLAS workspace; the forward and the backward thread have one each.
    pub workspace: u64,
}

/// Workspace of cuBLAS on Hopper.
pub const WORKSPACE_HOPPER: u64 = 32 << 20;
/// Workspace of cuBLAS before Hopper.
pub const WORKSPACE: u64 = 8_519_680;

/// Simulates the first evaluation, two iterations of at least two micro-batches, and another
/// evaluation. That is enough, because later ones are the same.
pub fn play(run: &TorchRun) -> Result<Played, PlanError> {
    let too_large = || PlanError::ArenaTooLarge { at: "the PyTorch run".to_string() };
    let mut loop_ = Loop::new(run)?;
    loop_.tape.enter(Phase::FirstEval);
    if run.resumed {
        loop_.make_adam()?;
    }
    loop_.evaluate(Phase::FirstEval)?;
    for iteration in 0..2 {
        for _ in 0..run.accumulation.clamp(1, 2) {
            loop_.micro_step()?;
        }
        loop_.tape.enter(Phase::Optimizer);
        if iteration == 0 && !run.resumed {
            loop_.make_adam()?;
        }
        loop_.zero_gradients();
    }
    loop_.evaluate(Phase::Eval)?;
    loop_.tape.play().ok_or_else(too_large)
}

/// The peak of each phase.
pub fn peaks(run: &TorchRun) -> Result<Vec<Peak>, PlanError> {
    Ok(play(run)?.peaks())
}

/// The tensors that the Python program references.
struct Loop<'a> {
    run: &'a TorchRun,
    table: Vec<Param>,
    tape: Tape,
    gradients: Vec<TensorId>,
    /// The variable `logits` of the training loop.
    logits: Option<TensorId>,
    passes: u64,
}

/// What a forward pass saves for its backward pass, in order.
struct Saved {
    layers: Vec<Vec<TensorId>>,
    outside: Vec<TensorId>,
    logits: TensorId,
    head: Vec<TensorId>,
}

impl<'a> Loop<'a> {
    fn new(run: &'a TorchRun) -> Result<Loop<'a>, PlanError> {
        let table = Architecture::from(run.model).parameters(&run.dims)?;
        let mut tape = Tape::default();
        tape.enter(Phase::FirstEval);
        for param in &table {
            let name = format!("parameter {}", param.name);
            let id = tape.tensor(name, param.shape.dims(), Dtype::F32, Role::Weight)?;
            tape.keep(id);
        }
        let tokens = [run.batch, run.positions, 2 * 4]; // two arrays of int64
        let id = tape.tensor("X and Y", &tokens, Dtype::Bf16, Role::Tokens)?;
        tape.keep(id);
        let mut made = Loop { run, table, tape, gradients: Vec::new(), logits: None, passes: 0 };
        made.workspace("forward")?;
        Ok(made)
    }

    fn workspace(&mut self, thread: &str) -> Result<(), PlanError> {
        let words = (self.run.workspace / 4).max(1);
        let name = format!("cuBLAS workspace, {thread}");
        let id = self.tape.tensor(name, &[words], Dtype::U32, Role::Workspace)?;
        self.tape.keep(id);
        Ok(())
    }

    fn make(&mut self, name: &str, dims: &[u64], dtype: Dtype) -> Result<TensorId, PlanError> {
        self.tape.tensor(name, dims, dtype, Role::Activation)
    }

    fn half(&self) -> Dtype {
        self.run.compute
    }

    /// Two batches of an evaluation: while the second runs, the first one's logits are still
    /// referenced.
    fn evaluate(&mut self, phase: Phase) -> Result<(), PlanError> {
        self.tape.enter(phase);
        let mut stale: Option<TensorId> = None;
        for batch in 0..2 {
            let logits = self.forward_only(batch)?;
            let held: Vec<TensorId> =
                stale.into_iter().chain(self.logits).chain([logits]).collect();
            self.tape.step(&held);
            stale = Some(logits).filter(|_| self.run.keeps_logits);
        }
        Ok(())
    }

    /// A forward pass without gradients.
    fn forward_only(&mut self, batch: u64) -> Result<TensorId, PlanError> {
        let run = self.run;
        let rows = run.eval_batch.saturating_mul(run.positions);
        let (width, vocabulary, half) = (run.dims.n_embd, run.dims.vocab_size, self.half());
        let eager = !run.compiled && half != Dtype::F32;
        // Eager autocast keeps the copy of every weight until the end of the block; compiled code
        // does not.
        let mut copies = Vec::new();
        if eager {
            copies = self.weight_copies()?;
            for &copy in &copies {
                self.tape.step(&[copy]);
            }
        }
        let x = self.make("eval residual", &[rows, width], Dtype::F32)?;
        let branch = self.make("eval MLP", &[rows, 4 * width], half)?;
        let branch2 = self.make("eval GELU", &[rows, 4 * width], half)?;
        let mut block = vec![x, branch, branch2];
        if !run.compiled {
            for (name, dtype) in [("residual", Dtype::F32), ("ln_2", Dtype::F32), ("ln_2", half)] {
                block.push(self.make(&format!("eval {name}"), &[rows, width], dtype)?);
            }
        }
        self.tape.step(&block);
        let normalised = self.make("eval ln_f", &[rows, width], half)?;
        let mut beside = vec![normalised];
        if run.compiled && half != Dtype::F32 {
            let shape = [vocabulary, width];
            beside.push(self.tape.tensor("16-bit wte", &shape, half, Role::Weight)?);
        }
        if !run.compiled {
            let single = self.make("eval ln_f f32", &[rows, width], Dtype::F32)?;
            beside.extend([x, single]);
        }
        let name = if batch == 0 { "eval logits" } else { "eval logits, next batch" };
        let logits = self.tape.tensor(name, &[rows, vocabulary], half, Role::Logits)?;
        let all: Vec<TensorId> = beside.iter().chain(&copies).copied().chain([logits]).collect();
        self.tape.step(&all);
        let held: Vec<TensorId> = self.logits.into_iter().chain([logits]).collect();
        self.tape.step(&held);
        if !run.compiled {
            let loss = self.cross_entropy(rows)?;
            let mut now: Vec<TensorId> = copies.clone();
            now.extend([logits, x]);
            for tensor in loss {
                now.push(tensor);
                self.tape.step(&now);
            }
        }
        Ok(logits)
    }

    /// What eager cross-entropy derives from the logits: a contiguous copy under autocast, and the
    /// log-softmax in f32.
    fn cross_entropy(&mut self, rows: u64) -> Result<Vec<TensorId>, PlanError> {
        let (vocabulary, half) = (self.run.dims.vocab_size, self.half());
        let shape = [rows, vocabulary];
        let mut made = Vec::new();
        if half != Dtype::F32 {
            let name = "copy of the logits in cross-entropy";
            made.push(self.tape.tensor(name, &shape, half, Role::Logits)?);
        }
        let name = "log-softmax of the logits, f32";
        made.push(self.tape.tensor(name, &shape, Dtype::F32, Role::Logits)?);
        Ok(made)
    }

    fn weight_copies(&mut self) -> Result<Vec<TensorId>, PlanError> {
        let half = self.half();
        let table = self.table.clone();
        let weights = table.iter().filter(|param| is_matmul_weight(param));
        weights
            .map(|param| {
                let name = format!("16-bit copy of {}", param.name);
                self.tape.tensor(name, param.shape.dims(), half, Role::Weight)
            })
            .collect()
    }

    fn micro_step(&mut self) -> Result<(), PlanError> {
        self.passes += 1;
        self.tape.enter(Phase::Forward);
        let saved = self.forward()?;
        self.logits = Some(saved.logits).filter(|_| self.run.keeps_logits);
        self.tape.enter(Phase::Backward);
        if self.passes == 1 {
            self.workspace("backward")?;
        }
        self.backward(saved)
    }

    fn forward(&mut self) -> Result<Saved, PlanError> {
        let run = self.run;
        let rows = run.batch.saturating_mul(run.positions);
        let width = run.dims.n_embd;
        let stale: Vec<TensorId> = self.logits.into_iter().collect();
        let mut outside = Vec::new();
        outside.push(self.make("embeddings", &[rows, width], Dtype::F32)?);
        outside.push(self.make("position embeddings", &[run.positions, width], Dtype::F32)?);
        if !run.compiled {
            outside.push(self.make("token embeddings", &[rows, width], Dtype::F32)?);
        }
        if run.dropout > 0.0 {
            outside.push(self.mask("embeddings", rows.saturating_mul(width))?);
        }
        self.tape.step(&outside);
        let mut layers = Vec::new();
        for layer in 0..run.dims.n_layer {
            let whole = self.layer(layer, rows)?;
            match run.checkpointed {
                true => {
                    let name = format!("h.{layer}.input");
                    let input = self.make(&name, &[rows, width], Dtype::F32)?;
                    self.tape.step(&[input]);
                    layers.push(vec![input]);
                }
                false => layers.push(whole),
            }
        }
        let half = self.half();
        outside.push(self.make("ln_f", &[rows, width], half)?);
        if half != Dtype::F32 {
            let shape = [run.dims.vocab_size, width];
            outside.push(self.tape.tensor("16-bit copy of wte", &shape, half, Role::Weight)?);
        }
        self.tape.step(&outside);
        let shape = [rows, run.dims.vocab_size];
        let logits = self.tape.tensor("logits", &shape, half, Role::Logits)?;
        let now: Vec<TensorId> = stale.iter().copied().chain([logits]).collect();
        self.tape.step(&now);
        let mut head = Vec::new();
        if !run.compiled {
            for tensor in self.cross_entropy(rows)? {
                head.push(tensor);
                let now: Vec<TensorId> = stale.iter().copied().chain([logits, tensor]).collect();
                self.tape.step(&now);
            }
        }
        Ok(Saved { layers, outside, logits, head })
    }

    fn mask(&mut self, name: &str, elements: u64) -> Result<TensorId, PlanError> {
        // One byte per element, counted in 32-bit words.
        self.make(&format!("dropout mask of {name}"), &[elements.div_ceil(4)], Dtype::U32)
    }

    /// What a block saves: the residual stream or the normalised input in f32 twice, the 16-bit
    /// outputs of both norms, q, k, v, the output of attention, input and output of GELU, and
    /// 16-bit weights.
    fn layer(&mut self, layer: u64, rows: u64) -> Result<Vec<TensorId>, PlanError> {
        let run = self.run;
        let (width, half) = (run.dims.n_embd, self.half());
        let name = |what: &str| format!("h.{layer}.{what}");
        let mut saved = Vec::new();
        for (what, columns, dtype) in [
            ("residual before attention", width, Dtype::F32),
            ("ln_1", width, half),
            ("q, k, v", 3 * width, half),
            ("attention", width, half),
            ("residual before MLP", width, Dtype::F32),
            ("ln_2", width, half),
            ("MLP before GELU", 4 * width, half),
            ("MLP after GELU", 4 * width, half),
        ] {
            saved.push(self.make(&name(what), &[rows, columns], dtype)?);
        }
        let numbers = run.dims.n_head.saturating_add(if run.compiled { 2 } else { 4 });
        let statistics = rows.saturating_mul(numbers);
        saved.push(self.make(&name("statistics"), &[statistics], Dtype::F32)?);
        if run.dropout > 0.0 {
            for what in ["attention", "MLP"] {
                saved.push(self.mask(&name(what), rows.saturating_mul(width))?);
            }
        }
        if half != Dtype::F32 {
            let prefix = format!("h.{layer}.");
            for param in self.table.clone() {
                if is_matmul_weight(&param) && param.name.starts_with(&prefix) {
                    let name = format!("16-bit copy of {}", param.name);
                    let dims = param.shape.dims();
                    saved.push(self.tape.tensor(name, dims, half, Role::Weight)?);
                }
            }
        }
        self.tape.step(&saved);
        Ok(saved)
    }

    fn backward(&mut self, saved: Saved) -> Result<(), PlanError> {
        let run = self.run;
        let rows = run.batch.saturating_mul(run.positions);
        let (width, vocabulary, half) = (run.dims.n_embd, run.dims.vocab_size, self.half());
        let shape = [rows, vocabulary];
        let Saved { layers, outside, logits, head } = saved;
        let gradient = |tape: &mut Tape, name: &str, dtype: Dtype| {
            tape.tensor(name, &shape, dtype, Role::Logits)
        };
        if run.compiled {
            // The logits are an output without a gradient, so PyTorch allocates zeros for it.
            let zeros = gradient(&mut self.tape, "zero gradient of the logits", half)?;
            let d_logits = gradient(&mut self.tape, "gradient of the logits", half)?;
            self.tape.step(&[logits, zeros, d_logits]);
        } else {
            let name = "gradient of the log-softmax, f32";
            let first = gradient(&mut self.tape, name, Dtype::F32)?;
            let mut now = head.clone();
            now.extend([logits, first]);
            self.tape.step(&now);
            let second = gradient(&mut self.tape, "gradient of the logits", half)?;
            // Under autocast the log-softmax is already freed; in f32 it is needed here.
            let needed = if half == Dtype::F32 { &head[..] } else { &[] };
            let now: Vec<TensorId> =
                needed.iter().copied().chain([logits, first, second]).collect();
            self.tape.step(&now);
        }
        self.gradient_of(|param| param.layer.is_none())?;
        let stream = self.make("gradient of the residual", &[rows, width], Dtype::F32)?;
        self.tape.step(&[stream, outside[0]]);
        for (layer, mut kept) in layers.into_iter().enumerate().rev() {
            if run.checkpointed {
                kept.extend(self.layer(layer as u64, rows)?);
            }
            let wide = self.make("gradient of the MLP", &[rows, 4 * width], half)?;
            let wide2 = self.make("gradient before GELU", &[rows, 4 * width], half)?;
            kept.extend([wide, wide2, stream]);
            self.tape.step(&kept);
            let prefix = format!("h.{layer}.");
            self.gradient_of(|param| param.name.starts_with(&prefix))?;
        }
        let mut last = outside;
        last.push(stream);
        self.tape.step(&last);
        if run.keeps_logits {
            self.tape.step(&[logits]);
        }
        Ok(())
    }

    /// Gradients appear in the first backward pass and stay until they are set to none.
    fn gradient_of(&mut self, wanted: impl Fn(&Param) -> bool) -> Result<(), PlanError> {
        if self.gradients.len() == self.table.len() {
            return Ok(());
        }
        for param in self.table.clone().iter().filter(|param| wanted(param)) {
            let name = format!("gradient of {}", param.name);
            let id = self.tape.tensor(name, param.shape.dims(), Dtype::F32, Role::Gradient)?;
            self.tape.keep(id);
            self.gradients.push(id);
        }
        Ok(())
    }

    /// Adam's state is made at its first step, parameter by parameter.
    fn make_adam(&mut self) -> Result<(), PlanError> {
        let order = |param: &&Param| !param.decays();
        let table = self.table.clone();
        let (others, decayed): (Vec<&Param>, Vec<&Param>) = table.iter().partition(order);
        for param in decayed.into_iter().chain(others) {
            for moment in ["exp_avg", "exp_avg_sq"] {
                let name = format!("Adam's {moment} of {}", param.name);
                let id = self.tape.tensor(name, param.shape.dims(), Dtype::F32, Role::Moment)?;
                self.tape.keep(id);
            }
        }
        Ok(())
    }

    fn zero_gradients(&mut self) {
        let gradients = std::mem::take(&mut self.gradients);
        self.tape.release(&gradients);
    }
}

/// Whether autocast converts a weight to 16 bits: the weights of linear layers, including the head.
fn is_matmul_weight(param: &Param) -> bool {
    param.shape.dims().len() == 2 && param.module.kind != ModuleKind::PositionEmbedding
}
