//! Runs that start from a trained model: of a server that speaks the hub's paths, of the cache, of
//! a folder. The weights are random and so large that their loss is far from that of new ones.

use crate::fixture::{Ended, TempDir, document, walk};
use crate::hub_server::{HubServer, path};
use std::process::Command;

const WIDTH: u64 = 16;
const IDS: u64 = 50257;

/// GPT-2 with two narrow layers, as `transformers` saves it.
const CONFIG: &str = r#"{"model_type": "gpt2", "activation_function": "gelu_new", "n_layer": 2,
    "n_head": 2, "n_embd": 16, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257,
    "layer_norm_epsilon": 1e-05}"#;

/// nanoGPT's four evaluations differ in the name alone.
fn evaluation(name: &str) -> String {
    format!(
        "# evaluates the model\nbatch_size = 8\neval_iters = 500 # for a good estimate\n\
         eval_only = True\nwandb_log = False\ninit_from = '{name}'\n"
    )
}

const FINETUNE: &str = "import time

out_dir = 'out-shakespeare'
eval_interval = 5
eval_iters = 40
wandb_log = False # may be turned on
wandb_project = 'shakespeare'
wandb_run_name = 'ft-' + str(time.time())

dataset = 'shakespeare'
init_from = 'gpt2-xl' # the largest

# saves if the validation loss improves
always_save_checkpoint = False

batch_size = 1
gradient_accumulation_steps = 32
max_iters = 20

learning_rate = 3e-5
decay_lr = False
";

/// What a CPU needs to be done in seconds.
const SHORT: &[&str] =
    &["--device=cpu", "--eval_iters=1", "--batch_size=1", "--gradient_accumulation_steps=1"];

/// Random weights as a safetensors file, with the names and the layout of Hugging Face.
fn weights() -> Vec<u8> {
    let mut tensors = vec![
        ("transformer.wte.weight".to_owned(), vec![IDS, WIDTH]),
        ("transformer.wpe.weight".to_owned(), vec![1024, WIDTH]),
        ("transformer.ln_f.weight".to_owned(), vec![WIDTH]),
        ("transformer.ln_f.bias".to_owned(), vec![WIDTH]),
    ];
    for layer in 0..2 {
        for (name, shape) in [
            ("ln_1", vec![WIDTH]),
            ("attn.c_attn", vec![WIDTH, 3 * WIDTH]),
            ("attn.c_proj", vec![WIDTH, WIDTH]),
            ("ln_2", vec![WIDTH]),
            ("mlp.c_fc", vec![WIDTH, 4 * WIDTH]),
            ("mlp.c_proj", vec![4 * WIDTH, WIDTH]),
        ] {
            let outputs = vec![shape[shape.len() - 1]];
            tensors.push((format!("transformer.h.{layer}.{name}.weight"), shape));
            tensors.push((format!("transformer.h.{layer}.{name}.bias"), outputs));
        }
    }
    let (mut header, mut at) = (serde_json::Map::new(), 0);
    for (name, shape) in &tensors {
        let end = at + 4 * shape.iter().product::<u64>();
        let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [at, end]});
        header.insert(name.clone(), entry);
        at = end;
    }
    let header = serde_json::Value::Object(header).to_string();
    let values = walk(7, (at / 4) as usize, 1000);
    let values = values.iter().flat_map(|&value| (f32::from(value) / 500.0 - 1.0).to_le_bytes());
    let length = (header.len() as u64).to_le_bytes();
    length.into_iter().chain(header.into_bytes()).chain(values).collect()
}

/// A server with the model under these names.
fn server(names: &[&str]) -> HubServer {
    let server = HubServer::new();
    for name in names {
        server.file(name, "config.json", CONFIG);
        server.file(name, "model.safetensors", weights());
    }
    server
}

/// A folder with token files of nanoGPT's data sets.
fn folder(name: &str) -> TempDir {
    let dir = TempDir::empty(name);
    for data_set in ["openwebtext", "shakespeare"] {
        dir.data_set(data_set, &walk(1, 3000, IDS), &walk(2, 3000, IDS));
    }
    dir
}

fn with(dir: &TempDir, endpoint: &str, arguments: &[&str]) -> Command {
    let mut command = dir.command(arguments);
    command.env("HF_ENDPOINT", endpoint).env("HF_HOME", dir.path("hf"));
    command
}

fn ended(command: &mut Command) -> Ended {
    Ended::from(command.output().unwrap())
}

#[track_caller]
fn works(dir: &TempDir, endpoint: &str, arguments: &[&str]) -> Ended {
    let ended = ended(&mut with(dir, endpoint, arguments));
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    ended
}

/// The validation loss of the first evaluation.
#[track_caller]
fn loss(ended: &Ended) -> f64 {
    let line = ended.lines("step 0:").first().copied().unwrap_or_default().to_owned();
    let loss = line.split("val loss ").nth(1).and_then(|text| text.split_whitespace().next());
    loss.and_then(|loss| loss.parse().ok()).unwrap_or_else(|| panic!("{}", ended.out))
}

