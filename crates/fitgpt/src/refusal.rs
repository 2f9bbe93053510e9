//! Prints a refusal: how much memory is missing, which tensors are largest, and what would fit.

use crate::numbers::short;
use crate::screen;
use plan::Bytes;
use search::Refusal;

/// Prints to standard error why nothing fits, in three parts. Speeds are shown for a known device
/// only.
pub fn show(refusal: &Refusal, named: bool) {
    screen::error(&refusal.headline());
    let largest = refusal.largest.iter().map(|(name, bytes)| format!("{name} {bytes}"));
    let largest = largest.collect::<Vec<_>>().join(", ");
    let width = screen::wrap_width();
    let wrapped = |text: &str, indent: usize| screen::note(&screen::wrapped(text, indent, width));
    wrapped(&format!("  largest tensors at the peak: {largest}"), 4);
    if refusal.suggestions.is_empty() {
        screen::note("  no similar setting fits: make the model much smaller, or free memory");
        return;
    }
    screen::note("  what fits:");
    for one in &refusal.suggestions {
        let bytes = Bytes::new(one.device_bytes).unwrap_or(Bytes::ZERO);
        let rate = one.tokens_per_second.filter(|_| named);
        let rate = rate.map_or_else(String::new, |rate| format!(", about {} tok/s", short(rate)));
        screen::note(&format!("    {}", one.arguments()));
        wrapped(&format!("        {bytes}{rate}; {}", one.note), 8);
    }
}
