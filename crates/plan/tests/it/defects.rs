//! `verify` finds every kind of defect that is planted in a sound plan, names it, and reports
//! nothing else.

use crate::fixture;
use fitgpt_plan::ops::{Gelu, GeluKind, LossScaler, Op, Scaling, Transfer};
use fitgpt_plan::verify::{defects, verify};
use fitgpt_plan::{
    Bytes, Dtype, Live, Phase, Placement, Plan, Role, ScheduleBuilder, Scope, Scratch, Tensor,
    TensorId, Tensors, View,
};

/// A planted defect and what `verify` must report: each text is part of at least one message, and
/// each message contains one of the texts.
struct Case {
    name: &'static str,
    plant: fn(&mut Plan),
    messages: &'static [&'static str],
}

const TRAIN: usize = 0;
const PREFILL: usize = 1;
const DECODE: usize = 2;

fn id(plan: &Plan, tensor: &str) -> TensorId {
    plan.schedule.tensors.find(tensor).expect("the fixture has this tensor")
}

fn place<'a>(plan: &'a mut Plan, segment: usize, tensor: &str) -> &'a mut Placement {
    let id = id(plan, tensor);
    let mut places = plan.layouts[segment].placements.iter_mut();
    places.find(|place| place.tensor == id).expect("the tensor has a place in this segment")
}

fn at(plan: &Plan, segment: usize, tensor: &str) -> u64 {
    let id = id(plan, tensor);
    plan.layouts[segment]
        .placement(id)
        .expect("the tensor has a place in this segment")
        .offset
        .get()
}

fn move_to(plan: &mut Plan, segment: usize, tensor: &str, offset: u64) {
    place(plan, segment, tensor).offset = fixture::bytes(offset);
}

/// Makes room above all tensors and returns where it starts.
fn room(plan: &mut Plan) -> u64 {
    let top = plan.arena_bytes.get();
    plan.arena_bytes = fixture::bytes(top + 4096);
    top
}

/// The fixture with separate bytes for every tensor, in the order of the table. What a planted
/// defect causes then depends on the defect alone, not on which tensors share bytes.
fn spread() -> Plan {
    let mut plan = fixture::plan();
    let mut top = plan.arena_bytes.get();
    for layout in &mut plan.layouts {
        for place in &mut layout.placements {
            if matches!(plan.schedule.tensors.get(place.tensor).scope, Scope::Segment(_)) {
                place.offset = fixture::bytes(top);
                top += place.size.aligned().expect("the fixture is small").get();
            }
        }
    }
    plan.arena_bytes = fixture::bytes(top);
    plan
}

fn remove(plan: &mut Plan, segment: usize, tensor: &str) {
    let id = id(plan, tensor);
    plan.layouts[segment].placements.retain(|place| place.tensor != id);
}

fn replace(plan: &mut Plan, segment: usize, step: usize, op: impl Into<Op>) {
    plan.schedule.segments[segment].steps[step].op = op.into();
}

fn gelu(plan: &Plan, x: &str, out: &str) -> Gelu {
    Gelu { x: id(plan, x), out: id(plan, out), kind: GeluKind::Erf }
}

fn check(cases: &[Case]) {
    for Case { name, plant, messages } in cases {
        let mut plan = spread();
        assert_eq!(defects(&plan, &Four), [], "{name}: before");
        plant(&mut plan);
        let defects = verify(plan, Four).expect_err(name);
        let found: Vec<String> = defects.iter().map(ToString::to_string).collect();
        for message in *messages {
            let hit = found.iter().any(|defect| defect.contains(message));
            assert!(hit, "{name}: nothing says {message:?}: {found:#?}");
        }
        for defect in &found {
            let wanted = messages.iter().any(|message| defect.contains(message));
            assert!(wanted, "{name}: also says {defect:?}");
        }
    }
}