#[test]
fn nanogpts_evaluations_of_gpt2_run_unchanged() {
    let names = ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"];
    let (dir, server) = (folder("eval-gpt2"), server(&names));
    for name in names {
        let config = format!("eval_{}.py", name.replace('-', "_"));
        dir.write(&config, evaluation(name).as_bytes());
        let ended = works(&dir, &server.address, &[&["train", &config], SHORT].concat());
        let line = format!("Initializing from OpenAI GPT-2 weights: {name}");
        assert_eq!(ended.lines("Initializing"), [line]);
        assert!(ended.out.contains("(--gelu=erf)"), "{}", ended.out);
        let loss = loss(&ended);
        assert!(loss > 11.5, "{name}: {loss}");
    }
    assert!(!dir.path("out/last.safetensors").exists());
    // nanoGPT computes another GELU on these weights.
    let args = [&["train", "eval_gpt2.py", "--gelu=erf"], SHORT].concat();
    let erf = works(&dir, &server.address, &args);
    assert!(!erf.out.contains("(--gelu=erf)") && loss(&erf) > 11.5, "{}", erf.out);
}

#[test]
fn finetuning_starts_at_zero_saves_and_resumes() {
    let (dir, server) = (folder("finetune"), server(&["gpt2-xl"]));
    dir.write("finetune_shakespeare.py", FINETUNE.as_bytes());
    let args = ["train", "finetune_shakespeare.py", "--max_iters=2", "--block_size=64"];
    let ended = works(&dir, &server.address, &[&args, SHORT].concat());
    assert!(ended.out.contains("\nOverriding: block_size = 64\n"), "{}", ended.out);
    assert!(loss(&ended) > 11.5, "{}", ended.out);
    assert_eq!(ended.lines("iter ").len(), 3, "{}", ended.out);
    let saved = document(&dir.path("out-shakespeare/last.safetensors"));
    assert_eq!(saved["model"]["block_size"], 64);
    assert_eq!(saved["model"]["vocab_size"], 50257);
    assert_eq!(saved["model"]["n_layer"], 2);
    assert_eq!(saved["config"]["gelu"], "tanh");
    assert_eq!(saved["config"]["bias"], true);
    // It goes on without the hub, with the model's sizes and its GELU.
    let resume = ["train", "--init_from=resume", "--out_dir=out-shakespeare", "--max_iters=3"];
    let ended = works(&dir, "http://127.0.0.1:1", &resume);
    assert!(ended.out.contains("Resuming training from out-shakespeare"), "{}", ended.out);
    let sample = ["sample", "--out_dir=out-shakespeare", "--num_samples=1", "--max_new_tokens=3"];
    assert!(!works(&dir, "http://127.0.0.1:1", &sample).out.is_empty());
    // A folder that holds a run is not overwritten.
    let again = with(&dir, &server.address, &[&args, SHORT].concat()).output().unwrap();
    Ended::from(again).failed(4, &["already holds a run"]);
}

#[test]
fn a_sample_of_gpt2_needs_the_network_once() {
    let (dir, server) = (TempDir::empty("sample-xl"), server(&["gpt2-xl"]));
    let args = ["sample", "--init_from=gpt2-xl", "--num_samples=1", "--max_new_tokens=5"];
    let first = works(&dir, &server.address, &args);
    assert!(first.error.contains("gpt2-xl at 607a30d783df: downloaded to"), "{}", first.error);
    let mut offline = with(&dir, "http://127.0.0.1:1", &args);
    let second = ended(offline.env("HF_HUB_OFFLINE", "1"));
    assert_eq!((second.code, &second.out), (Some(0), &first.out));
    // Another program's file without an own step.
    let export = ["export", "gpt2-xl", "--to", "native", "--out", "native.safetensors"];
    works(&dir, "http://127.0.0.1:1", &export);
    assert_eq!(document(&dir.path("native.safetensors"))["model"]["n_embd"], 16);
    let missing = ["export", "me/none", "--to", "native", "--out", "none.safetensors"];
    let missing = ended(&mut with(&dir, &server.address, &missing));
    missing.failed(4, &["no file or folder me/none here", "no such repository"]);
    // The name alone is enough, for every command.
    let by_name = ["sample", "gpt2-xl", "--num_samples=1", "--max_new_tokens=5"];
    assert_eq!(works(&dir, "http://127.0.0.1:1", &by_name).out, first.out);
    dir.write("book.txt", b"The quick brown fox jumps over the lazy dog.");
    let loss = |name: &str| {
        let args = ["eval", name, "--data=book.txt", "--json", "--device=cpu"];
        let ended = works(&dir, "http://127.0.0.1:1", &args);
        serde_json::from_str::<serde_json::Value>(&ended.out).unwrap()["loss"].clone()
    };
    assert!(loss("gpt2-xl").is_number());
    assert_eq!(loss("gpt2-xl"), loss("--init_from=gpt2-xl"));
    // The folder itself works as well, by a name that says nothing.
    let snapshot =
        dir.path("hf/hub/models--gpt2-xl/snapshots/607a30d783dfa663caf39e06633721c8d4cfcd7e");
    std::os::unix::fs::symlink(snapshot, dir.path("mine")).unwrap();
    let here = ["sample", "--init_from=mine", "--num_samples=1", "--max_new_tokens=5"];
    let third = works(&dir, "http://127.0.0.1:1", &here);
    let assumed = "note: mine has no tokenizer: GPT-2's is used";
    assert!(third.error.contains(assumed), "{}", third.error);
    assert!(!third.error.contains("iterations"), "{}", third.error);
    assert!(third.out.ends_with("\n---------------\n"), "{}", third.out);
}

