//! Generation: which segment computes the logits after a context, and the segments themselves
//! (prefills of several lengths, and the decode of one token).

use crate::forward::AttendTo;
use crate::program::{Drafting, GenerateSpec};
use plan::ops::{Linear, PositionFrom, SelectPosition};
use plan::{Dtype, Io, Phase, PlanError, Role, Scope, SegmentId, Shape, Tensor, TensorId};

/// A segment that takes tokens and computes the logits of one position of each sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitsSegment {
    /// The segment.
    pub segment: SegmentId,
    /// Tokens per sequence that it takes.
    pub positions: u64,
    /// `[rows, positions]` ids, written by the host.
    pub tokens: TensorId,
    /// `[rows, 1, vocab_size]`, read by the host.
    pub logits: TensorId,
}

/// The segments that generation runs.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateSegments {
    /// One for each prefill length, shortest first. Each fills the cache. Once a context is full,
    /// every further token runs the longest prefill again on the last `block_size` tokens.
    pub prefill: Vec<LogitsSegment>,
    /// Adds one token at `StepInputs::position`.
    pub decode: LogitsSegment,
}

/// How to compute the logits after a context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextLogits<'a> {
    /// The segment to run.
    pub segment: &'a LogitsSegment,
    /// Index of the first token to pass. All tokens from there to the end of the context are
    /// passed, followed by padding.
    pub from: usize,
    /// `StepInputs::position`.
    pub position: u64,
    /// How many tokens of the context the cache holds afterwards; 0 when it cannot be continued.
    pub cached: usize,
}

impl GenerateSegments {
    /// For a context of `tokens` tokens (at least one), of which the cache holds the first
    /// `cached`: one decode step if only the last token is missing from the cache, else the
    /// shortest prefill that fits. Beyond `block_size` every token is a prefill of the last
    /// `block_size` tokens, as in nanoGPT: positions shift, so the cache is of no use.
    pub fn next_logits(&self, tokens: usize, cached: usize) -> Option<NextLogits<'_>> {
        let full = self.prefill.last()?;
        let last = tokens.checked_sub(1)?;
        if tokens as u64 > full.positions {
            let from = tokens - full.positions as usize;
            return Some(NextLogits {
                segment: full,
                from,
                position: full.positions - 1,
                cached: 0,
            });
        }
        let (position, cached_after) = (last as u64, tokens);
        if cached > 0 && cached == last {
            let segment = &self.decode;
            return Some(NextLogits { segment, from: last, position, cached: cached_after });
        }
        let segment = self.prefill.iter().find(|segment| segment.positions >= tokens as u64)?;
        Some(NextLogits { segment, from: 0, position, cached: cached_after })
    }
}

/// Builds the segments of generation.
pub(crate) fn segments(
    drafting: &mut Drafting<'_>,
    spec: &GenerateSpec,
) -> Result<GenerateSegments, PlanError> {
    let caches = caches(drafting, spec.rows)?;
    let mut lengths = spec.prefill.clone();
    lengths.push(drafting.spec.dims.block_size);
    lengths.sort_unstable();
    lengths.dedup();
    let mut prefill = Vec::new();
    for positions in lengths {
        let name = format!("prefill {}x{positions}", spec.rows);
        let sizes = [spec.rows, positions];
        prefill.push(logits_segment(drafting, &name, sizes, AttendTo::Fill(&caches))?);
    }
    let name = format!("decode {}x1", spec.rows);
    let decode = logits_segment(drafting, &name, [spec.rows, 1], AttendTo::Cached(&caches))?;
    Ok(GenerateSegments { prefill, decode })
}

/// Keys and values of each layer, kept between the segments of generation.
fn caches(drafting: &mut Drafting<'_>, rows: u64) -> Result<Vec<TensorId>, PlanError> {
    let (dims, network) = (drafting.spec.dims, drafting.spec.architecture.network());
    let shape = network.cache(&dims, rows);
    (0..dims.n_layer as u32)
        .map(|layer| {
            drafting.builder.tensor(Tensor {
                name: format!("h.{layer}.cache"),
                dtype: drafting.spec.types.compute,
                shape: Shape::new(&shape)?,
                role: Role::Cache,
                scope: Scope::Phase(Phase::Generate),
                layer: Some(layer),
                io: Io::Device,
                view: None,
            })
        })
        .collect()
}

fn logits_segment(
    drafting: &mut Drafting<'_>,
    name: &str,
    [rows, positions]: [u64; 2],
    attend_to: AttendTo<'_>,
) -> Result<LogitsSegment, PlanError> {
    let mut forward = drafting.forward(name, Phase::Generate, [rows, positions], 0.0);
    let tokens = forward.tokens("tokens")?;
    let mut x = forward.network(tokens, attend_to)?;
    let w = forward.weight(forward.spec.architecture.network().head())?;
    if attend_to.position() == PositionFrom::Zero {
        let shape = Shape::new(&[rows, 1, forward.width(x)])?;
        let dtype = forward.spec.types.compute;
        let out = forward.segment.local("last", dtype, shape, Role::Activation)?;
        forward.segment.push(SelectPosition { x, out })?;
        x = out;
    }
    let vocabulary = forward.segment.shape(w).rows();
    let shape = Shape::new(&[rows, 1, vocabulary])?;
    let segment = &mut forward.segment;
    let logits = segment.host_tensor("logits", Dtype::F32, shape, Role::Logits, Io::Output)?;
    let head =
        |workspace| Linear { x, w, bias: None, out: logits, gelu: None, residual: None, workspace };
    forward.segment.push_with_workspace(head)?;
    Ok(LogitsSegment { segment: forward.segment.finish(), positions, tokens, logits })
}
