//! Generation: which segment gives the logits behind a context, and the segments themselves,
//! prefills of some lengths and the decode of one token.

use crate::forward::AttendTo;
use crate::params::Size;
use crate::program::{Drafting, GenerateSpec};
use plan::ops::{Linear, PositionFrom, SelectPosition};
use plan::{Dtype, Io, Phase, PlanError, Role, Scope, SegmentId, Shape, Tensor, TensorId};

/// A segment that takes tokens and yields logits of one position of each sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitsSegment {
    /// The segment.
    pub segment: SegmentId,
    /// Tokens of each sequence that it takes.
    pub positions: u64,
    /// `[rows, positions]` ids, written by the host.
    pub tokens: TensorId,
    /// `[rows, 1, vocab_size]`, read by the host.
    pub logits: TensorId,
}

/// Segments of generation.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateSegments {
    /// One for each prefill length, shortest first. Each fills the cache; when a context is full,
    /// each further token runs the longest one again on the last `block_size` tokens.
    pub prefill: Vec<LogitsSegment>,
    /// One more token, at `StepInputs::position`.
    pub decode: LogitsSegment,
}

/// How to get the logits behind a context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextLogits<'a> {
    /// What to run.
    pub segment: &'a LogitsSegment,
    /// First token to give it; all from here to the end of the context go in, padding behind.
    pub from: usize,
    /// `StepInputs::position`.
    pub position: u64,
    /// Tokens of the context that the cache holds afterwards; 0 when it cannot be continued.
    pub cached: usize,
}

impl GenerateSegments {
    /// For a context of `tokens` tokens (at least one) of which the cache holds the first `cached`:
    /// one decode step where the cache holds all but the last; else a prefill of the shortest
    /// length that fits. Beyond `block_size` every token is a prefill of the last `block_size`
    /// tokens, as in nanoGPT: positions move, so nothing of the cache can serve.
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

/// Keys and values of each layer, kept from one segment of generation to the next.
fn caches(drafting: &mut Drafting<'_>, rows: u64) -> Result<Vec<TensorId>, PlanError> {
    let (dims, network) = (drafting.spec.dims, drafting.spec.architecture.network());
    let [block, head] = [Size::Block, Size::Head].map(|size| network.size(size, &dims));
    let shape = [2, rows, dims.n_head, block, head];
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
    let (mut x, w) = forward.network(tokens, attend_to)?;
    if attend_to.position() == PositionFrom::Zero {
        let shape = Shape::new(&[rows, 1, forward.size(Size::Embd)])?;
        let dtype = forward.spec.types.compute;
        let out = forward.segment.local("last", dtype, shape, Role::Activation)?;
        forward.segment.push(SelectPosition { x, out })?;
        x = out;
    }
    let shape = Shape::new(&[rows, 1, forward.size(Size::Vocab)])?;
    let segment = &mut forward.segment;
    let logits = segment.host_tensor("logits", Dtype::F32, shape, Role::Logits, Io::Output)?;
    let head = |workspace| Linear { x, w, bias: None, out: logits, workspace };
    forward.segment.push_with_workspace(head)?;
    Ok(LogitsSegment { segment: forward.segment.finish(), positions, tokens, logits })
}
