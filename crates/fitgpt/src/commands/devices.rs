//! `fitgpt devices`: lists the devices, what they can do and which processes hold their memory;
//! once, or as a live view. It creates no CUDA context, so it uses no GPU memory itself.

use super::line;
use crate::flags::{Flag, FlagSet, flags};
use crate::screen::{show, show_json};
use crate::survey::{CpuFacts, GpuFacts, LibraryFacts, Reading, Survey};
use crate::{interrupt, screen};
use ::train::TrainError;
use cache::Contents;
use console::Term;
use cuda::{GpuProcess, OLDEST_SM};
use plan::Bytes;
use serde_json::{Map, Value, json};
use spec::{RequestedDtype, SpecError, Values};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

flags! {
    /// The flags of `devices`.
    pub struct Flags {
        /// refresh at this interval; in a pipe, print the whole list each time
        watch: Option<String> = "--watch", "SECONDS" Values::Any;
        /// one JSON document (fitgpt.devices/1, docs/devices-json.md) on standard output; with
        /// --watch one per line
        json: bool = "--json";
        /// remove the cached kernels and timings of fitgpt; the next run makes them again
        clear_cache: bool = "--clear-cache";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "devices",
    about: "list CPU and GPUs: what they can do, which processes hold their memory",
    text: &[
        "Lists the CPU, every NVIDIA GPU and the libraries needed to train on one: memory, number \
         formats, load, and which processes hold memory. For a missing library it says what to \
         install. It uses no GPU memory itself.",
    ],
    usage: &[line("fitgpt devices [flags]", "")],
    examples: &[
        line("fitgpt devices", ""),
        line("fitgpt devices --watch 1", "a live view until Ctrl-C"),
    ],
    notes: &[],
    lists_data_sets: false,
    arguments: &[],
    flags: Flags::TABLE,
    closing: &[],
    keys: None,
    run,
};

const SCHEMA: &str = "fitgpt.devices/1";

/// Accepted values of `--watch`.
const PAUSES: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// How often a pause checks for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(50);

/// The column where the facts about a device or a library begin.
const MARGIN: usize = 10;

/// Formats that plans run in, as `dtype` names them.
const CPU_FORMATS: [&str; 1] = [RequestedDtype::Float32.word()];
const GPU_FORMATS: [&str; 3] = [
    RequestedDtype::Bfloat16.word(),
    RequestedDtype::Float16.word(),
    RequestedDtype::Float32.word(),
];

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    if let Some(other) = rest.first() {
        let shown: String = other.chars().take(40).collect();
        let flags: Vec<String> = Flags::TABLE.iter().map(Flag::typed).collect();
        let what = format!("devices does not accept '{shown}'; it has {}", flags.join(", "));
        return Err(SpecError::Conflict { what }.into());
    }
    if flags.clear_cache {
        return clear_cache(&flags);
    }
    let pause = flags.watch.as_deref().map(seconds).transpose()?;
    let survey = Survey::new();
    let json = flags.json;
    let Some(pause) = pause else {
        let reading = survey.read()?;
        match json {
            true => show_json(&document(&reading))?,
            false => show(&text(&reading, screen::wrap_width()))?,
        }
        return Ok(0);
    };
    watch(&survey, Duration::from_secs_f64(pause), json)?;
    Ok(0)
}

fn clear_cache(flags: &Flags) -> Result<u8, TrainError> {
    if flags.json || flags.watch.is_some() {
        let what = "--clear-cache only removes files; give --json and --watch without it";
        return Err(SpecError::Conflict { what: what.to_string() }.into());
    }
    let Some(folder) = cache::folder() else {
        show("there is no cache: neither FITGPT_CACHE nor HOME is set\n")?;
        return Ok(0);
    };
    let found = Contents::of(&folder);
    found.clear(&folder).map_err(|(path, error)| TrainError::Io {
        path,
        doing: "remove",
        error,
        advice: "remove it by hand; the cache only saves time",
    })?;
    let size = bytes(Some(found.bytes()));
    let s = if found.files() == 1 { "" } else { "s" };
    show(&format!("removed {} file{s}, {size}, from {}\n", found.files(), folder.display()))?;
    Ok(0)
}