#[test]
fn bytes_shared_while_both_are_alive() {
    check(&[
        Case {
            name: "one byte, and so also off the alignment",
            plant: |plan| {
                let top = room(plan);
                move_to(plan, TRAIN, "h", top);
                move_to(plan, TRAIN, "n", top + 259);
            },
            messages: &[
                "train: h and n share 1 bytes while both are alive",
                "train: n has offset",
                "train step 3 (gelu_backward) reads h, which nothing has written",
                "train step 3 (gelu_backward) writes h and touches n, which shares its bytes",
            ],
        },
        Case {
            name: "one element, both aligned",
            plant: |plan| {
                let top = room(plan);
                move_to(plan, TRAIN, "g", top);
                move_to(plan, TRAIN, "late", top + 256);
            },
            messages: &["train: g and late share 4 bytes", "step 2 (layernorm) reads late"],
        },
        Case {
            name: "inputs on each other",
            plant: |plan| {
                let x = at(plan, TRAIN, "x");
                move_to(plan, TRAIN, "late", x);
            },
            messages: &[
                "train: x and late share 120 bytes while both are alive",
                "train step 0 (linear) reads x, which nothing has written",
            ],
        },
        Case {
            name: "a tensor that no later step reads, on one that is read",
            plant: |plan| {
                let h = at(plan, TRAIN, "h");
                move_to(plan, TRAIN, "mean", h);
            },
            messages: &["h and mean share 20 bytes", "step 3 (gelu_backward) reads h"],
        },
    ]);
}

#[test]
fn early_frees() {
    check(&[
        Case {
            name: "life too short",
            plant: |plan| place(plan, TRAIN, "h").live.last -= 1,
            messages: &["train step 3 (gelu_backward) touches h outside its lifetime"],
        },
        Case {
            name: "life begins too late",
            plant: |plan| place(plan, TRAIN, "g").live.first += 1,
            messages: &["train step 1 (gelu) touches g outside its lifetime"],
        },
        Case {
            name: "another tensor on bytes that are still needed",
            plant: |plan| {
                let h = at(plan, TRAIN, "h");
                place(plan, TRAIN, "h").live.last = 1;
                move_to(plan, TRAIN, "n", h);
            },
            messages: &[
                "train step 3 (gelu_backward) touches h outside its lifetime",
                "train step 3 (gelu_backward) reads h, which nothing has written",
                "train step 3 (gelu_backward) writes h and touches n",
            ],
        },
        Case {
            name: "an input given away before it is read",
            plant: |plan| {
                let late = at(plan, TRAIN, "late");
                place(plan, TRAIN, "late").live = Live { first: 2, last: 2 };
                place(plan, TRAIN, "h").live.last = 1;
                move_to(plan, TRAIN, "h", late);
            },
            messages: &["step 2 (layernorm) reads late", "step 3 (gelu_backward) touches h"],
        },
        Case {
            name: "an output clobbered before the end",
            plant: |plan| {
                let g = at(plan, TRAIN, "g");
                move_to(plan, TRAIN, "y", g);
            },
            messages: &[
                "train: g and y share 260 bytes while both are alive",
                "train (after its last step) reads g, which nothing has written",
            ],
        },
        Case {
            name: "an output clobbered after a life that is too short",
            plant: |plan| {
                let g = at(plan, TRAIN, "g");
                place(plan, TRAIN, "g").live.last = 2;
                move_to(plan, TRAIN, "y", g);
            },
            messages: &["train (after its last step) reads g, which nothing has written"],
        },
    ]);
}

