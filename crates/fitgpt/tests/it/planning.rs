//! `fitgpt plan`: the document that programs read, the cases that began the project, refusals whose
//! suggestions are true, and what cannot be planned.

use crate::fixture::{Ended, TINY, TempDir};
use requires::{Need, absent};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A config of the repository.
fn config(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    folder.join(name).to_str().unwrap().to_string()
}

fn plan(arguments: &[&str]) -> Ended {
    TempDir::empty(&format!("plan-{:x}", hash(arguments))).run(&[&["plan"], arguments].concat())
}

fn hash(arguments: &[&str]) -> u64 {
    let eat = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    arguments.concat().bytes().fold(0xcbf2_9ce4_8422_2325, eat)
}

/// The document of a plan that fits.
fn document(arguments: &[&str]) -> Value {
    let ended = plan(&[arguments, &["--json"]].concat()).succeeded();
    let document = serde_json::from_str(&ended.out).unwrap();
    check_sums(&document);
    document
}

fn number(document: &Value, key: &str) -> u64 {
    document[key].as_u64().unwrap_or_else(|| panic!("{key}: {document:#}"))
}

fn numbers(value: &Value) -> Vec<u64> {
    let of = |value: &Value| value.as_u64().unwrap();
    match value {
        Value::Object(fields) => fields.values().map(of).collect(),
        other => other.as_array().unwrap().iter().map(of).collect(),
    }
}

/// Every byte is accounted for, and the budget is kept.
fn check_sums(document: &Value) {
    let [arena, context, device, budget] =
        ["arena_bytes", "context_bytes", "device_bytes", "budget_bytes"]
            .map(|key| number(document, key));
    // The CPU's memory is the host's: one budget for all of it.
    let is_cpu = document["device"].as_str().unwrap().contains("thread");
    let host = if is_cpu { number(document, "host_bytes") } else { 0 };
    assert_eq!(arena + context + host, device);
    assert!(device <= budget);
    assert_eq!(numbers(&document["roles"]).iter().sum::<u64>(), arena, "{document:#}");
    assert_eq!(numbers(&document["phases"]).into_iter().max(), Some(arena), "{document:#}");
}

const GIB: f64 = (1u64 << 30) as f64;

#[test]
fn the_document_has_every_field() {
    let found = document(&[&config("case_a_124m_b64.py"), "--gpu", "RTX 4070"]);
    let keys: Vec<&str> = found.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys[0], "schema");
    for key in [
        "fits",
        "device",
        "budget_bytes",
        "arena_bytes",
        "context_bytes",
        "device_bytes",
        "phases",
        "roles",
        "host_bytes",
        "hash",
        "slices",
        "eval_slices",
        "head_chunk_tokens",
        "recompute",
        "tokens_per_iteration",
        "predicted_tokens_per_second",
        "predicted_run_seconds",
    ] {
        assert!(!found[key].is_null(), "{key}");
    }
    let fields =
        |key: &str| -> Vec<String> { found[key].as_object().unwrap().keys().cloned().collect() };
    assert_eq!(fields("phases"), ["load", "train", "eval", "sample", "save"]);
    let roles = fields("roles");
    for role in [
        "weights",
        "master",
        "gradients",
        "moments",
        "activations",
        "logits",
        "workspace",
        "tokens",
    ] {
        assert!(roles.iter().any(|found| found == role), "{role}");
    }
    assert_eq!(found["schema"], "fitgpt.plan/1");
    assert_eq!(found["device"], "RTX 4070");
    assert_eq!(numbers(&found["slices"]).iter().sum::<u64>(), 64);
    assert_eq!(numbers(&found["eval_slices"]).iter().sum::<u64>(), 64);
    assert_eq!(number(&found, "tokens_per_iteration"), 65_536);
    assert_eq!(found["recompute"].as_array().unwrap().len(), 12);
    // 20,000 iterations of 65,536 tokens, and evaluations besides.
    let seconds = 20_000.0 * 65_536.0 / found["predicted_tokens_per_second"].as_f64().unwrap();
    let run = found["predicted_run_seconds"].as_f64().unwrap();
    assert!(run > seconds && run < 1.5 * seconds, "{run} {seconds}");
}

