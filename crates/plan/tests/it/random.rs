//! Random schedules of real ops, on two lanes with joins, over state on the host, with and without
//! recompute. Each must be placed, proved and close to its lower bound. Then one placement of each
//! is moved at random, and `verify` must agree with a check that replays the plan
//! byte by byte and shares no code with it.

use crate::fixture::{EPSILON, bytes, shape};
use fitgpt_plan::ops::{
    Access, Branch, Gelu, GeluBackward, GeluKind, LayerNorm, Linear, Op, Operand, Transfer,
};
use fitgpt_plan::recompute::recompute;
use fitgpt_plan::verify::defects;
use fitgpt_plan::{
    Defect, Dtype, Io, Lane, NoScratch, OPERAND_ALIGNMENT, Pass, Phase, Placement, Plan, PlanError,
    Role, Schedule, ScheduleBuilder, Scope, SegmentBuilder, Step, Tensor, TensorId,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const PHASES: [Phase; 3] = [Phase::Train, Phase::Eval, Phase::Generate];

/// One step. Its operands are picks among the tensors that exist when it is built.
#[derive(Clone, Copy, Debug)]
enum Recipe {
    Gelu {
        x: usize,
        output: bool,
    },
    GeluBackward {
        x: usize,
        d: usize,
    },
    Linear {
        x: usize,
        width: usize,
        bias: bool,
        output: bool,
    },
    LayerNorm {
        x: usize,
        branch: Option<usize>,
        output: bool,
    },
    /// A copy of state on the host, to a new tensor.
    Arrive {
        state: usize,
    },
    /// A copy of a tensor to state on the host.
    Leave {
        x: usize,
        state: usize,
    },
    /// The next step of a lane waits for all steps so far.
    Join {
        second: bool,
    },
}

/// One segment: its phase, the widths of its inputs, its steps.
#[derive(Clone, Debug)]
struct SegmentRecipe {
    phase: usize,
    inputs: Vec<usize>,
    /// Whether its inputs are run-wide, which no step may write.
    run_inputs: bool,
    /// Each with whether it would run on the second lane.
    steps: Vec<(Recipe, bool)>,
    /// The backward starts after so many steps.
    forward: usize,
    /// Picks among the tensors: those that the backward would make again.
    dropped: Vec<usize>,
}

/// A whole schedule; widths are picked from `widths` by index.
#[derive(Clone, Debug)]
struct ScheduleRecipe {
    rows: u64,
    widths: [u64; 3],
    /// Sizes of run-wide tensors that no step touches.
    idle: Vec<u64>,
    /// Widths of state on the host.
    state: Vec<usize>,
    /// Whether steps that ask for the second lane get it.
    lanes: bool,
    /// Whether joins are made. Without them, waits are the fewest.
    joins: bool,
    /// For each phase, the width of a tensor that its segments share.
    shared: [Option<usize>; 3],
    segments: Vec<SegmentRecipe>,
}

fn step() -> impl Strategy<Value = Recipe> {
    let pick = || any::<usize>();
    prop_oneof![
        (pick(), prop::bool::weighted(0.2)).prop_map(|(x, output)| Recipe::Gelu { x, output }),
        (pick(), pick()).prop_map(|(x, d)| Recipe::GeluBackward { x, d }),
        (pick(), 0..3usize, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(x, width, bias, output)| Recipe::Linear { x, width, bias, output }),
        (pick(), prop::option::of(pick()), prop::bool::weighted(0.2))
            .prop_map(|(x, branch, output)| Recipe::LayerNorm { x, branch, output }),
        pick().prop_map(|state| Recipe::Arrive { state }),
        (pick(), pick()).prop_map(|(x, state)| Recipe::Leave { x, state }),
        any::<bool>().prop_map(|second| Recipe::Join { second }),
    ]
}

fn segment() -> impl Strategy<Value = SegmentRecipe> {
    let inputs = prop::collection::vec(0..3usize, 1..4);
    let steps = prop::collection::vec((step(), any::<bool>()), 1..16);
    let dropped = prop::collection::vec(any::<usize>(), 0..4);
    (0..3usize, inputs, any::<bool>(), steps, 1..16usize, dropped).prop_map(
        |(phase, inputs, run_inputs, steps, forward, dropped)| SegmentRecipe {
            phase,
            inputs,
            run_inputs,
            steps,
            forward,
            dropped,
        },
    )
}

fn schedule() -> impl Strategy<Value = ScheduleRecipe> {
    let idle = prop::collection::vec(1..300u64, 0..3);
    let shared = prop::array::uniform3(prop::option::of(0..3usize));
    let segments = prop::collection::vec(segment(), 1..4);
    let state = prop::collection::vec(0..3usize, 0..3);
    let sizes = (1..24u64, prop::array::uniform3(1..20u64));
    (sizes, idle, state, any::<[bool; 2]>(), shared, segments).prop_map(
        |((rows, widths), idle, state, [lanes, joins], shared, segments)| ScheduleRecipe {
            rows,
            widths,
            idle,
            state,
            lanes,
            joins,
            shared,
            segments,
        },
    )
}

/// What outlives segments.
struct Held {
    /// `[out][in]`
    weights: [[TensorId; 3]; 3],
    vectors: [TensorId; 3],
    workspace: TensorId,
    shared: [Option<(TensorId, usize)>; 3],
    /// On the host.
    state: Vec<(TensorId, usize)>,
}

fn held(recipe: &ScheduleRecipe, b: &mut ScheduleBuilder) -> Result<Held, PlanError> {
    let widths = recipe.widths;
    let total: u64 = widths.iter().sum::<u64>() * (widths.iter().sum::<u64>() + 1);
    let total = total + 12 * (OPERAND_ALIGNMENT / 4); // twelve windows, each aligned
    let flat = b.run_tensor("flat", Dtype::F32, shape(&[total]), Role::Weight)?;
    let mut next = 0;
    let mut window = |b: &mut ScheduleBuilder, dims: &[u64]| {
        let offset = bytes(4 * next);
        next += dims.iter().product::<u64>().next_multiple_of(OPERAND_ALIGNMENT / 4);
        b.window("w", shape(dims), flat, offset, None)
    };
    let mut weights = [[flat; 3]; 3];
    let mut vectors = [flat; 3];
    for out in 0..3 {
        vectors[out] = window(b, &[widths[out]])?;
        for input in 0..3 {
            weights[out][input] = window(b, &[widths[out], widths[input]])?;
        }
    }
    for &elements in &recipe.idle {
        b.run_tensor("idle", Dtype::Bf16, shape(&[elements]), Role::Moment)?;
    }
    let workspace = b.run_tensor("workspace", Dtype::F32, shape(&[3]), Role::Workspace)?;
    let mut shared = [None; 3];
    for (phase, width) in recipe.shared.iter().enumerate() {
        let Some(width) = *width else { continue };
        let tensor = Tensor {
            name: "shared".to_string(),
            dtype: Dtype::F32,
            shape: shape(&[recipe.rows, widths[width]]),
            role: Role::Cache,
            scope: Scope::Phase(PHASES[phase]),
            layer: None,
            io: Io::Device,
            view: None,
        };
        shared[phase] = Some((b.tensor(tensor)?, width));
    }
    let mut state = Vec::new();
    for &width in &recipe.state {
        let shape = shape(&[recipe.rows, widths[width]]);
        let id = b.held_tensor("state", Dtype::F32, shape, Role::Moment, Scope::Host)?;
        state.push((id, width));
    }
    Ok(Held { weights, vectors, workspace, shared, state })
}

fn build(recipe: &ScheduleRecipe) -> Result<Schedule, PlanError> {
    let mut builder = ScheduleBuilder::new();
    let held = held(recipe, &mut builder)?;
    let mut dropped = Vec::new();
    for (index, part) in recipe.segments.iter().enumerate() {
        let segment = builder.segment(&format!("segment {index}"), PHASES[part.phase]);
        let mut chain = Chain::new(recipe, &held, segment);
        for &width in &part.inputs {
            match part.run_inputs {
                true => chain.add_run_input(width)?,
                false => chain.add(width, Io::Input).map(drop)?,
            }
        }
        chain.tensors.extend(held.shared[part.phase]);
        for (index, &(step, second)) in part.steps.iter().enumerate() {
            if index == part.forward {
                chain.segment.set_pass(Pass::Backward);
            }
            chain.lane = recipe.lane(second);
            chain.step(step)?;
        }
        let pick = |&pick: &usize| chain.tensors[pick % chain.tensors.len()].0;
        let picked: BTreeSet<TensorId> = part.dropped.iter().map(pick).collect();
        dropped.push((chain.segment.finish(), picked));
    }
    let mut schedule = builder.finish();
    for (segment, dropped) in dropped {
        let before = schedule.clone();
        // What no step of the forward makes cannot be made again.
        if recompute(&mut schedule, segment, &dropped).is_err() {
            schedule = before;
        }
    }
    Ok(schedule)
}

impl ScheduleRecipe {
    fn lane(&self, second: bool) -> Lane {
        if self.lanes && second { Lane::Upload } else { Lane::Compute }
    }
}

/// A segment being built. The next step can read `tensors`, each with the index of its width.
struct Chain<'a> {
    recipe: &'a ScheduleRecipe,
    held: &'a Held,
    segment: SegmentBuilder<'a>,
    tensors: Vec<(TensorId, usize)>,
    /// Those of them that the host alone writes.
    run_inputs: BTreeSet<TensorId>,
    lane: Lane,
}