#[test]
fn reads_before_writes() {
    check(&[
        Case {
            name: "the producing step is gone",
            plant: |plan| {
                let state = id(plan, "state");
                replace(plan, TRAIN, 1, LossScaler { state, scaling: Scaling::Off });
            },
            messages: &["step 2 (layernorm) reads g", "train (after its last step) reads g"],
        },
        Case {
            name: "an output that no step writes",
            plant: |plan| {
                let state = id(plan, "state");
                replace(plan, TRAIN, 4, LossScaler { state, scaling: Scaling::Off });
            },
            messages: &["train (after its last step) reads y, which nothing has written"],
        },
        Case {
            name: "only a part was written",
            plant: |plan| {
                let h = id(plan, "h");
                let view = Some(View { root: h, offset: Bytes::ZERO });
                let part = Tensor {
                    shape: fixture::shape(&[13]),
                    view,
                    ..plan.schedule.tensors.get(h).clone()
                };
                let out = plan.schedule.tensors.add(part).expect("the part is inside");
                let x = id(plan, "gain");
                replace(plan, TRAIN, 0, Gelu { x, out, kind: GeluKind::Erf });
            },
            messages: &["step 1 (gelu) reads h", "step 3 (gelu_backward) reads h"],
        },
    ]);
}

#[test]
fn reads_in_the_wrong_place() {
    check(&[
        Case {
            name: "two steps in the wrong order",
            plant: |plan| {
                place(plan, TRAIN, "n").live.first = 1;
                plan.schedule.segments[TRAIN].steps[1..=3].rotate_right(1);
                place(plan, TRAIN, "late").live.last = 3;
                for name in ["sum", "mean", "rstd"] {
                    place(plan, TRAIN, name).live.last = 3;
                }
            },
            messages: &["train step 1 (gelu_backward) reads n, which nothing has written"],
        },
        Case {
            name: "another segment's input",
            plant: |plan| {
                let x = id(plan, "x");
                let borrowed = *place(plan, TRAIN, "x");
                let offset = fixture::bytes(room(plan));
                let live = Live { first: 0, last: 1 };
                plan.layouts[DECODE].placements.push(Placement { offset, live, ..borrowed });
                let near = id(plan, "near_kept");
                let op = Gelu { x, out: near, kind: GeluKind::Erf };
                plan.schedule.segments[DECODE].steps[1].op = op.into();
            },
            messages: &[
                "decode step 1 (gelu) reads x",
                "(after its last step) reads logits",
                "decode step 1 (gelu): gelu: operand out",
            ],
        },
    ]);
}

#[test]
fn lives_that_no_step_has() {
    check(&[
        Case {
            name: "beyond the last step",
            plant: |plan| place(plan, TRAIN, "y").live.last = 5,
            messages: &["train: y lives from step 4 to 5"],
        },
        Case {
            name: "ended before it began",
            plant: |plan| place(plan, TRAIN, "h").live = Live { first: 3, last: 0 },
            messages: &["train: h lives from step 3 to 0", "touches h outside its lifetime"],
        },
    ]);
}

/// Matmuls need one element of workspace, which is what the fixture has.
#[derive(Debug)]
struct Four;

impl Scratch for Four {
    fn bytes(&self, op: &Op, _: &Tensors) -> Option<Bytes> {
        match op {
            Op::Linear(_) => Some(fixture::bytes(4)),
            _ => Some(Bytes::ZERO),
        }
    }
}

/// Asks for more than the fixture has, for one op with a workspace and one without.
#[derive(Debug)]
struct Greedy(Option<Bytes>);

impl Scratch for Greedy {
    fn bytes(&self, op: &Op, _: &Tensors) -> Option<Bytes> {
        match op {
            Op::Linear(_) | Op::Gelu(_) => self.0,
            _ => Some(Bytes::ZERO),
        }
    }
}

