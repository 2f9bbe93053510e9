//! The sum of gradients over all ranks: exchanged piece by piece, then added in the order of the
//! ranks, whatever the number of threads.

use crate::arena::{bytes_of, bytes_of_mut, halves_of_mut};
use crate::executor::StepContext;
use crate::pool::Output;
use crate::wire::Wire;
use plan::ops::ReduceScatter;
use plan::{BackendError, Dtype, half};

/// Elements of a unit of work.
const UNIT: usize = 16_384;

/// `total += g_0 + g_1 + …`; the gradients are zero afterwards, except a sum that stays there.
pub(crate) fn run(
    cx: &StepContext<'_>,
    op: &ReduceScatter,
    wire: &mut Wire,
) -> Result<(), BackendError> {
    let gradients = cx.memory.write(op.gradients);
    let workspace = cx.memory.write(op.workspace);
    let total = op.total.map(|id| cx.memory.write(id));
    let (own, first) = (op.pieces.own() as usize, op.pieces.before_own() as usize);
    if op.pieces.ranks() == 1 {
        // Nothing travels, but the rounding is the same as between several ranks.
        if op.wire != Dtype::F32 {
            gradients.iter_mut().for_each(|number| *number = travelled(op.wire, *number));
        }
        if let Some(total) = total {
            add_rows(cx, total, gradients, own);
            gradients.fill(0.0);
        }
        return Ok(());
    }
    let received = match op.wire {
        Dtype::F32 => {
            let received = &mut workspace[..own * op.pieces.ranks()];
            wire.all_to_all(bytes_of(gradients), (&op.pieces, 4), bytes_of_mut(received))?;
            Received::Single(received)
        }
        format => Received::Halves(format, exchange_halves(op, gradients, workspace, wire)?),
    };
    gradients.fill(0.0);
    let sum = match total {
        Some(total) => total,
        None => &mut gradients[first..first + own],
    };
    received.add_to(cx, sum, own);
    Ok(())
}

/// What arrived: one row of numbers from each rank.
enum Received<'a> {
    Single(&'a [f32]),
    Halves(Dtype, &'a [u16]),
}

impl Received<'_> {
    fn add_to(&self, cx: &StepContext<'_>, sum: &mut [f32], own: usize) {
        match *self {
            Received::Single(rows) => add_rows(cx, sum, rows, own),
            Received::Halves(wire, rows) => {
                cx.pool.split(
                    sum.len().div_ceil(UNIT),
                    [Output::new(sum, UNIT)],
                    |_, units, [sum]| {
                        let first = units.start * UNIT;
                        for row in rows.chunks_exact(own.max(1)) {
                            for (sum, &number) in sum.iter_mut().zip(&row[first..]) {
                                *sum += widened(wire, number);
                            }
                        }
                    },
                );
            }
        }
    }
}

/// Adds each row of `own` numbers, one row after the other.
fn add_rows(cx: &StepContext<'_>, sum: &mut [f32], rows: &[f32], own: usize) {
    cx.pool.split(sum.len().div_ceil(UNIT), [Output::new(sum, UNIT)], |_, units, [sum]| {
        let first = units.start * UNIT;
        for row in rows.chunks_exact(own.max(1)) {
            sum.iter_mut().zip(&row[first..]).for_each(|(sum, number)| *sum += number);
        }
    });
}

/// Sends gradients rounded to 16 bits; returns what arrived.
fn exchange_halves<'a>(
    op: &ReduceScatter,
    gradients: &[f32],
    workspace: &'a mut [f32],
    wire: &mut Wire,
) -> Result<&'a [u16], BackendError> {
    let (sent, received) = workspace.split_at_mut(gradients.len().div_ceil(2));
    let halves = &mut halves_of_mut(sent)[..gradients.len()];
    for (half, &number) in halves.iter_mut().zip(gradients) {
        *half = rounded(op.wire, number);
    }
    let rows = op.pieces.own() as usize * op.pieces.ranks();
    let sent = &bytes_of(sent)[..gradients.len() * 2];
    let room = &mut bytes_of_mut(received)[..rows * 2];
    wire.all_to_all(sent, (&op.pieces, 2), room)?;
    Ok(&halves_of_mut(received)[..rows])
}

fn rounded(wire: Dtype, number: f32) -> u16 {
    if wire == Dtype::F16 { half::to_f16(number) } else { half::to_bf16(number) }
}

fn widened(wire: Dtype, number: u16) -> f32 {
    if wire == Dtype::F16 { half::from_f16(number) } else { half::from_bf16(number) }
}

/// A number after it has been sent.
fn travelled(wire: Dtype, number: f32) -> f32 {
    widened(wire, rounded(wire, number))
}
