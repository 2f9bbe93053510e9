//! Checkpoints that PyTorch wrote (`fixtures/ckpt/make.py`), in all the forms that they come in.

use checkpoint::{Dtype, TensorInfo, TensorSource};
use fitgpt_interop::torch::{TorchOptimizer, TorchRun};
use fitgpt_interop::{Existing, ExportError, ForeignModel, Precision, torch};
use model::{Architecture, Dims, Gpt2, Param};
use plan::ops::GeluKind;
use std::path::{Path, PathBuf};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/ckpt/{name}.pt"))
}

pub fn content(tensors: &dyn TensorSource, name: &str) -> Vec<f32> {
    let index = tensors.find(name).unwrap_or_else(|| panic!("no {name}"));
    let mut bytes = vec![0; tensors.tensors()[index].bytes().unwrap() as usize];
    tensors.read(index, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The names in PyTorch's order.
fn names(bias: bool) -> Vec<String> {
    let modules = ["h.0.ln_1", "h.0.attn.c_attn", "h.0.attn.c_proj", "h.0.ln_2", "h.0.mlp.c_fc"];
    let modules = modules.into_iter().chain(["h.0.mlp.c_proj", "ln_f"]);
    let mut all = vec!["wte.weight".to_owned(), "wpe.weight".to_owned()];
    for module in modules {
        all.push(format!("{module}.weight"));
        if bias {
            all.push(format!("{module}.bias"));
        }
    }
    all
}

/// Every weight is what the script put there, and so are the moments if there are any.
fn check(model: &ForeignModel, bias: bool) {
    assert_eq!((model.dims.n_layer, model.dims.n_head, model.dims.n_embd), (1, 2, 4));
    assert_eq!((model.dims.block_size, model.dims.vocab_size, model.dims.bias), (3, 5, bias));
    assert_eq!((model.iteration, model.best_val_loss), (20, Some(1.5)));
    assert_eq!(model.config["dataset"], "tiny");
    assert_eq!(model.gelu, Some("erf"));
    let names = names(bias);
    for (index, name) in names.iter().enumerate() {
        let found = content(&*model.tensors, &format!("weights/{name}"));
        let value = |at: usize| ((31 * index + 7 * at) % 64) as f32 / 32.0 - 1.0;
        let want: Vec<f32> = (0..found.len()).map(value).collect();
        assert_eq!(found, want, "{name}");
        if model.has_moments {
            for (kind, share) in [("m", 0.5), ("v", 0.25)] {
                let found = content(&*model.tensors, &format!("{kind}/{name}"));
                let want: Vec<f32> = want.iter().map(|value| value.abs() * share).collect();
                assert_eq!(found, want, "{kind}/{name}");
            }
        }
    }
    let per_weight = if model.has_moments { 3 } else { 1 };
    let others = usize::from(model.has_moments);
    assert_eq!(model.tensors.tensors().len(), per_weight * names.len() + others);
}

#[test]
fn every_form_has_the_same_weights() {
    for (name, bias, has_moments) in [
        ("plain", false, true),
        ("compiled", true, true),
        ("bf16", false, true),
        ("half", false, false),
        ("double", false, false),
        ("strided", false, false),
        ("old", true, false),
        ("stored", false, false),
        ("unchecked", false, false),
    ] {
        let path = fixture(name);
        assert!(torch::is_torch(&path));
        let model = torch::open(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(model.has_moments, has_moments, "{name}");
        let said = model.notices.iter().filter(|line| line.contains("CRC-32")).count();
        assert_eq!(said, usize::from(name == "unchecked"), "{name}");
        check(&model, bias);
        if has_moments {
            let state = content(&*model.tensors, "state");
            assert_eq!(state[0].to_bits(), 20, "{name}");
            assert_eq!(model.optimizer["weight_decay"], 0.1);
            assert_eq!(model.optimizer["beta1"], 0.9);
            assert_eq!(model.optimizer["beta2"], 0.99);
        }
    }
}

#[test]
fn what_is_no_checkpoint_is_refused_by_name() {
    for (name, want) in [
        ("evil", "its entry evil/data.pkl: the pickle asks for posix.system (GLOBAL at byte 17)"),
        ("evil", ": it would run a program, so nothing of it is executed"),
        ("custom", "asks for __main__.Custom (GLOBAL at byte"),
        ("array", "_reconstruct"),
        ("pickled", "this is a plain pickle, as pickle.dump writes it, and no checkpoint"),
        ("legacy", "PyTorch before 1.6; convert it"),
        ("expanded", "transformer.ln_f.weight has more elements than its storage"),
        ("packed", "is compressed or encrypted"),
        ("weights_only", "a dict with transformer.wte.weight, transformer.wpe.weight"),
    ] {
        let error = torch::open(&fixture(name)).map(drop).unwrap_err().to_string();
        assert!(error.contains(want) && !error.contains('\n'), "{name}: {error}");
    }
    let pointer = File::new("pointer");
    std::fs::write(&pointer.0, "version https://git-lfs.github.com/spec/v1\nsize 5\n").unwrap();
    let error = torch::open(&pointer.0).map(drop).unwrap_err().to_string();
    assert!(error.ends_with("not the file itself: run `git lfs pull` in its folder"), "{error}");
    let model = torch::open(&fixture("untied")).unwrap();
    let index = model.tensors.find("weights/wte.weight").unwrap();
    let error = model.tensors.read(index, &mut [0; 80]).unwrap_err().to_string();
    assert!(error.contains("lm_head differs"), "{error}");
    let error = model.tensors.read(index, &mut [0; 79]).unwrap_err().to_string();
    assert!(error.contains("has 80 bytes, but the buffer has 79"), "{error}");
}

/// A file in the system's folder for such files, removed at the end.
pub struct File(pub PathBuf);

impl File {
    pub fn new(name: &str) -> File {
        let name = format!("interop-{name}-{}.pt", std::process::id());
        File(std::env::temp_dir().join(name))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What a file says about its run, for the writer.
fn described(model: &ForeignModel) -> TorchRun {
    let number = |key: &str| model.optimizer.get(key).and_then(|value| value.as_f64());
    TorchRun {
        dims: model.dims,
        dropout: 0.1,
        iteration: model.iteration,
        best_val_loss: model.best_val_loss.unwrap(),
        tokens: Some(4096),
        seconds: Some(2.5),
        config: model.config.clone(),
        optimizer: Some(TorchOptimizer {
            updates: 0,
            learning_rate: 1e-3,
            weight_decay: number("weight_decay").unwrap_or(0.1),
            betas: [number("beta1").unwrap_or(0.9), number("beta2").unwrap_or(0.95)],
            is_fused: false,
        }),
    }
}

#[test]
fn what_is_written_is_read_again() {
    for (name, bias) in [("plain", false), ("compiled", true), ("bf16", false), ("old", true)] {
        let model = torch::open(&fixture(name)).unwrap();
        let file = File::new(&format!("again-{name}"));
        let (mut seen, mut all) = (0, 0);
        let mut report = |done: u64, total: u64| {
            (seen, all) = (done, total);
            true
        };
        let mut run = described(&model);
        let precision = Precision::Float32;
        let bytes = torch::write(
            &file.0,
            &*model.tensors,
            &mut run,
            (precision, Existing::Keep),
            &mut report,
        );
        assert_eq!(bytes.unwrap(), std::fs::metadata(&file.0).unwrap().len());
        assert!(seen > 0 && seen <= all, "{seen} of {all}");
        let again = torch::open(&file.0).unwrap();
        check(&again, bias);
        assert_eq!((&again.config, &again.optimizer), (&model.config, &model.optimizer));
        assert_eq!(again.has_moments, model.has_moments);
        assert_eq!((again.tokens, again.seconds), (Some(4096), Some(2.5)));
        if again.has_moments {
            assert_eq!(content(&*again.tensors, "state")[0].to_bits(), 20);
        }
        assert!(starts(&std::fs::read(&file.0).unwrap()).all(|start| start % 64 == 0));
    }
}

/// Where the contents of a file's entries start.
fn starts(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let headers = bytes.windows(30).enumerate().filter(|(_, it)| it.starts_with(b"PK\x03\x04"));
    let length = |it: &[u8], at: usize| usize::from(u16::from_le_bytes([it[at], it[at + 1]]));
    headers.map(move |(at, it)| at + 30 + length(it, 26) + length(it, 28))
}

#[test]
fn weights_are_rounded_and_a_stop_leaves_nothing() {
    let model = torch::open(&fixture("plain")).unwrap();
    for precision in [Precision::Float16, Precision::BFloat16] {
        let file = File::new(precision.name());
        let mut run = described(&model);
        torch::write(
            &file.0,
            &*model.tensors,
            &mut run,
            (precision, Existing::Keep),
            &mut |_, _| true,
        )
        .unwrap();
        check(&torch::open(&file.0).unwrap(), false);
    }
    let file = File::new("stop");
    let mut run = described(&model);
    let stop = &mut |done: u64, _| done < 500;
    let keep = (Precision::Float32, Existing::Keep);
    let stopped = torch::write(&file.0, &*model.tensors, &mut run, keep, stop);
    assert!(matches!(stopped, Err(ExportError::Stopped)));
    assert!(!file.0.exists());
    // A file that arrives meanwhile is not replaced unless that was asked for.
    let arrive = &mut |_, _| std::fs::write(&file.0, "mine").is_ok();
    let late = torch::write(&file.0, &*model.tensors, &mut run, keep, arrive);
    assert!(matches!(late, Err(ExportError::Exists { .. })));
    assert_eq!(std::fs::read(&file.0).unwrap(), b"mine");
    let replace = (Precision::Float32, Existing::Replace);
    torch::write(&file.0, &*model.tensors, &mut run, replace, &mut |_, _| true).unwrap();
    assert!(std::fs::read(&file.0).unwrap().starts_with(b"PK"));
}

/// What a reader may take for a file (`docs/limits.md`).
fn allowed(file_bytes: u64) -> u64 {
    4 * file_bytes + (64 << 20)
}

/// Whether this process runs the test alone, so that memory is counted for nothing else. If not, it
/// starts one that does.
fn runs_alone(test: &str) -> bool {
    const ALONE: &str = "FITGPT_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let run = std::process::Command::new(program).args([test, "--exact"]).env(ALONE, "1").output();
    let run = run.unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// The most memory that `work` takes at a time.
fn memory_of(work: impl FnOnce()) -> u64 {
    let before = counting::held();
    counting::forget_most();
    work();
    counting::most() - before
}

/// The deepest model that a run can have, as small as it can be otherwise, with biases and moments.
#[test]
fn the_deepest_model_is_read() {
    if !runs_alone("torch::the_deepest_model_is_read") {
        return;
    }
    let dims =
        Dims { n_layer: 512, n_head: 1, n_embd: 1, block_size: 1, vocab_size: 1, bias: true };
    let params = Architecture::from(Gpt2 { gelu: GeluKind::Erf }).parameters(&dims).unwrap();
    let tensors = ["weights", "m", "v"].into_iter().flat_map(|kind| {
        let info = move |param: &Param| {
            let name = format!("{kind}/{}", param.name);
            TensorInfo::new(name, Dtype::F32, param.shape.dims())
        };
        params.iter().map(info)
    });
    let tensors: Vec<TensorInfo> = tensors.collect();
    let run = TorchRun { dims, ..described(&torch::open(&fixture("compiled")).unwrap()) };
    let file = File::new("deepest");
    let written = torch::write_with(&file.0, &run, &tensors, &mut [0; 64], |_, content| {
        content.fill(0);
        Ok::<(), String>(())
    });
    let bytes = written.unwrap().finish().unwrap();
    let taken = memory_of(|| {
        let model = torch::open(&file.0).unwrap();
        assert_eq!(model.tensors.tensors().len(), 3 * params.len() + 1);
    });
    assert!(taken <= allowed(bytes), "{taken} bytes of memory for a file of {bytes}");
}

/// A zip file with one entry.
fn zip(name: &str, content: &[u8]) -> Vec<u8> {
    let [crc, bytes] = [crc32fast::hash(content), content.len() as u32].map(u32::to_le_bytes);
    let length = (name.len() as u16).to_le_bytes();
    let both = [&[0; 12], &crc[..], &bytes, &bytes, &length].concat();
    let local = [b"PK\x03\x04", &both[2..], &[0; 2], name.as_bytes(), content].concat();
    let listed = [b"PK\x01\x02", &both[..], &[0; 16], name.as_bytes()].concat();
    let [start, listed_bytes] = [local.len(), listed.len()].map(|n| (n as u32).to_le_bytes());
    let end = [b"PK\x05\x06", &[0; 4][..], &[1, 0, 1, 0], &listed_bytes, &start, &[0; 2]].concat();
    [local, listed, end].concat()
}

/// Pickles that demand as much memory as they can.
#[test]
fn a_hostile_pickle_takes_no_more_memory_than_its_file_allows() {
    if !runs_alone("torch::a_hostile_pickle_takes_no_more_memory_than_its_file_allows") {
        return;
    }
    let file = File::new("hostile");
    let numbered = |at: u32| [&[b'N', b'r'][..], &at.to_le_bytes()].concat();
    for (name, count, value) in [
        ("none", 1 << 20, &(|_| vec![b'N']) as &dyn Fn(u32) -> Vec<u8>),
        ("lists", 1 << 20, &|_| vec![b']']),
        ("tuples", 1 << 20, &|_| vec![b')', 0x85]),
        ("text", 1 << 20, &|_| b"\x8c\x01a".to_vec()),
        ("memo", 1 << 20, &numbered),
        ("few", 400_000, &numbered),
    ] {
        let values: Vec<u8> = (0..count).flat_map(value).collect();
        let pickle = [b"\x80\x02(", &values[..], b"l."].concat();
        let bytes = zip("archive/data.pkl", &pickle);
        std::fs::write(&file.0, &bytes).unwrap();
        let allowed = allowed(bytes.len() as u64);
        drop((values, pickle, bytes));
        let taken = memory_of(|| {
            let error = torch::open(&file.0).map(drop).unwrap_err().to_string();
            assert!(error.contains("archive/data.pkl: the pickle") || name == "few", "{error}");
        });
        assert!(taken <= allowed, "{name}: {taken} bytes of memory, {allowed} allowed");
    }
}
