//! A diagnosis for the page: the doctor's document, and its texts in the reader's language.

use super::plan::without_files;
use crate::doctor_document;
use crate::invocation::program;
use crate::planning::find_gpu;
use ::page::{Query, Refused};
use ::train::TrainError;
use doctor::diagnosis::{Diagnosis, Given};
use doctor::log::{Log, ends};
use doctor::recovered::RecoveredRun;
use doctor::report::Report;
use doctor::words::Language;
use plan::hardware::Card;
use serde_json::{Value, json};
use spec::{Memory, Value as Setting};

/// The document for a log or post.
pub fn document(text: &str, language: Option<&str>, query: &Query) -> Result<Value, Refused> {
    let failed = |error: TrainError| super::refused(&error);
    let content = ends::of_pipe(text.as_bytes()).map_err(|error| Refused(error.to_string()))?;
    let log = Log::read(&content);
    let asked = language.filter(|code| *code != "auto").and_then(Language::of);
    let language = asked.or(log.language).unwrap_or(Language::English);
    let card = match ::page::get(query, "gpu").filter(|name| !name.is_empty()) {
        Some(name) => Some(find_gpu(name).map_err(|error| failed(error.into()))?),
        None => log.run.card.as_deref().and_then(Card::find),
    };
    let size = |name: &str| -> Result<Option<u64>, Refused> {
        let given = ::page::get(query, name).filter(|text| !text.trim().is_empty());
        let Some(text) = given else { return Ok(None) };
        match Memory::parse(&Setting::Str(text.trim().to_string())) {
            Some(Memory::Bytes(bytes)) => Ok(Some(bytes.get())),
            _ => Err(Refused(format!("{name}: a size such as 11.69GiB or 8GB"))),
        }
    };
    let (vram, used) = (size("vram")?, size("used")?);
    let recovered = without_files(|world| {
        let name = card.map(|card| card.name);
        RecoveredRun::recover(Some(&log), &[], world, name, data::known::characters)
    });
    let recovered = recovered.map_err(|error| failed(error.into()))?;
    let found = Diagnosis::new(Some(log), recovered, Given { card, vram, used });
    let found = found.map_err(|error| failed(error.into()))?;
    let program = program();
    let report = Report { diagnosis: &found, language, program: &program };
    Ok(json!({ "document": doctor_document::of(&report), "shown": shown(&report) }))
}

/// The texts of the report, in the order in which they are shown.
fn shown(report: &Report<'_>) -> Value {
    let (words, found) = (report.language.words(), report.diagnosis);
    let labels = words.labels();
    let row = |(name, bytes): (String, u64)| {
        let text = report.bytes(bytes);
        json!({ "name": name, "bytes": bytes, "text": text })
    };
    let peak = |(phase, bytes, needed): (&str, u64, u64)| {
        let text = report.bytes(bytes);
        json!({ "name": phase, "bytes": bytes, "needed": needed, "text": text })
    };
    let advice = |claimed: bool| -> Vec<Value> {
        let rows = report.advice(claimed).into_iter();
        rows.map(|[verdict, advice, saved, note]| {
            json!({ "verdict": verdict, "advice": advice, "saved": saved, "note": note })
        })
        .collect()
    };
    let unknown = found.unknown.iter().map(|unknown| words.unknown(*unknown));
    let lacks = found.lacks_fixes().then(|| labels.nothing.to_string());
    let fixes = found.fixes.iter().map(|fix| report.fix(fix)).chain(lacks);
    let commands = report.commands().into_iter();
    let patch = report.patch_title().zip(found.patch.as_ref());
    json!({
        "language": report.language.code(),
        "is_empty": found.is_empty(),
        "summary": report.summary(),
        "memory": { "title": labels.memory, "total": report.total(),
                    "rows": report.memory().into_iter().map(row).collect::<Vec<_>>() },
        "peaks": { "title": labels.peaks, "free": found.room.map(|room| room.free()),
                   "rows": report.peaks().into_iter().map(peak).collect::<Vec<_>>() },
        "claims": { "title": labels.claims, "rows": advice(true) },
        "advice": { "title": labels.advice, "rows": advice(false) },
        "fixes": { "title": labels.fixes, "rows": fixes.collect::<Vec<_>>() },
        "remedies": { "title": labels.remedies, "rows": report.remedies() },
        "unknown": { "title": labels.unknown, "rows": unknown.collect::<Vec<_>>() },
        "commands": commands.map(|(title, command)| json!({ "title": title, "command": command }))
            .collect::<Vec<_>>(),
        "patch": patch.map(|(title, patch)| json!({ "title": title, "diff": patch.diff(),
                                                    "limits": report.patch_limits() })),
    })
}