#[test]
fn a_plan_needs_the_config_alone() {
    let (dir, server) = (TempDir::empty("plan-hub"), server(&["me/tiny", "gpt2"]));
    let args = ["plan", "--init_from=me/tiny", "--batch_size=1", "--device=cpu"];
    let ended = works(&dir, &server.address, &args);
    assert!(ended.out.contains("1.6M") || ended.out.contains("2 layers"), "{}", ended.out);
    let asked = server.asked("");
    assert!(asked.iter().all(|asked| asked.line.contains("config.json")), "{asked:?}");
    assert_eq!(asked.len(), 2, "{asked:?}");
    // OpenAI's are known without a request.
    works(&dir, &server.address, &["plan", "--init_from=gpt2", "--gpu", "RTX 4090"]);
    assert!(server.asked("").is_empty());
    works(&dir, &server.address, &args);
    assert!(server.asked("").is_empty());
}

/// `owner/name` is enough for every command; the tokenizer comes with the model.
#[test]
fn a_name_of_the_hub_is_an_argument() {
    let (dir, server) = (TempDir::empty("hub-name"), server(&["me/tiny", "gpt2"]));
    let sample = ["sample", "me/tiny", "--num_samples=1", "--max_new_tokens=3"];
    let first = works(&dir, &server.address, &sample);
    assert!(first.error.contains("me/tiny at 607a30d783df: downloaded to"), "{}", first.error);
    let gguf = ["export", "gpt2", "--to=gguf", "--out=a.gguf"];
    works(&dir, &server.address, &gguf);
    assert!(dir.read("a.gguf").starts_with(b"GGUF"));
    // A folder of the owner's name: then it is a path.
    dir.write("me/notes.txt", b"");
    let missing = ended(&mut with(&dir, &server.address, &["sample", "me/tinny"]));
    missing.failed(4, &["me/tinny does not exist; me holds no run"]);
}

#[test]
fn what_cannot_be_had_is_explained() {
    let (dir, server) = (folder("no-model"), server(&["me/tiny"]));
    server.file("me/llama", "config.json", r#"{"model_type": "llama"}"#);
    server.file("me/llama", "model.safetensors", "x");
    let fails = |endpoint: &str, name: &str, code: i32, words: &[&str]| {
        let name = format!("--init_from={name}");
        let args = [&["train", &name], SHORT].concat();
        ended(&mut with(&dir, endpoint, &args)).failed(code, words);
        let args = ["plan", &name, "--device=cpu"];
        ended(&mut with(&dir, endpoint, &args)).failed(code, words);
    };
    let address = &server.address;
    fails(address, "me/nothing", 4, &["me/nothing", "no such repository", "HF_TOKEN"]);
    fails(address, "./nothing", 4, &["init_from='./nothing' does not exist; . holds no run"]);
    fails(address, "a/b/c", 4, &["init_from='a/b/c' does not exist"]);
    fails(address, "gpt3", 4, &["init_from='gpt3' does not exist; did you mean gpt2?"]);
    fails(address, "scrach", 4, &["init_from='scrach' does not exist; did you mean scratch?"]);
    fails("http://127.0.0.1:1", "me/tiny", 4, &["cannot be reached", "HF_ENDPOINT"]);
    let mut offline = with(&dir, address, &["sample", "--init_from=gpt2"]);
    let offline = Ended::from(offline.env("HF_HUB_OFFLINE", "1").output().unwrap());
    offline.failed(4, &["gpt2: is not complete in", "HF_HUB_OFFLINE"]);
    let llama = ["train", "--init_from=me/llama"];
    let ended = ended(&mut with(&dir, address, &[&llama[..], SHORT].concat()));
    ended.failed(4, &["model_type is 'llama'", "'gpt2'"]);
    assert!(server.asked("me/llama").iter().all(|asked| asked.line.contains("config.json")));
    let longer = ["train", "--init_from=me/tiny", "--block_size=2048"];
    let ended = Ended::from(with(&dir, address, &[&longer[..], SHORT].concat()).output().unwrap());
    assert!(ended.error.contains("me/tiny has 1024 positions"), "{}", ended.error);
    assert_eq!(server.asked(&path("me/nothing", "")).len(), 0);
}