/// The cases of the project on a 12 GB card, in `device_bytes`, a 0.5 GiB context included.
#[test]
fn the_cases_that_began_the_project() {
    let (a, b) = (config("case_a_124m_b64.py"), config("case_b_77m_fp16.py"));
    let only = |found: &Value, levels: &[&str]| {
        let kept = found["recompute"].as_array().unwrap().iter();
        kept.clone().all(|level| levels.contains(&level.as_str().unwrap()))
    };
    for vram in ["11.69GiB", "9.7GiB", "8.3GiB"] {
        let found = document(&[&a, &format!("--vram={vram}")]);
        assert!(only(&found, &["R0", "R1", "R2"]), "no product is repeated: {found:#}");
        assert!(found["predicted_tokens_per_second"].is_null(), "nobody knows the card");
    }
    for vram in ["11.69GiB", "6.5GiB"] {
        let found = document(&[&b, "--gpu=RTX 4070", "--vram", vram]);
        assert!(only(&found, &["R0"]), "nothing is recomputed: {found:#}");
    }
    let small = ["--dataset=x", "--gradient_accumulation_steps=1"];
    document(&[&small[..], &["--batch_size=12", "--vram=4GiB"]].concat());
    let medium = ["--n_layer=24", "--n_head=16", "--n_embd=1024", "--batch_size=1"];
    document(&[&small[..], &medium, &["--vram=8GiB"]].concat());
    let medium_11 = document(&["--dataset=x", medium[0], medium[1], medium[2], "--vram=11GiB"]);
    assert_eq!(medium_11["optimizer_state"], "float32");
    let large_eval = document(&[&a, "--vram=11.69GiB", "--eval_batch_size=512"]);
    let usual_eval = document(&[&a, "--vram=11.69GiB"]);
    let added = number(&large_eval, "device_bytes") - number(&usual_eval, "device_bytes");
    assert!(added <= 4096, "room for the losses of 512 sequences alone, not {added}");
}

#[test]
fn larger_models_need_levers_and_are_refused_without() {
    let sizes = [
        ["--n_layer=36", "--n_head=20", "--n_embd=1280"],
        ["--n_layer=48", "--n_head=25", "--n_embd=1600"],
    ];
    for size in sizes {
        let all = [&["--dataset=x", "--gpu=RTX 4070"][..], &size].concat();
        let refused = plan(&[&all[..], &["--json"]].concat());
        assert_eq!(refused.code, Some(3), "{refused:?}");
        let found: Value = serde_json::from_str(&refused.out).unwrap();
        assert_eq!(found["fits"], false);
        let over = number(&found, "device_bytes") - number(&found, "budget_bytes");
        assert_eq!(number(&found, "missing_bytes"), over);
        assert!(found["largest"].as_array().unwrap().len() >= 3);
        assert!(found["largest"][0]["bytes"].as_u64().unwrap() as f64 > GIB);
        let suggestions = found["suggestions"].as_array().unwrap();
        assert!((2..=3).contains(&suggestions.len()), "{found:#}");
        for one in suggestions {
            suggestion_is_true(&all, one);
        }
        let permitted = ["--optimizer_state=auto", "--offload=auto"];
        let found = document(&[&all[..], &permitted].concat());
        let is_pulled = found["offload"] != false || found["optimizer_state"] == "bfloat16";
        assert!(is_pulled, "neither lever: {found:#}");
        assert!(number(&found, "predicted_tokens_per_second") > 1000);
    }
}