fn seconds(given: &str) -> Result<f64, SpecError> {
    let number = given.parse().ok().filter(|number| PAUSES.contains(number));
    number.ok_or_else(|| {
        let shown: String = given.chars().take(40).collect();
        let (least, most) = (PAUSES.start(), PAUSES.end());
        let what = format!("--watch needs seconds between {least} and {most}, not '{shown}'");
        SpecError::Conflict { what }
    })
}

/// Prints a new reading until Ctrl-C, or until the reader closes the pipe.
fn watch(survey: &Survey, pause: Duration, json: bool) -> Result<(), TrainError> {
    let stop = interrupt::catch("");
    let mut drawn = 0;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let reading = survey.read()?;
        let shown = if json {
            format!("{}\n", document(&reading))
        } else if screen::is_terminal() {
            let (frame, lines) = redrawn(&text(&reading, screen::width()), drawn);
            drawn = lines;
            frame
        } else {
            text(&reading, screen::wrap_width()) + "\n"
        };
        match screen::out(&shown) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(TrainError::Output(error)),
        }
        rest(&stop, pause.saturating_sub(start.elapsed()));
    }
    Ok(())
}

fn rest(stop: &AtomicBool, pause: Duration) {
    let end = Instant::now() + pause;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(GLANCE));
    }
}

/// Draws a text over the previous one, which had `before` lines; also returns its number of lines.
/// Lines are cut, not wrapped, and limited to the screen: else the next frame would begin too low.
fn redrawn(text: &str, before: usize) -> (String, usize) {
    let (rows, columns) = Term::stdout().size();
    let room = usize::from(rows).saturating_sub(1).max(1);
    let lines: Vec<&str> = text.lines().take(room).collect();
    let mut frame = String::new();
    if before > 0 {
        frame += &format!("\x1b[{before}A\r");
    }
    for line in &lines {
        frame += &format!("{}\x1b[K\n", console::truncate_str(line, columns.into(), "…"));
    }
    frame += "\x1b[J";
    (frame, lines.len())
}

/// The reading as text.
fn text(reading: &Reading, width: usize) -> String {
    let mut text = cpu_text(&reading.cpu, width);
    for gpu in &reading.gpus {
        text += &gpu_text(gpu, width);
    }
    text += &format!("\n{}\n", screen::strong("libraries for NVIDIA GPUs"));
    for library in &reading.libraries {
        text += &library_text(library, width);
    }
    text += &cache::folder().map_or(String::new(), |folder| {
        let (size, place) = (bytes(Some(Contents::of(&folder).bytes())), folder.display());
        format!("\n{}", labelled("cache", &format!("{size} in {place}"), width))
    });
    text
}

/// A label and its text, wrapped in a column of its own.
fn labelled(label: &str, said: &str, width: usize) -> String {
    let wrapped = screen::wrapped(said, 0, width.saturating_sub(MARGIN));
    let mut rows = wrapped.lines();
    let mut text = format!("{label:<MARGIN$}{}\n", rows.next().unwrap_or_default());
    for row in rows {
        text += &format!("{:MARGIN$}{row}\n", "");
    }
    text
}

fn cpu_text(cpu: &CpuFacts, width: usize) -> String {
    let name = cpu.name.as_deref().unwrap_or("unknown CPU");
    let s = if cpu.threads == 1 { "" } else { "s" };
    let (free, memory) = (bytes(cpu.free), bytes(cpu.memory));
    let mut text = labelled("CPU", &screen::strong(name), width);
    text += &labelled("", &format!("{} thread{s}, {}", cpu.threads, cpu.instruction_set), width);
    text += &labelled("", &format!("memory {memory}: {free} free"), width);
    text + &labelled("", "trains in float32", width)
}

