//! The report as a Markdown document.

use crate::report::Report;
use crate::words::fill;

/// The whole report.
pub fn markdown(report: &Report<'_>) -> String {
    let labels = report.words().labels();
    let found = report.diagnosis;
    let mut text = format!("# {}\n\n{}\n", labels.problem, report.summary().join("\n"));
    text += &format!("\n## {}\n\n{}\n\n", labels.root, report.words().cause(found.cause));
    for (what, count) in report.memory() {
        text += &format!("- {what}: {}\n", report.bytes(count));
    }
    text += &report.total().map_or_else(String::new, |total| format!("- {}\n", total.trim()));
    text += &judged(report, labels.claims, true);
    text += &fixes(report);
    text += &judged(report, labels.advice, false);
    text += &list(labels.remedies, report.remedies().into_iter());
    let recommended = report.recommended();
    if !recommended.is_empty() {
        text += &format!("\n## {}\n\n```python\n", labels.config);
        for (key, value) in recommended {
            text += &format!("{key} = {}\n", python(&value));
        }
        text += "```\n";
    }
    if let Some(fix) = found.fixes.first() {
        text += &format!("\n## {}\n\n{}\n", labels.expected, report.bytes(fix.device_bytes));
    }
    let unknown = found.unknown.iter().map(|unknown| report.words().unknown(*unknown));
    text += &list(labels.unknown, unknown);
    for (title, command) in report.commands() {
        text += &format!("\n{title}:\n\n```\n{command}\n```\n");
    }
    if let Some((title, patch)) = report.patch_title().zip(found.patch.as_ref()) {
        let limits = report.patch_limits();
        text += &format!("\n{title}\n\n```diff\n{}```\n\n{limits}\n", patch.diff());
    }
    text
}

fn list(title: &str, rows: impl Iterator<Item = &'static str>) -> String {
    let rows: String = rows.map(|row| format!("- {row}\n")).collect();
    if rows.is_empty() { rows } else { format!("\n## {title}\n\n{rows}") }
}

fn judged(report: &Report<'_>, title: &str, claimed: bool) -> String {
    let mut text = String::new();
    for [verdict, advice, saved, note] in report.advice(claimed) {
        let (saved, colon) = (report.bracketed(&saved), report.words().labels().colon);
        text += &format!("- **{verdict}** {advice}{saved}{colon}{note}\n");
    }
    if text.is_empty() { text } else { format!("\n## {title}\n\n{text}") }
}

fn fixes(report: &Report<'_>) -> String {
    let labels = report.words().labels();
    let found = report.diagnosis;
    if found.fixes.is_empty() && !found.lacks_fixes() {
        return String::new();
    }
    let mut text = fill("\n## {title}\n\n", &[("title", labels.fixes)]);
    if found.fixes.is_empty() {
        text += &format!("{}\n", labels.nothing);
    }
    for (index, fix) in found.fixes.iter().enumerate() {
        let (note, size) = (report.note(fix), report.bytes(fix.device_bytes));
        text += &format!("{}. {note} ({size})\n\n", index + 1);
        let lines = fix.settings.iter().map(|(key, value)| format!("   {key} = {value}\n"));
        text += &format!("   ```python\n{}   ```\n", lines.collect::<String>());
    }
    text
}

/// A value as Python writes it.
fn python(value: &str) -> String {
    let plain = value.parse::<f64>().is_ok() || value == "True" || value == "False";
    if plain { value.to_string() } else { format!("'{}'", value.replace('\'', "\\'")) }
}
