//! What the schedules of a model are made of: parameters and their flat arrays, the tied head,
//! dropout at nanoGPT's places in training only, segments and their inputs; and sizes that make
//! no model, which are refused and never wrap.

use crate::specs::{Each, GPT2, NANOGPT, dims, eval, generate, model, scratch, train};
use fitgpt_model::{Dims, Draft, ProgramParam, ProgramSpec};
use plan::ops::{Dropout, DropoutSite, Op};
use plan::{GpuScratch, Io, Pass, Plan, Role, Schedule, Scope, SegmentId, Shape, Step, TensorId};
use std::rc::Rc;

const SMALL: Dims = dims([3, 2, 8], 16, 65, true);

/// Every kind of segment.
fn everything(dims: Dims, dropout: f32) -> ProgramSpec {
    let mut spec = model(dims, dropout);
    spec.train = Some(train(&dims, &[3, 2], 256));
    spec.eval = Some(eval(&dims, &[2], 256));
    spec.generate = Some(generate(2, &[16, 4, 16]));
    spec
}

fn build(spec: &ProgramSpec) -> Draft {
    Draft::new(spec, scratch()).expect("the model is small")
}

fn steps(schedule: &Schedule, segment: SegmentId) -> &[Step] {
    &schedule.segment(segment).steps
}

#[test]
fn parameters_are_those_of_the_published_models() {
    // Names are Hugging Face's; their counts are with the position embedding.
    for (sizes, want) in [
        ([12, 12, 768], 124_439_808),
        ([24, 16, 1024], 354_823_168),
        ([36, 20, 1280], 774_030_080),
        ([48, 25, 1600], 1_557_611_200),
    ] {
        let table = NANOGPT.parameters(&dims(sizes, 1024, 50257, true)).unwrap();
        assert_eq!(table.iter().map(|param| param.shape.elements()).sum::<u64>(), want);
        assert_eq!(table.len() as u64, 2 + 12 * sizes[0] + 2);
    }
}

#[test]
fn every_parameter_has_one_window_in_each_flat_array() {
    let Draft { program, schedule, .. } = build(&everything(SMALL, 0.0));
    let tensors = &schedule.tensors;
    for row in &program.parameters {
        let name = &row.param.name;
        let gradient = row.gradient.unwrap();
        let (_, offset) = tensors.root(row.weight);
        assert_eq!(row.state.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["m", "v"]);
        let state = row.state.iter().map(|&(name, id)| (id, name));
        for (window, array) in
            [(row.weight, "weights"), (gradient, "gradients")].into_iter().chain(state)
        {
            let (root, at) = tensors.root(window);
            assert_eq!((tensors.get(root).name.as_str(), at), (array, offset), "{name}");
            assert_eq!(tensors.get(window).shape, row.param.shape, "{name}");
            assert_eq!(tensors.get(root).scope, Scope::Run);
            assert!(at.is_aligned(), "{name}");
        }
        assert_eq!(tensors.get(row.weight).name, *name);
    }
}

#[test]
fn decay_is_for_tensors_of_two_dimensions() {
    let Draft { program, schedule, .. } = build(&everything(SMALL, 0.0));
    let tensors = &schedule.tensors;
    let mut groups = Vec::new();
    for step in steps(&schedule, program.update.unwrap()) {
        assert_eq!(step.pass, Pass::Update);
        if let Op::AdamW(op) = &step.op {
            for other in [op.gradients, op.m, op.v] {
                assert_eq!(tensors.root(other).1, tensors.root(op.weights).1);
                assert_eq!(tensors.bytes(other), tensors.bytes(op.weights));
            }
            let start = tensors.root(op.weights).1.get();
            groups.push((start..start + tensors.bytes(op.weights).get(), op.weight_decay));
        }
    }
    assert_eq!(groups.len(), 2);
    for row in &program.parameters {
        let start = tensors.root(row.weight).1.get();
        let end = start + tensors.bytes(row.weight).get();
        let inside = |range: &std::ops::Range<u64>| range.start <= start && end <= range.end;
        let decays: Vec<f64> =
            groups.iter().filter(|(range, _)| inside(range)).map(|(_, decay)| *decay).collect();
        let want = if row.param.shape.dims().len() == 2 { 0.1 } else { 0.0 };
        assert_eq!(decays, [want], "{}", row.param.name);
    }
    // Together they are the whole array, so that no gradient stays unzeroed.
    assert_eq!(groups[0].0.end, groups[1].0.start);
    let (root, _) = tensors.root(program.parameters[0].weight);
    assert_eq!((groups[0].0.start, groups[1].0.end), (0, tensors.bytes(root).get()));
}