#[test]
fn workspaces_that_are_too_small() {
    let said = |needed: Option<Bytes>| {
        let defects = verify(spread(), Greedy(needed)).unwrap_err();
        defects.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let five = said(Some(fixture::bytes(5)));
    assert!(five.contains(&"train step 0 (linear) has 4 bytes of workspace, 5 needed".into()));
    assert!(five.contains(&"train step 1 (gelu) has 0 bytes of workspace, 5 needed".into()));
    let uncounted = said(None);
    let want = "train step 0 (linear) has 4 bytes of workspace, more than 2^63 needed";
    assert!(uncounted.contains(&want.into()), "{uncounted:?}");
    assert_eq!(five.len(), uncounted.len());
}

#[test]
fn steps_that_break_the_rule_of_their_op() {
    check(&[Case {
        name: "a result wider than its input, on bytes that are free",
        plant: |plan| replace(plan, TRAIN, 4, gelu(plan, "rstd", "y")),
        messages: &[
            "train step 4 (gelu): gelu: operand out (y) is f32 [1, 5, 13], the op needs [5]",
            "train step 4 (gelu) touches rstd outside its lifetime",
        ],
    }]);
}

#[test]
fn places_that_cannot_be() {
    check(&[
        Case {
            name: "off the alignment",
            plant: |plan| {
                let top = room(plan);
                move_to(plan, TRAIN, "y", top + 128);
            },
            messages: &["train: y has offset", "which is not aligned"],
        },
        Case {
            name: "a step's tensor without a place",
            plant: |plan| remove(plan, TRAIN, "n"),
            messages: &[
                "train: n is used by step 2 but has no placement",
                "train: n is used by step 3 but has no placement",
                "train: n is used by step 4 but has no placement",
            ],
        },
        Case {
            name: "a run-wide tensor without a place where no step touches it",
            plant: |plan| remove(plan, DECODE, "kept"),
            messages: &["decode: kept must survive this segment but has no placement in it"],
        },
        Case {
            name: "an input without a place that no step touches",
            plant: |plan| {
                let state = id(plan, "state");
                replace(plan, TRAIN, 0, LossScaler { state, scaling: Scaling::Off });
                replace(plan, TRAIN, 1, gelu(plan, "late", "g"));
                replace(plan, TRAIN, 3, gelu(plan, "n", "h"));
                remove(plan, TRAIN, "x");
            },
            messages: &["train: x must survive this segment but has no placement in it"],
        },
    ]);
}

#[test]
fn sizes_and_places_that_contradict() {
    check(&[
        Case {
            name: "too few bytes",
            plant: |plan| place(plan, TRAIN, "y").size = fixture::bytes(256),
            messages: &["train: y has 256 bytes planned, 260 needed"],
        },
        Case {
            name: "too many bytes",
            plant: |plan| place(plan, TRAIN, "mean").size = fixture::bytes(24),
            messages: &["train: mean has 24 bytes planned, 20 needed"],
        },
        Case {
            name: "beyond the arena",
            plant: |plan| {
                let top = plan.arena_bytes.get();
                move_to(plan, TRAIN, "y", top - 256);
                move_to(plan, TRAIN, "g", top + 512);
            },
            messages: &["train: y ends at", "train: g ends at"],
        },
        Case {
            name: "an arena smaller than its plan",
            plant: |plan| plan.arena_bytes = Bytes::ZERO,
            messages: &["beyond the arena"],
        },
        Case {
            name: "two places for one tensor",
            plant: |plan| {
                let copy = *place(plan, TRAIN, "h");
                let offset = fixture::bytes(room(plan));
                plan.layouts[TRAIN].placements.push(Placement { offset, ..copy });
            },
            messages: &["train: h has more than one placement"],
        },
        Case {
            name: "a segment without a layout",
            plant: |plan| plan.layouts.truncate(2),
            messages: &["3 segments: the plan has 2 layouts"],
        },
    ]);
}

#[test]
fn operands_that_share_bytes() {
    check(&[
        Case {
            name: "one tensor twice",
            plant: |plan| replace(plan, TRAIN, 4, gelu(plan, "n", "n")),
            messages: &[
                "train step 4 (gelu) writes n and touches n, which shares its bytes",
                "train (after its last step) reads y",
            ],
        },
        Case {
            name: "two windows that overlap",
            plant: |plan| replace(plan, PREFILL, 1, gelu(plan, "gain", "near_gain")),
            messages: &[
                "prefill step 1 (gelu) writes gain and touches near_gain",
                "prefill (after its last step) reads echo",
            ],
        },
        Case {
            name: "a tensor and a window into it",
            plant: |plan| replace(plan, PREFILL, 1, gelu(plan, "near_kept", "kept")),
            messages: &[
                "prefill step 1 (gelu) writes near_kept and touches kept",
                "prefill (after its last step) reads echo",
                "prefill step 1 (gelu): gelu: operand out",
            ],
        },
    ]);
}

#[test]
fn what_outlives_segments() {
    check(&[
        Case {
            name: "a run-wide tensor moves",
            plant: |plan| {
                let top = room(plan);
                move_to(plan, DECODE, "weights", top);
            },
            messages: &["weights has offset 0 in train and"],
        },
        Case {
            name: "a phase-wide tensor moves between segments of its phase",
            plant: |plan| {
                let top = room(plan);
                move_to(plan, DECODE, "cache", top);
            },
            messages: &["cache has offset 1280 in prefill and"],
        },
        Case {
            name: "a transient on a run-wide tensor that the segment never touches",
            plant: |plan| {
                let kept = at(plan, TRAIN, "kept");
                move_to(plan, TRAIN, "mean", kept);
            },
            messages: &["kept and mean share 20 bytes", "train (after its last step) reads kept"],
        },
        Case {
            name: "the same, where the plan claims that it is free",
            plant: |plan| {
                let kept = at(plan, TRAIN, "kept");
                place(plan, TRAIN, "kept").live = Live { first: 0, last: 0 };
                move_to(plan, TRAIN, "mean", kept);
            },
            messages: &["kept and mean share 20 bytes", "train (after its last step) reads kept"],
        },
        Case {
            name: "a transient on the cache",
            plant: |plan| {
                let cache = at(plan, DECODE, "cache");
                move_to(plan, DECODE, "att", cache);
            },
            messages: &[
                "decode: cache and att share 24 bytes",
                "decode step 0 (attention_decode) writes cache and touches att",
                "decode (after its last step) reads cache",
            ],
        },
    ]);
}

/// State in host memory is placed after the arena, and a wrong placement is reported.
#[test]
fn host_memory_is_checked_too() {
    let mut builder = ScheduleBuilder::new();
    let shape = fixture::shape(&[64]);
    let kept = builder.held_tensor("kept", Dtype::F32, shape, Role::Moment, Scope::Host).unwrap();
    let out = builder.run_tensor("out", Dtype::F32, shape, Role::Moment).unwrap();
    let mut segment = builder.segment("s", Phase::Train);
    let here = segment.local("here", Dtype::F32, shape, Role::Moment).unwrap();
    segment.push(Transfer { from: kept, to: here }).unwrap();
    segment.push(Gelu { x: here, out, kind: GeluKind::Erf }).unwrap();
    segment.push(Transfer { from: here, to: kept }).unwrap();
    segment.finish();
    let plan = Plan::new(builder.finish()).unwrap();
    assert_eq!(defects(&plan, &Four), []);
    assert_eq!((plan.arena_bytes.get(), plan.host_bytes.get()), (512, 256));
    assert_eq!(at(&plan, TRAIN, "kept"), 512, "behind the arena");
    let said = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        let defects = verify(plan, Four).unwrap_err();
        defects.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let inside = said(&|plan| move_to(plan, TRAIN, "kept", 0));
    assert!(inside.contains("kept ends at 256, beyond the arena"), "{inside}");
    let beyond = said(&|plan| move_to(plan, TRAIN, "kept", 768));
    assert!(beyond.contains("kept ends at 1024, beyond the arena"), "{beyond}");
    let outside = said(&|plan| move_to(plan, TRAIN, "here", 512));
    assert!(outside.contains("here ends at 768, beyond the arena"), "{outside}");
}
