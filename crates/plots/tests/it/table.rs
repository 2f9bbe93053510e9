//! The table of metrics and its page.

use fitgpt_plots::metrics::METRICS;

#[test]
fn the_page_shows_the_table() {
    let page = include_str!("../../../../docs/metrics.md");
    let after = page.lines().skip_while(|line| *line != "| name | meaning |");
    let rows: Vec<&str> = after.filter(|line| line.starts_with("| `")).collect();
    let want = METRICS.iter().map(|metric| format!("| `{}` | {} |", metric.name, metric.about));
    assert_eq!(rows, want.collect::<Vec<_>>());
}