/// A GPU's matmuls want a multiple of 64 rows. Only the heads with a loss see more rows than the
/// vocabulary has: parameters, which checkpoints store, do not, nor do the logits of generation.
#[test]
fn an_odd_vocabulary_is_padded_for_the_loss_alone() {
    for (vocabulary, rows) in [(65, 128), (64, 64)] {
        let dims = dims([3, 2, 8], 16, vocabulary, true);
        let spec = everything(dims, 0.0);
        let gpu = Rc::new(GpuScratch { warpgroups: false });
        let Draft { program, schedule } = Draft::new(&spec, gpu).unwrap();
        let tensors = &schedule.tensors;
        let wte = &program.parameters[0];
        let state = wte.state.iter().map(|(_, id)| *id);
        for id in [wte.weight, wte.compute, wte.gradient.unwrap()].into_iter().chain(state) {
            assert_eq!(tensors.get(id).shape, Shape::new(&[vocabulary, 8]).unwrap());
        }
        for step in schedule.segments.iter().flat_map(|segment| &segment.steps) {
            let (w, slab, padding) = match &step.op {
                Op::HeadTrain(op) => (op.w, op.slab, op.padding),
                Op::HeadEval(op) => (op.w, op.slab, op.padding),
                Op::Embed(op) => {
                    assert_eq!(op.wte, wte.compute);
                    continue;
                }
                _ => continue,
            };
            assert_eq!(tensors.root(w), tensors.root(wte.compute));
            assert_eq!(tensors.get(w).shape, Shape::new(&[rows, 8]).unwrap());
            assert_eq!((tensors.get(slab).shape.width(), padding), (rows, rows - vocabulary));
        }
        let logits = program.generate.unwrap().decode.logits;
        assert_eq!(tensors.get(logits).shape.width(), vocabulary);
        let wpe = &program.parameters[1];
        let between = tensors.root(wpe.weight).1.get() - tensors.root(wte.weight).1.get();
        assert_eq!(between, rows * 8 * 4, "nothing else is in the padding");
    }
}

#[test]
fn the_head_is_the_token_embedding() {
    let Draft { program, schedule, .. } = build(&everything(SMALL, 0.1));
    let wte = &program.parameters[0];
    assert_eq!(wte.param.name, "wte.weight");
    let mut heads = Vec::new();
    for step in schedule.segments.iter().flat_map(|segment| &segment.steps) {
        let name = step.op.operation().name();
        match &step.op {
            Op::Embed(op) => assert_eq!(op.wte, wte.weight),
            Op::EmbedBackward(op) => assert_eq!(Some(op.d_wte), wte.gradient),
            Op::HeadTrain(op) => {
                assert_eq!((op.w, Some(op.d_w)), (wte.weight, wte.gradient));
                assert_eq!((op.state, Some(op.row_loss)), (program.state, program.row_loss));
                heads.push(name);
            }
            Op::HeadEval(op) => {
                assert_eq!((op.w, Some(op.row_loss)), (wte.weight, program.row_loss));
                heads.push(name);
            }
            Op::Linear(op) if op.w == wte.weight => heads.push(name),
            _ => {}
        }
    }
    // Two training slices, one evaluation, two prefills and the decode.
    let want = ["head_train", "head_train", "head_eval", "linear", "linear", "linear"];
    assert_eq!(heads, want);
}

fn dropout_of(op: &Op) -> Option<Dropout> {
    match op {
        Op::Embed(op) => op.dropout,
        Op::EmbedBackward(op) => op.dropout,
        Op::LayerNorm(op) => op.add.as_ref().and_then(|add| add.dropout),
        Op::LayerNormBackward(op) => op.branch.as_ref().and_then(|branch| branch.dropout),
        Op::Attention(op) => op.dropout,
        Op::AttentionBackward(op) => op.dropout,
        _ => None,
    }
}

#[test]
fn dropout_is_at_nanogpts_places_and_in_training_only() {
    use DropoutSite::{Attention, AttentionProjection, Embedding, MlpProjection};
    let Draft { program, schedule, .. } = build(&everything(SMALL, 0.1));
    let sites = |segment: SegmentId, pass: Pass| -> Vec<(u32, DropoutSite)> {
        let in_pass = steps(&schedule, segment).iter().filter(|step| step.pass == pass);
        let dropouts = in_pass.filter_map(|step| dropout_of(&step.op));
        dropouts.inspect(|d| assert_eq!(d.probability, 0.1)).map(|d| (d.layer, d.site)).collect()
    };
    let mut want = vec![(0, Embedding)];
    for layer in 0..3 {
        want.extend([Attention, AttentionProjection, MlpProjection].map(|site| (layer, site)));
    }
    for slice in &program.train {
        assert_eq!(sites(slice.segment, Pass::Forward), want);
        let mut backward = sites(slice.segment, Pass::Backward);
        backward.reverse();
        assert_eq!(backward, want);
    }
    let trained: Vec<SegmentId> = program.train.iter().map(|slice| slice.segment).collect();
    for segment in schedule.segment_ids().filter(|id| !trained.contains(id)) {
        assert_eq!(sites(segment, Pass::Forward), []);
    }
    let without = build(&everything(SMALL, 0.0));
    let mut all = without.schedule.segments.iter().flat_map(|segment| &segment.steps);
    assert!(all.all(|step| dropout_of(&step.op).is_none()));
}