impl<'a> Chain<'a> {
    fn new(recipe: &'a ScheduleRecipe, held: &'a Held, segment: SegmentBuilder<'a>) -> Chain<'a> {
        let (tensors, run_inputs) = (Vec::new(), BTreeSet::new());
        Chain { recipe, held, segment, tensors, run_inputs, lane: Lane::Compute }
    }

    fn add_run_input(&mut self, width: usize) -> Result<(), PlanError> {
        let shape = shape(&[self.recipe.rows, self.recipe.widths[width]]);
        let name = format!("t{}", self.tensors.len());
        let id = self.segment.run_input(&name, Dtype::F32, shape, Role::Activation)?;
        self.run_inputs.insert(id);
        self.tensors.push((id, width));
        Ok(())
    }

    fn add(&mut self, width: usize, io: Io) -> Result<TensorId, PlanError> {
        let shape = shape(&[self.recipe.rows, self.recipe.widths[width]]);
        let name = format!("t{}", self.tensors.len());
        let id = self.segment.host_tensor(&name, Dtype::F32, shape, Role::Activation, io)?;
        self.tensors.push((id, width));
        Ok(id)
    }

    fn result(&mut self, width: usize, output: bool) -> Result<TensorId, PlanError> {
        self.add(width, if output { Io::Output } else { Io::Device })
    }

    /// Another tensor of the same shape, if there is one.
    fn like(&self, (x, width): (TensorId, usize), pick: usize) -> Option<TensorId> {
        let same = |&&(id, w): &&(TensorId, usize)| w == width && id != x;
        let found: Vec<_> = self.tensors.iter().filter(same).collect();
        (!found.is_empty()).then(|| found[pick % found.len()].0)
    }

    fn step(&mut self, recipe: Recipe) -> Result<(), PlanError> {
        let kind = GeluKind::Erf;
        let pick = |pick: usize| self.tensors[pick % self.tensors.len()];
        match recipe {
            Recipe::Gelu { x, output } => {
                let (x, width) = pick(x);
                let out = self.result(width, output)?;
                self.segment.push_on(self.lane, Gelu { x, out, kind })
            }
            Recipe::GeluBackward { x, d } => match self.like(pick(x), d) {
                Some(d) if !self.run_inputs.contains(&d) => self
                    .segment
                    .push_on(self.lane, GeluBackward { x: pick(x).0, d, kind, again: false }),
                _ => Ok(()),
            },
            Recipe::Linear { x, width, bias, output } => {
                let (x, inputs) = pick(x);
                let Held { weights, vectors, workspace, .. } = *self.held;
                let (w, bias) = (weights[width][inputs], bias.then_some(vectors[width]));
                let out = self.result(width, output)?;
                let linear = Linear { x, w, bias, out, gelu: None, residual: None, workspace };
                self.segment.push_on(self.lane, linear)
            }
            Recipe::LayerNorm { x, branch, output } => {
                let (x, width) = pick(x);
                let branch = branch.and_then(|pick| self.like((x, width), pick));
                let rows = shape(&[self.recipe.rows]);
                let [mean, rstd] = ["mean", "rstd"]
                    .map(|name| self.segment.local(name, Dtype::F32, rows, Role::Activation));
                let out = self.result(width, output)?;
                let sum = branch.map(|_| self.result(width, false)).transpose()?;
                let add = branch.zip(sum).map(|(branch, sum)| {
                    let dropout = None;
                    Branch { branch, dropout, sum }
                });
                let (gain, bias) = (self.held.vectors[width], None);
                let (mean, rstd) = (mean?, rstd?);
                let norm = LayerNorm { x, add, gain, bias, out, mean, rstd, epsilon: EPSILON };
                self.segment.push_on(self.lane, norm)
            }
            Recipe::Arrive { state } => self.arrive(state),
            Recipe::Leave { x, state } => {
                let (from, width) = pick(x);
                let fits = |(_, other): &&(TensorId, usize)| *other == width;
                let fitting: Vec<_> = self.held.state.iter().filter(fits).collect();
                match fitting.len() {
                    0 => Ok(()),
                    count => {
                        let to = fitting[state % count].0;
                        self.segment.push_on(self.lane, Transfer { from, to })
                    }
                }
            }
            Recipe::Join { second } => {
                if self.recipe.joins {
                    self.segment.join(self.recipe.lane(second));
                }
                Ok(())
            }
        }
    }

    fn arrive(&mut self, state: usize) -> Result<(), PlanError> {
        let count = self.held.state.len();
        if count == 0 {
            return Ok(());
        }
        let (from, width) = self.held.state[state % count];
        let to = self.result(width, false)?;
        self.segment.push_on(self.lane, Transfer { from, to })
    }
}

/// Which tensor a byte belongs to, and which of its bytes it is.
type Tag = Option<(TensorId, u64)>;

/// Replays the plan on an arena of tags, and marks which tensor is alive where. Returns whether it
/// is sound.
fn sound_byte_by_byte(plan: &Plan) -> bool {
    let mut arena: Vec<Tag> = vec![None; both_memories(plan)];
    let tensors = &plan.schedule.tensors;
    let inside = |p: &Placement| {
        let memory = match tensors.get(p.tensor).scope {
            Scope::Host => plan.arena_bytes.get()..both_memories(plan) as u64,
            _ => 0..plan.arena_bytes.get(),
        };
        let fits = memory.start <= p.offset.get() && p.end() <= memory.end;
        fits && p.offset.get().is_multiple_of(256)
    };
    if !plan.layouts.iter().flat_map(|layout| &layout.placements).all(inside) {
        return false;
    }
    let mut phase_before = None;
    let mut moved = false;
    let mut first_offsets = std::collections::HashMap::new();
    for (id, layout) in plan.schedule.segment_ids().zip(&plan.layouts) {
        let segment = plan.schedule.segment(id);
        for place in &layout.placements {
            let scope = tensors.get(place.tensor).scope;
            let new_here = match scope {
                Scope::Run | Scope::Host => phase_before.is_none(),
                Scope::Phase(phase) => phase_before != Some(phase),
                Scope::Segment(_) => tensors.get(place.tensor).io == Io::Input,
            };
            if new_here {
                put(&mut arena, plan, place.tensor, place.offset.get());
            }
            if !matches!(scope, Scope::Segment(_)) {
                let first = *first_offsets.entry(place.tensor).or_insert(place.offset);
                moved |= first != place.offset;
            }
        }
        phase_before = Some(segment.phase);
        let lives = alive_once(plan, &layout.placements, segment.steps.len());
        let steps = segment.steps.iter().all(|step| play(&mut arena, plan, layout, &step.op));
        let kept = layout.placements.iter().all(|place| {
            let output = tensors.get(place.tensor).io == Io::Output;
            let kept = output || plan.schedule.is_held(place.tensor, id);
            !kept || holds(&arena, plan, place.tensor, place.offset.get())
        });
        if !(lives && steps && kept && is_race_free(plan, layout, &segment.steps)) {
            return false;
        }
    }
    !moved
}

/// Bytes of the device's arena and the host's, which stand one behind the other.
fn both_memories(plan: &Plan) -> usize {
    (plan.arena_bytes.get() + plan.host_bytes.get()) as usize
}

/// Writes a tensor's tags; a view's are those of the bytes that it looks at.
fn put(arena: &mut [Tag], plan: &Plan, tensor: TensorId, root_offset: u64) {
    let (root, inner) = plan.schedule.tensors.root(tensor);
    for byte in inner.get()..inner.get() + plan.schedule.tensors.bytes(tensor).get() {
        arena[(root_offset + byte) as usize] = Some((root, byte));
    }
}

/// Whether all of a tensor's bytes hold its own tags.
fn holds(arena: &[Tag], plan: &Plan, tensor: TensorId, root_offset: u64) -> bool {
    let (root, inner) = plan.schedule.tensors.root(tensor);
    let mut range = inner.get()..inner.get() + plan.schedule.tensors.bytes(tensor).get();
    range.all(|byte| arena[(root_offset + byte) as usize] == Some((root, byte)))
}

fn play(arena: &mut [Tag], plan: &Plan, layout: &fitgpt_plan::SegmentLayout, op: &Op) -> bool {
    let operands = op.operation().operands();
    let offset = |operand: &Operand| {
        let (root, _) = plan.schedule.tensors.root(operand.tensor);
        layout.placement(root).expect("every operand has a place").offset.get()
    };
    let reads = operands.iter().filter(|operand| operand.access != Access::Write);
    if !reads.clone().all(|o| holds(arena, plan, o.tensor, offset(o))) {
        return false;
    }
    let writes: Vec<&Operand> = operands.iter().filter(|o| o.access != Access::Read).collect();
    for operand in &writes {
        put(arena, plan, operand.tensor, offset(operand));
    }
    // Written operands must have overwritten neither each other nor anything that was read.
    operands.iter().all(|o| holds(arena, plan, o.tensor, offset(o)))
}

/// Whether any two steps that touch a common byte, at least one of them writing, have an order: one
/// is reachable from the other through lane order and waits.
fn is_race_free(plan: &Plan, layout: &fitgpt_plan::SegmentLayout, steps: &[Step]) -> bool {
    let tensors = &plan.schedule.tensors;
    let ranges = |step: &Step| -> Vec<(std::ops::Range<u64>, bool)> {
        let range = |operand: &Operand| {
            let (root, inner) = tensors.root(operand.tensor);
            let place = layout.placement(root).expect("every operand has a place");
            let start = place.offset.get() + inner.get();
            let range = start..start + tensors.bytes(operand.tensor).get();
            (range, operand.access != Access::Read)
        };
        step.operands().iter().map(range).collect()
    };
    let ranges: Vec<_> = steps.iter().map(ranges).collect();
    let conflict = |first: usize, second: usize| {
        ranges[first].iter().any(|(a, a_writes)| {
            let common = |b: &std::ops::Range<u64>| a.start.max(b.start) < a.end.min(b.end);
            ranges[second].iter().any(|(b, b_writes)| (*a_writes || *b_writes) && common(b))
        })
    };
    let reaches = |from: usize, to: usize| {
        let mut reached = vec![false; steps.len()];
        reached[from] = true;
        for step in from + 1..=to {
            let on_lane = |&other: &usize| steps[other].lane == steps[step].lane;
            let mut before = (0..step).filter(on_lane).chain(steps[step].waits.iter().copied());
            reached[step] = before.any(|other| reached[other]);
        }
        reached[to]
    };
    (0..steps.len()).all(|to| (0..to).all(|from| !conflict(from, to) || reaches(from, to)))
}

/// No byte belongs to two tensors at one step.
fn alive_once(plan: &Plan, placements: &[Placement], steps: usize) -> bool {
    let mut owner = vec![usize::MAX; both_memories(plan)];
    (0..steps.max(1)).all(|step| {
        owner.fill(usize::MAX);
        let alive = placements.iter().enumerate().filter(|(_, place)| place.live.contains(step));
        alive.into_iter().all(|(index, place)| {
            let bytes = &mut owner[place.offset.get() as usize..place.end() as usize];
            bytes.iter_mut().all(|byte| std::mem::replace(byte, index) == usize::MAX)
        })
    })
}

/// Makes the device's arena larger; the host's moves up.
fn make_room(plan: &mut Plan, more: u64) {
    plan.arena_bytes = bytes(plan.arena_bytes.get() + more);
    for place in plan.layouts.iter_mut().flat_map(|layout| &mut layout.placements) {
        if plan.schedule.tensors.get(place.tensor).scope == Scope::Host {
            place.offset = bytes(place.offset.get() + more);
        }
    }
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn random_schedules_are_placed_and_proved(recipe in schedule()) {
        let plan = Plan::new(build(&recipe).expect("recipes obey the shape rules"));
        let plan = plan.expect("the schedule is small");
        prop_assert_eq!(defects(&plan, &NoScratch), []);
        prop_assert!(sound_byte_by_byte(&plan));
        let (arena, bound) = (plan.arena_bytes.get(), plan.lower_bound().get());
        prop_assert!(arena >= bound);
        // The bound assumes that steps run one by one; overlapping lanes may need more.
        let is_tight = recipe.lanes || 4 * arena <= 5 * bound;
        prop_assert!(is_tight, "{arena} bytes, the bound is {bound}");
        for (index, layout) in plan.layouts.iter().enumerate() {
            prop_assert!(layout.lower_bound <= layout.top && layout.top <= plan.arena_bytes);
            prop_assert!(layout.placements.iter().all(|p| p.offset.is_aligned()), "{index}");
        }
    }

    #[test]
    fn verify_agrees_with_the_bytes_about_a_moved_tensor(
        recipe in schedule(),
        segment in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        slot in any::<prop::sample::Index>(),
        nudge in prop_oneof![4 => Just(0), 1 => 1..256u64],
    ) {
        let mut plan = Plan::new(build(&recipe).expect("recipes obey the shape rules"))
            .expect("the schedule is small");
        make_room(&mut plan, 4096);
        let layout = &mut plan.layouts[segment.index(recipe.segments.len())];
        let place = place.index(layout.placements.len());
        let place = &mut layout.placements[place];
        let room = plan.arena_bytes.get() - place.size.get() - nudge;
        place.offset = bytes(slot.index(room as usize / 256 + 1) as u64 * 256 + nudge);
        let (defects, sound) = (defects(&plan, &NoScratch), sound_byte_by_byte(&plan));
        prop_assert_eq!(defects.is_empty(), sound, "{:?}", defects);
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// Waits are as few as possible: without any one of them two steps race, and the bytewise check
    /// agrees.
    #[test]
    fn every_wait_of_a_random_schedule_is_needed(
        recipe in schedule()
            .prop_map(|recipe| ScheduleRecipe { lanes: true, joins: false, ..recipe }),
    ) {
        let plan = Plan::new(build(&recipe).expect("recipes obey the shape rules"));
        let plan = plan.expect("the schedule is small");
        for (index, segment) in plan.schedule.segments.iter().enumerate() {
            for (step, wait) in (0..segment.steps.len())
                .flat_map(|step| (0..segment.steps[step].waits.len()).map(move |wait| (step, wait)))
            {
                let mut broken = plan.clone();
                broken.schedule.segments[index].steps[step].waits.remove(wait);
                let found = defects(&broken, &NoScratch);
                let raced = found.iter().any(|defect| matches!(defect, Defect::Race { .. }));
                prop_assert!(raced, "step {step}: {found:?}");
                prop_assert!(!sound_byte_by_byte(&broken));
            }
        }
    }
}