fn gpu_text(gpu: &GpuFacts, width: usize) -> String {
    let info = &gpu.info;
    let (free, used) = (gpu.memory.map(|(free, _)| free), gpu.memory.map(|(_, used)| used));
    let memory = bytes(Some(info.memory));
    let sm = capability(info.sm);
    let sms = info.multiprocessors;
    let mut text = String::from("\n");
    text += &labelled(&format!("GPU {}", info.index), &screen::strong(&info.name), width);
    text += &labelled("", &format!("compute capability {sm}, {sms} multiprocessors"), width);
    let memory = format!("memory {memory}: {} free, {} in use", bytes(free), bytes(used));
    text += &labelled("", &memory, width);
    text += &labelled("", &ability(gpu), width);
    let load = load_text(gpu);
    text += &labelled("", &format!("at {}{load}", info.pci_bus_id), width);
    for process in &gpu.processes {
        text += &labelled("", &format!("held by {process}"), width);
    }
    text
}

/// What a GPU can do.
fn ability(gpu: &GpuFacts) -> String {
    match too_old(gpu) {
        Some(why) => why,
        None => "trains in bfloat16, float16 and float32 (TF32)".to_string(),
    }
}

fn too_old(gpu: &GpuFacts) -> Option<String> {
    let needed = format!("too old: sm_{OLDEST_SM} is needed, this is sm_{}", gpu.info.sm);
    (!gpu.info.is_supported()).then_some(needed)
}

/// What NVML reports about the load, each part with a comma before it.
fn load_text(gpu: &GpuFacts) -> String {
    let Some(load) = gpu.load else {
        return String::new();
    };
    let parts = [
        load.busy_percent.map(|percent| format!(", busy {percent} %")),
        load.temperature.map(|degrees| format!(", {degrees} °C")),
        load.power.map(|milliwatts| format!(", {:.0} W", f64::from(milliwatts) / 1e3)),
    ];
    parts.into_iter().flatten().collect()
}

