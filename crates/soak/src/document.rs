//! The result of a soak as one JSON document, `fitgpt.soak/1`.

use crate::options::Options;
use crate::supervise::SectionResult;
use serde_json::{Map, Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Its schema.
pub const SCHEMA: &str = "fitgpt.soak/1";

/// The document.
pub fn of(options: &Options, command: &str, sections: &[SectionResult]) -> Value {
    let seed = options.environment.seed;
    let findings = sections.iter().flat_map(|section| &section.findings);
    let told = |finding: &crate::supervise::Finding| {
        json!({
            "section": finding.name, "case": finding.case, "message": finding.message,
            "replay": finding.replay(seed),
        })
    };
    let seconds: f64 = sections.iter().map(|section| section.time.as_secs_f64()).sum();
    json!({
        "schema": SCHEMA,
        "date": options.fact("date"),
        "commit": options.fact("commit"),
        "machine": {
            "cpu": options.fact("cpu"),
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "memory_bytes": cpu::total_bytes(),
        },
        "command": command,
        "seed": seed,
        "minutes": round(seconds / 60.0),
        "sections": sections.iter().map(section).collect::<Vec<_>>(),
        "findings": findings.map(told).collect::<Vec<_>>(),
    })
}

fn section(ended: &SectionResult) -> Value {
    let most = |(name, value): (&String, &f64)| (name.clone(), json!(round(*value)));
    json!({
        "name": ended.name,
        "seconds": round(ended.time.as_secs_f64()),
        "findings": ended.findings.len(),
        "counts": ended.tally.sums,
        "most": ended.tally.maxima.iter().map(most).collect::<Map<String, Value>>(),
    })
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Writes `<date>_<machine>_<commit>_soak.json`; a second document of that name gets a number.
///
/// # Errors
///
/// When it cannot be written.
pub fn keep(folder: &Path, options: &Options, document: &Value) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let [date, machine, commit] = ["date", "machine", "commit"].map(|name| options.fact(name));
    let name = format!("{date}_{machine}_{commit}_soak");
    let mut path = folder.join(format!("{name}.json"));
    let mut number = 1;
    while path.exists() {
        number += 1;
        path = folder.join(format!("{name}-{number}.json"));
    }
    std::fs::write(&path, format!("{document:#}\n"))?;
    Ok(path)
}