#[test]
fn segments_take_and_give_what_they_say() {
    let Draft { program, schedule, .. } = build(&everything(SMALL, 0.0));
    let tensors = &schedule.tensors;
    // Inputs are run-wide: they can be filled while another segment runs.
    let check = |segment: SegmentId, id: TensorId, dims: &[u64], io: Io| {
        let tensor = tensors.get(id);
        let found = (tensor.shape.dims(), tensor.io, tensor.scope);
        let scope = if io == Io::Input { Scope::Run } else { Scope::Segment(segment) };
        assert_eq!(found, (dims, io, scope), "{}", tensor.name);
    };
    let losses = [(&program.train[0], 3), (&program.train[1], 2), (&program.eval[0], 2)];
    for (slice, rows) in losses {
        assert_eq!(slice.rows, rows);
        check(slice.segment, slice.tokens, &[rows, 16], Io::Input);
        check(slice.segment, slice.targets, &[rows, 16], Io::Input);
    }
    let generate = program.generate.as_ref().unwrap();
    let lengths: Vec<u64> = generate.prefill.iter().map(|prefill| prefill.positions).collect();
    assert_eq!(lengths, [4, 16], "sorted, each once");
    for part in generate.prefill.iter().chain([&generate.decode]) {
        check(part.segment, part.tokens, &[2, part.positions], Io::Input);
        check(part.segment, part.logits, &[2, 1, 65], Io::Output);
    }
    assert_eq!(generate.decode.positions, 1);
    let row_loss = tensors.get(program.row_loss.unwrap());
    assert_eq!((row_loss.shape.dims(), row_loss.scope), (&[3][..], Scope::Run));
    let names: Vec<&str> = schedule.segments.iter().map(|s| s.name.as_str()).collect();
    let want = [
        "train 3x16",
        "train 2x16",
        "update",
        "eval 2x16",
        "prefill 2x4",
        "prefill 2x16",
        "decode 2x1",
    ];
    assert_eq!(names, want);
}

#[test]
fn what_is_not_asked_for_is_not_there() {
    let Draft { program, schedule, .. } = build(&model(SMALL, 0.1));
    assert_eq!((program.row_loss, program.update, program.generate), (None, None, None));
    assert!(program.train.is_empty() && program.eval.is_empty());
    assert!(schedule.segments.is_empty());
    let none = |row: &ProgramParam| row.gradient.is_none() && row.state.is_empty();
    assert!(program.parameters.iter().all(none));
    let mut spec = model(SMALL, 0.1);
    spec.eval = Some(eval(&SMALL, &[1], 256));
    let program = build(&spec).program;
    assert!(program.row_loss.is_some() && program.parameters.iter().all(none));
}

/// The slab is whole blocks of 256 tokens, and never more than there are.
#[test]
fn one_segment_serves_all_slices_of_a_size() {
    let mut spec = model(SMALL, 0.0);
    spec.train = Some(train(&SMALL, &[4, 3, 4, 3], 256));
    let rows: Vec<u64> = build(&spec).program.train.iter().map(|slice| slice.rows).collect();
    assert_eq!(rows, [4, 3]);
}

#[test]
fn absurd_scratch_is_refused() {
    let mut spec = model(SMALL, 0.0);
    spec.eval = Some(eval(&SMALL, &[2], 256));
    for bytes in [u64::MAX, plan::bytes::MAX, plan::bytes::MAX - 1000] {
        let planned =
            Draft::new(&spec, Rc::new(Each(bytes))).and_then(|draft| Plan::new(draft.schedule));
        assert!(planned.is_err(), "{bytes} bytes");
    }
}

#[test]
fn a_dropout_that_is_no_probability_is_refused() {
    for dropout in [-0.1, 1.0, f32::NAN] {
        let mut spec = model(SMALL, dropout);
        spec.train = Some(train(&SMALL, &[2], 256));
        let error = Draft::new(&spec, scratch()).unwrap_err().to_string();
        assert!(error.contains("is outside [0, 1)"), "{dropout}: {error}");
    }
}