fn library_text(library: &LibraryFacts, width: usize) -> String {
    let said = match &library.problem {
        Some(problem) => problem.clone(),
        None => {
            let cuda = library.cuda.as_ref().map(|version| format!("CUDA {version}"));
            let parts = [library.version.clone(), cuda, library.path.clone()];
            parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
    };
    labelled(library.name, &said, width)
}

fn bytes(count: Option<u64>) -> String {
    count.and_then(Bytes::new).map_or("?".to_string(), |bytes| bytes.to_string())
}

/// 89 is 8.9.
fn capability(sm: u32) -> String {
    format!("{}.{}", sm / 10, sm % 10)
}

/// The reading as JSON: `docs/devices-json.md`.
fn document(reading: &Reading) -> Value {
    let cpu = &reading.cpu;
    let library = |facts: &LibraryFacts| {
        let LibraryFacts { key, version, cuda, path, problem, .. } = facts;
        let mut fields = Map::new();
        fields.insert("version".to_string(), json!(version));
        if *key == "driver" {
            fields.insert("cuda_version".to_string(), json!(cuda));
        }
        fields.insert("path".to_string(), json!(path));
        fields.insert("problem".to_string(), json!(problem));
        (key.to_string(), Value::Object(fields))
    };
    json!({
        "schema": SCHEMA,
        "cpu": {
            "name": cpu.name,
            "threads": cpu.threads,
            "instruction_set": cpu.instruction_set,
            "memory_bytes": cpu.memory,
            "free_bytes": cpu.free,
            "dtypes": CPU_FORMATS,
        },
        "gpus": reading.gpus.iter().map(gpu_document).collect::<Vec<_>>(),
        "libraries": Map::from_iter(reading.libraries.iter().map(library)),
    })
}

fn gpu_document(gpu: &GpuFacts) -> Value {
    let GpuFacts { info, memory, load, processes } = gpu;
    let supported = info.is_supported();
    let process = |process: &GpuProcess| {
        let GpuProcess { pid, name, bytes } = process;
        json!({ "pid": pid, "name": name, "bytes": bytes })
    };
    json!({
        "index": info.index,
        "name": info.name,
        "compute_capability": capability(info.sm),
        "multiprocessors": info.multiprocessors,
        "memory_bytes": info.memory,
        "free_bytes": memory.map(|(free, _)| free),
        "used_bytes": memory.map(|(_, used)| used),
        "supported": supported,
        "dtypes": if supported { &GPU_FORMATS[..] } else { &[] },
        "problem": too_old(gpu),
        "pci_bus_id": info.pci_bus_id,
        "busy_percent": load.and_then(|load| load.busy_percent),
        "temperature_celsius": load.and_then(|load| load.temperature),
        "power_watts": load.and_then(|load| load.power).map(|power| f64::from(power) / 1e3),
        "processes": processes.iter().map(process).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda::{GpuInfo, GpuLoad};

    fn gpu(sm: u32) -> GpuFacts {
        let info = GpuInfo {
            index: 1,
            name: "NVIDIA Test".to_string(),
            sm,
            memory: 12 << 30,
            multiprocessors: 46,
            pci_bus_id: "0000:01:00.0".to_string(),
        };
        let load =
            GpuLoad { busy_percent: Some(7), temperature: None, power: Some(31_400), clock: None };
        let process = GpuProcess { pid: 42, name: Some("python3".to_string()), bytes: None };
        let memory = Some((10 << 30, 2 << 30));
        GpuFacts { info, memory, load: Some(load), processes: vec![process] }
    }

    #[test]
    fn lines_about_a_gpu_fit_the_width() {
        let said = console::strip_ansi_codes(&gpu_text(&gpu(89), 60)).into_owned();
        for part in [
            "GPU 1     NVIDIA Test\n",
            "compute capability 8.9, 46 multiprocessors",
            "memory 12.00 GiB: 10.00 GiB free, 2.00 GiB in use",
            "trains in bfloat16, float16 and float32 (TF32)",
            "at 0000:01:00.0, busy 7 %, 31 W",
            "held by python3 (PID 42)\n",
        ] {
            assert!(said.contains(part), "{part:?} in {said}");
        }
        assert!(said.lines().all(|line| line.chars().count() <= 60), "{said}");
        assert!(gpu_text(&gpu(75), 60).contains("too old: sm_80 is needed, this is sm_75"));
    }

    #[test]
    fn unknown_facts_about_a_gpu_are_null_in_json() {
        let mut facts = gpu(75);
        facts.memory = None;
        let document = gpu_document(&facts);
        assert_eq!(document["compute_capability"], "7.5");
        assert_eq!(document["supported"], false);
        assert_eq!(document["dtypes"], json!([]));
        assert!(document["free_bytes"].is_null() && document["temperature_celsius"].is_null());
        assert_eq!(document["power_watts"], 31.4);
        assert_eq!(document["processes"][0], json!({"pid": 42, "name": "python3", "bytes": null}));
    }

    #[test]
    fn senseless_seconds_are_refused() {
        assert_eq!(seconds("0.5").unwrap(), 0.5);
        for given in ["0", "-1", "x", "NaN", "1e9", ""] {
            assert!(seconds(given).is_err(), "{given}");
        }
    }

    #[test]
    fn a_frame_goes_up_over_the_one_before() {
        let (first, lines) = redrawn("a\nb\n", 0);
        assert_eq!((first.as_str(), lines), ("a\x1b[K\nb\x1b[K\n\x1b[J", 2));
        assert!(redrawn("a\n", 2).0.starts_with("\x1b[2A\r"));
    }
}
