//! Finds races from lanes and waits alone. Every byte records which step touched it last on each
//! lane, and the next step that touches it must come after those. This check does not rely on
//! derived waits or placement. It shares only `ranges.rs`, the map of byte ranges, with `lanes.rs`.

use crate::lanes::Lane;
use crate::ops::Access;
use crate::ranges::Ranges;
use crate::schedule::Step;
use crate::verify::Touch;

/// Two steps that touch the same bytes in no fixed order, although at least one of them writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Race {
    pub(crate) first: usize,
    pub(crate) second: usize,
}

/// By lane: the number of the last step, counted from 1; 0 for none.
type Last = [usize; Lane::ALL.len()];

/// Which steps touched a byte last.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    wrote: Last,
    read: Last,
}

/// Whether a wait is for an earlier step of another lane.
pub(crate) fn is_wait_sound(steps: &[Step], step: usize, wait: usize) -> bool {
    wait < step && steps[wait].lane != steps[step].lane
}

/// All races of a segment. `touches` lists the bytes that each step touches.
pub(crate) fn races(steps: &[Step], touches: &[Vec<Touch>]) -> Vec<Race> {
    let mut races = Vec::new();
    if steps.iter().all(|step| step.lane == steps[0].lane) {
        return races; // one after the other
    }
    let mut past = Ranges::<Past>::default();
    let mut seen: Vec<Last> = Vec::with_capacity(steps.len());
    for (second, (step, touches)) in steps.iter().zip(touches).enumerate() {
        let before = seen_by(steps, &seen, second);
        let mut raced: Vec<usize> = Vec::new();
        for Touch { range, access, .. } in touches {
            let writes = *access != Access::Read;
            past.change(range.clone(), |byte| {
                for lane in Lane::ALL.map(|lane| lane as usize) {
                    let others = [Some(byte.wrote[lane]), writes.then_some(byte.read[lane])];
                    let unordered = |number: &usize| *number > before[lane] && *number <= second;
                    raced.extend(others.into_iter().flatten().filter(unordered));
                }
                let last = if writes { &mut byte.wrote } else { &mut byte.read };
                last[step.lane as usize] = second + 1;
            });
        }
        raced.sort_unstable();
        raced.dedup();
        races.extend(raced.into_iter().map(|number| Race { first: number - 1, second }));
        let mut after = before;
        after[step.lane as usize] = second + 1;
        seen.push(after);
    }
    races
}

/// By lane, the last step that has certainly ended when a step begins: its predecessor on the lane,
/// the steps it waits for, and all that had ended before those.
fn seen_by(steps: &[Step], seen: &[Last], step: usize) -> Last {
    let predecessor = (0..step).rev().find(|&other| steps[other].lane == steps[step].lane);
    let waits = steps[step].waits.iter().copied().filter(|&w| is_wait_sound(steps, step, w));
    let mut before = Last::default();
    for other in waits.chain(predecessor) {
        for (mine, theirs) in before.iter_mut().zip(seen[other]) {
            *mine = theirs.max(*mine);
        }
    }
    before
}