#[test]
fn head_chunks_are_whole_blocks() {
    let dims = dims([1, 1, 4], 100, 7, false);
    for (head_chunk, want) in
        [(0, 256), (1, 256), (256, 256), (257, 512), (768, 768), (769, 1000), (u64::MAX, 1000)]
    {
        let mut spec = model(dims, 0.0);
        spec.train = Some(train(&dims, &[10], head_chunk));
        let schedule = build(&spec).schedule;
        let slab = schedule.tensors.find("logits").unwrap();
        let shape = schedule.tensors.get(slab).shape;
        assert_eq!(shape.dims(), [want, 7], "chunk {head_chunk}");
    }
}

#[test]
fn absurd_sizes_are_refused_and_never_wrap() {
    type Edit = fn(&mut ProgramSpec);
    fn wide(spec: &mut ProgramSpec, n_embd: u64) {
        spec.model.dims = Dims { n_embd, n_head: 1, ..GPT2 };
    }
    fn trained(spec: &mut ProgramSpec, edit: impl Fn(&mut fitgpt_model::TrainSpec)) {
        edit(spec.train.as_mut().expect("the spec trains"));
    }
    let too_large = "is larger than 2^63 bytes";
    let cases: [(Edit, &str); 21] = [
        (|s| wide(s, 1 << 31), too_large),
        (|s| wide(s, 1 << 26), "the arena passes 2^63 bytes at v"),
        (|s| s.model.dims.vocab_size = 1 << 31, ""),
        (|s| s.model.dims = Dims { vocab_size: 1 << 31, n_embd: 3 << 29, ..GPT2 }, too_large),
        (|s| s.model.dims.block_size = 1 << 31, ""),
        (|s| wide(s, (1 << 31) + 1), "n_embd=2147483649: the largest possible is 2147483648"),
        (|s| wide(s, 1 << 63), "n_embd=9223372036854775808: the largest possible"),
        (|s| wide(s, u64::MAX), "n_embd=18446744073709551615: the largest possible"),
        (|s| s.model.dims.vocab_size = 1 << 62, "vocab_size=4611686018427387904: the largest"),
        (|s| s.model.dims.n_layer = 1 << 32, "n_layer=4294967296: the largest possible is 10000"),
        (|s| s.model.dims.n_head = 0, "n_head=0: it must be at least 1"),
        (|s| s.model.dims.n_head = 7, "n_embd=768 cannot be divided by n_head=7"),
        (|s| trained(s, |t| t.slices = vec![1 << 60]), too_large),
        (|s| trained(s, |t| t.slices = vec![u64::MAX]), too_large),
        (|s| trained(s, |t| t.slices = vec![0]), "shape [0, 1024]"),
        (|s| trained(s, |t| t.positions = 1025), "1025 positions, but only 1024 are embedded"),
        (|s| trained(s, |t| t.positions = 0), "shape [4, 0]"),
        (|s| trained(s, |t| t.loss_rows = u64::MAX), too_large),
        (|s| trained(s, |t| t.loss_rows = 3), "4 sequences, but row_loss holds 3"),
        (|s| s.generate = Some(generate(1 << 60, &[1024])), too_large),
        (|s| s.generate = Some(generate(1, &[2048])), "2048 positions, but only 1024"),
    ];
    for (index, (edit, want)) in cases.into_iter().enumerate() {
        let mut spec = model(GPT2, 0.1);
        spec.train = Some(train(&GPT2, &[4], u64::MAX));
        edit(&mut spec);
        let planned = Draft::new(&spec, scratch()).and_then(|draft| Plan::new(draft.schedule));
        let said = planned.map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(said.is_empty(), want.is_empty(), "case {index}: {said}");
        assert!(said.contains(want), "case {index}: {said}\nwanted: {want}");
    }
}

/// The workspace is the backend's alone: one tensor, and the only one of its role. What ops need
/// for sums of their own has another.
#[test]
fn there_is_one_workspace() {
    let schedule = build(&everything(SMALL, 0.1)).schedule;
    let tensors = &schedule.tensors;
    let of = |role: Role| tensors.ids().filter(move |&id| tensors.get(id).role == role);
    let workspaces: Vec<TensorId> = of(Role::Workspace).collect();
    assert_eq!(workspaces.len(), 1);
    let steps = schedule.segments.iter().flat_map(|segment| &segment.steps);
    assert!(steps.filter_map(|step| step.op.workspace()).all(|id| id == workspaces[0]));
    let is_of_a_segment = |id| matches!(tensors.get(id).scope, Scope::Segment(_));
    assert!(of(Role::Partials).count() > 0 && of(Role::Partials).all(is_of_a_segment));
}