/// Suggested settings fit, with the numbers that were printed.
fn suggestion_is_true(all: &[&str], one: &Value) {
    assert_eq!(one["fits"], true);
    assert!(one["note"].as_str().unwrap().len() > 10);
    let settings = one["settings"].as_object().unwrap();
    let text = |value: &Value| value.as_str().map_or(value.to_string(), str::to_string);
    let typed: Vec<String> =
        settings.iter().map(|(key, value)| format!("--{key}={}", text(value))).collect();
    let typed: Vec<&str> = typed.iter().map(String::as_str).collect();
    let found = document(&[all, &typed].concat());
    for key in ["device_bytes", "tokens_per_iteration", "predicted_tokens_per_second"] {
        assert_eq!(found[key], one[key], "{key} of {typed:?}");
    }
}

#[test]
fn the_same_question_has_the_same_answer() {
    let arguments = [config("case_b_77m_fp16.py"), "--gpu=RTX 3060".to_string()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(document(&arguments), document(&arguments));
    // As a driver spells it.
    let other = [arguments[0], "--gpu", "NVIDIA GeForce RTX 3060"];
    assert_eq!(document(&arguments), document(&other));
}

/// `train` allocates what `plan` says.
#[test]
fn train_takes_what_was_planned() {
    let dir = TempDir::new("plan-and-train");
    let planned = dir.run(&[&["plan"], TINY, &["--json"]].concat()).succeeded();
    let planned: Value = serde_json::from_str(&planned.out).unwrap();
    check_sums(&planned);
    let trained = dir.train(&["--max_iters=1"]).succeeded();
    let line = trained.out.lines().find(|line| line.contains("one allocation of")).unwrap();
    let digits: String = line.split("one allocation of").nth(1).unwrap().to_string();
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    assert_eq!(digits, number(&planned, "arena_bytes").to_string());
    assert!(number(&planned, "predicted_tokens_per_second") > 0, "this CPU was measured");
}

#[test]
fn a_sweep_has_a_row_for_each_value_and_valid_heads() {
    let config = config("case_b_77m_fp16.py");
    let ended = plan(&[&config, "--gpu=RTX 4070", "--sweep", "n_embd=576,512,448"]).succeeded();
    for words in ["512 n_head=8", "63.5M", "448 n_head=7", "51.4M", "tok/s"] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    let json = plan(&[&config, "--vram=2GiB", "--sweep=batch_size=4,8", "--json"]);
    let json: Value = serde_json::from_str(&json.succeeded().out).unwrap();
    assert_eq!(json["sweep"].as_array().unwrap().len(), 2);
    assert_eq!(json["sweep"][1]["settings"]["batch_size"], "8");
    plan(&[&config, "--vram=2GiB", "--sweep", "batch_size"]).failed(2, &["key=a,b,c"]);
    plan(&[&config, "--vram=2GiB", "--sweep", "batchsize=1"]).failed(2, &["batch_size"]);
}

#[test]
fn the_arena_is_drawn() {
    let dir = TempDir::empty("plan-svg");
    let config = config("case_a_124m_b64.py");
    let ended = dir.run(&["plan", &config, "--gpu=RTX 4070", "--svg", "map.svg"]).succeeded();
    assert!(ended.out.contains("arena map: map.svg"), "{}", ended.out);
    let svg = String::from_utf8(dir.read("map.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for words in ["h.11.fch", "master", "logits", "backward", "GiB"] {
        assert!(svg.contains(words), "{words}");
    }
    dir.run(&["plan", &config, "--gpu=RTX 4070", "--svg", "no/folder/map.svg"])
        .failed(4, &["no/folder/map.svg"]);
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let a = config("case_a_124m_b64.py");
    for (arguments, words) in [
        (&["--gpu", "RTX 4071"][..], &["unknown --gpu 'RTX 4071'", "RTX 4070"][..]),
        (&["--gpu"], &["--gpu needs a value: --gpu NAME"]),
        (&["--vram=12 apples"], &["vram='12 apples'", "11.69GiB"]),
        (&["--vram=80%"], &["--gpu 'RTX 4070'"]),
        (&["--device=cuda"], &["--gpu 'RTX 4070'", "--vram 8GiB"]),
        (&["--gpu=T4", "--batchsize=3"], &["did you mean --batch_size?"]),
        (&["--gpu=T4", "--n_head=7"], &["n_embd=768 cannot be divided by n_head=7"]),
        (&["--gpu=T4", "--json=1"], &["--json takes no value, but got '1'"]),
    ] {
        plan(&[&[&a as &str], arguments].concat()).failed(2, words);
    }
    let below_the_weights = plan(&[&a, "--vram=700MiB"]);
    assert_eq!(below_the_weights.code, Some(3));
    assert!(
        below_the_weights.error.contains("does not fit: needs at least"),
        "{}",
        below_the_weights.error
    );
    let old = plan(&[&a, "--gpu=RTX 2080 Ti"]).succeeded();
    assert!(old.out.contains("`train` refuses the RTX 2080 Ti"), "{}", old.out);
}

/// What people see, in the width they have.
#[test]
fn the_bill_for_people() {
    let ended = plan(&[&config("case_a_124m_b64.py"), "--gpu=RTX 4070"]).succeeded();
    for words in [
        "weight",
        "activation",
        "logits",
        "peak of each phase",
        "load",
        "save",
        "└backward",
        "plan: 64 sequences as ",
        "nothing recomputed: ",
        " of 11.69 GiB, about ",
        "on an RTX 4070",
        "20,000 iterations in ",
        "hash ",
        "data set 'openwebtext_local' does not exist here",
    ] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
}

/// Asked with nothing, it plans what `train` would run.
#[test]
fn without_arguments_it_plans_the_built_in_run() {
    let ended = plan(&[]).succeeded();
    assert!(ended.out.contains("built-in demo") && ended.out.contains("this CPU"), "{}", ended.out);
}

#[test]
fn it_is_quick() {
    let config = config("case_a_124m_b64.py");
    let best = (0..3).map(|_| {
        let start = std::time::Instant::now();
        document(&[&config, "--gpu=RTX 4070"]);
        start.elapsed()
    });
    let limit = if cfg!(debug_assertions) { 3.0 } else { 0.3 };
    let best = best.min().unwrap().as_secs_f64();
    assert!(best < limit, "{best} s");
}

/// Thousands of windows of offloaded state: placed and billed in time that grows with their number,
/// not with its square. It took more than two minutes.
#[test]
fn a_model_far_beyond_the_card_is_refused_in_seconds() {
    let huge = ["--n_layer=261", "--n_embd=10252", "--n_head=4", "--dataset=x"];
    for offload in ["--offload=optimizer", "--offload=auto"] {
        let start = std::time::Instant::now();
        let refused = plan(&[&huge[..], &["--gpu=RTX 4090", offload]].concat());
        assert_eq!(refused.code, Some(3), "{refused:?}");
        let seconds = start.elapsed().as_secs_f64();
        assert!(seconds < 40.0, "{seconds} s");
    }
}

/// The update of offloaded state decides this arena: what a run holds, and three windows of
/// master (lower halves), m and v. The partial sums of the norm have bytes of the first window,
/// because its copies wait.
#[test]
fn offloaded_state_costs_three_windows() {
    let small = ["--batch_size=1", "--block_size=16", "--gradient_accumulation_steps=1"];
    let offload = ["--vram=5GiB", "--offload=optimizer", "--dtype=bfloat16"];
    let found = document(&[&[config("train_gpt2.py").as_str()], &small[..], &offload].concat());
    let window = 4 * (1 << 22);
    let held = 775_154_176;
    assert_eq!(number(&found["phases"], "load"), held);
    assert_eq!(number(&found, "arena_bytes"), held + 3 * (2 * window + window / 2));
    assert_eq!(number(&found, "pinned_bytes"), 1_235_996_160);
    let roles = &found["roles"];
    assert_eq!(["master", "moments"].map(|role| number(roles, role)), [3 * window / 2, 6 * window]);
    assert_eq!(["workspace", "unused"].map(|role| number(roles, role)), [33_554_432, 0]);
}

/// What host memory holds, in the JSON, the bill and the sentence.
#[test]
fn activations_in_host_memory_are_reported() {
    let medium = ["--dataset=x", "--n_layer=24", "--n_head=16", "--n_embd=1024", "--batch_size=12"];
    let card = ["--gpu=RTX 3060", "--vram=6.6GiB", "--gradient_accumulation_steps=1"];
    for offload in ["--offload=activations", "--offload=auto"] {
        let arguments = [&medium[..], &card, &[offload]].concat();
        let found = document(&arguments);
        assert_eq!(found["offload"], "activations", "{offload}");
        let levels = found["recompute"].as_array().unwrap();
        let layers = levels.iter().filter(|level| *level == "R2h").count();
        // Query, key and value, and the four times wider MLP, of the largest slice, in bf16.
        let rows = found["slices"][0].as_u64().unwrap();
        let bytes = layers as u64 * rows * 1024 * 1024 * (3 + 4) * 2;
        assert!(layers > 0 && number(&found, "pinned_bytes") == bytes, "{offload}: {found:#}");
        let text = plan(&arguments).succeeded().out;
        let said = format!("activations of {layers} layers in host memory");
        assert!(text.replace('\n', " ").contains(&said), "{text}");
        assert!(text.contains("outside the arena: activations in host memory"), "{text}");
        assert!(!text.contains("optimizer's state in host memory"), "{text}");
    }
}

/// Measured step times serve predictions and never the choice of a plan.
#[test]
fn times_that_were_measured_are_used() {
    let dir = TempDir::new("plan-measure");
    let ended = |more: &[&str]| {
        let mut command = dir.command(&[&["plan"], TINY, &["--json"], more].concat());
        let command = command.env("XDG_CACHE_HOME", dir.path("cache"));
        let ended = Ended::from(command.output().unwrap());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    };
    let plan = |more: &[&str]| serde_json::from_str::<Value>(&ended(more).out).unwrap();
    let before = plan(&[]);
    assert_eq!(before["predicted_by"], "a quick measurement");
    let measured = plan(&["--measure"]);
    assert_eq!(measured["predicted_by"], "measured step times");
    assert_eq!(plan(&[])["predicted_by"], "measured step times");
    for key in ["hash", "slices", "recompute", "arena_bytes"] {
        assert_eq!(before[key], measured[key], "{key}");
    }
    let file = std::fs::read_dir(dir.path("cache/fitgpt")).unwrap().next().unwrap().unwrap();
    let (file, content) = (file.path(), std::fs::read_to_string(file.path()).unwrap());
    // A cache is an input: what is not certainly ours is ignored, and one line says so.
    let mode = |mode| std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    let ignored = |why: &str| {
        let ended = ended(&[]);
        let notes: Vec<&str> = ended.error.lines().filter(|l| l.contains("is ignored")).collect();
        assert!(notes.len() == 1 && notes[0].contains(why), "{why}: {ended:?}");
        assert!(ended.out.contains("a quick measurement"), "{why}");
    };
    for (broken, why) in [
        ("{".to_string(), "damaged"),
        (content[..content.len() / 2].to_string(), "damaged"),
        (content.replace("op_times/2", "op_times/1"), "another build"),
        (content.replace("\"build\": \"", "\"build\": \"9"), "another build"),
        (content.replace("\"sums\"", "\"sum\""), "damaged"),
        (content.clone() + &" ".repeat(1 << 20), "longer than"),
    ] {
        std::fs::write(&file, broken).unwrap();
        ignored(why);
    }
    std::fs::write(&file, &content).unwrap();
    mode(0o666);
    ignored("other users can write");
    mode(0o600);
    match std::os::unix::fs::chown(&file, Some(12345), None) {
        Ok(()) => ignored("another user (uid 12345)"),
        Err(_) => absent(Need::Root, "only root can change a file's owner"),
    }
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    ignored("not a regular file");
    dir.run(&["plan", "--gpu=L4", "--measure"]).failed(2, &["--measure", "leave out --gpu"]);
}

/// What only evaluates is cut as far as its memory needs, and has no speed of training.
#[test]
fn an_evaluation_alone_is_planned_too() {
    let a = config("case_a_124m_b64.py");
    let roomy = document(&[&a, "--eval_only=True", "--gpu=RTX 4070"]);
    assert!(roomy["predicted_tokens_per_second"].is_null() && roomy["recompute"].is_null());
    assert!(roomy["predicted_run_seconds"].as_u64().unwrap() > 0);
    let tight = document(&[&a, "--eval_only=True", "--vram=1GiB"]);
    let logits = |found: &Value| found["roles"]["logits"].as_u64().unwrap();
    assert!(logits(&tight) < logits(&roomy), "chunks are smaller where memory is");
}

#[test]
fn cards_give_what_they_have_and_no_more() {
    let a = config("case_a_124m_b64.py");
    let found = document(&[&a, "--gpu=RTX 4070", "--vram=99GiB"]);
    assert!((number(&found, "budget_bytes") as f64 / GIB - 11.69).abs() < 0.01);
    let short = document(&[&a, "--gpu=A100"]);
    assert_eq!(short["device"], "A100 40GB");
    // An explicit device='cpu' is for the CPU, whatever the file says of vram.
    let cpu = plan(&[&a, "--device=cpu", "--json", "--ram=64GiB"]);
    assert!(cpu.out.contains("threads") || cpu.code == Some(3), "{cpu:?}");
}

/// Suggestions are for the run that was asked for: an existing model keeps its size.
#[test]
fn models_that_exist_are_not_made_smaller() {
    let refused = plan(&["--init_from=gpt2-xl", "--vram=11.69GiB", "--json"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    let found: Value = serde_json::from_str(&refused.out).unwrap();
    let suggestions = found["suggestions"].as_array().unwrap();
    assert!(!suggestions.is_empty());
    for one in suggestions {
        let settings = one["settings"].as_object().unwrap();
        assert!(!settings.contains_key("n_embd") && !settings.contains_key("n_layer"), "{one}");
    }
}

/// A lack of host memory is distinguished from a lack of GPU memory.
#[test]
fn the_host_has_a_budget_too() {
    let xl = ["--init_from=gpt2-xl", "--vram=11.69GiB", "--offload=optimizer", "--json"];
    let refused = plan(&[&xl[..], &["--ram=4GiB"]].concat());
    assert_eq!(refused.code, Some(3));
    let found: Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!(number(&found, "missing_bytes"), 0);
    assert!(number(&found, "missing_host_bytes") as f64 > 10.0 * GIB, "{found:#}");
    assert!(
        refused.error.contains("of host memory, 10.81 GiB more than may be used"),
        "{}",
        refused.error
    );
    let batches = ["--dataset=x", "--batch_size=1000000", "--gpu=RTX 4070", "--ram=1GiB", "--json"];
    assert_eq!(plan(&batches).code, Some(3), "batches are host memory");
    let too_many = plan(&["--dataset=x", "--batch_size=5000000", "--gpu=L4", "--json"]);
    assert_eq!(too_many.code, Some(3));
    let found: Value = serde_json::from_str(&too_many.out).unwrap();
    assert!(found["error"].as_str().unwrap().contains("sequences"));
}

#[test]
fn a_value_that_makes_no_model_is_a_row_of_its_own() {
    let b = config("case_b_77m_fp16.py");
    let ended = plan(&[&b, "--gpu=RTX 4070", "--sweep=n_head=12,7,8"]).succeeded();
    assert!(
        ended.out.contains("cannot be divided") && ended.out.contains("tok/s"),
        "{}",
        ended.out
    );
    plan(&[&b, "--vram=5GiB", "--sweep=vram=1GiB,2GiB"]).failed(2, &["--vram already sets vram"]);
    plan(&[&b, "--sweep=n_head=8", "--measure", "--vram=5GiB"]).failed(2, &["--measure"]);
}
