//! `fitgpt plan --link list`: the table of links. `--link all`: the same run by each of them.

use crate::fleet::by_each_link;
use crate::numbers::{seconds, short};
use crate::plan_report::{FleetReport, PlanReport, document};
use crate::screen::{self, show, show_json};
use plan::hardware::Hardware;
use plan::links::{LINKS, Link, Topology};
use search::Communication;
use serde_json::{Value, json};
use train::TrainError;

/// Lists the links that `--link` knows.
pub fn list(json: bool) -> Result<u8, TrainError> {
    if json {
        let row = |link: &Link| {
            json!({
                "name": link.name,
                "between": link.between.name(),
                "bytes_per_second": link.rate,
                "latency_seconds": link.latency,
                "source": link.source,
            })
        };
        let all: Vec<Value> = LINKS.iter().map(row).collect();
        return show_json(&json!({ "schema": document::SCHEMA, "links": all })).map(|()| 0);
    }
    let mut rows = vec![["link", "between", "GB/s", "source"].map(str::to_string)];
    rows.extend(LINKS.iter().map(|link| {
        let rate = format!("{:.2}", link.rate / 1e9);
        [link.name.to_string(), link.between.name().to_string(), rate, link.source.to_string()]
    }));
    show(&table(&rows))?;
    Ok(0)
}

/// One row: a link and what is predicted for it.
struct Row {
    link: &'static Link,
    fleet: FleetReport,
    tokens_per_second: f64,
    run_seconds: f64,
}

/// Shows the plan's run by each link that could connect its ranks. Nothing for one rank or an
/// unknown card.
pub fn all(report: &PlanReport, json: bool) -> Result<u8, TrainError> {
    let rows = rows(report);
    if json {
        let row = |row: &Row| {
            let mut document = row.fleet.document(&report.run);
            document["name"] = json!(row.link.name);
            document["predicted_tokens_per_second"] = json!(row.tokens_per_second.round());
            document["predicted_run_seconds"] = json!(row.run_seconds.round());
            document
        };
        let all: Vec<Value> = rows.iter().map(row).collect();
        return show_json(&json!({ "schema": document::SCHEMA, "links": all })).map(|()| 0);
    }
    let head = ["link", "tok/s", "iteration", "communication", "hidden", "not hidden", ""];
    let mut cells = vec![head.map(str::to_string)];
    cells.extend(rows.iter().map(|row| {
        let Communication { seconds: all, exposed, .. } = row.fleet.communication;
        let iteration = row.fleet.iteration.unwrap_or(0.0);
        let share = 100.0 * exposed / iteration.max(f64::MIN_POSITIVE);
        let hidden = row.fleet.communication.hidden();
        [
            row.link.name.to_string(),
            short(row.tokens_per_second),
            seconds(iteration),
            seconds(all),
            seconds(hidden),
            seconds(exposed),
            format!("{share:.1} %"),
        ]
    }));
    show(&table(&cells))?;
    Ok(0)
}

fn rows(report: &PlanReport) -> Vec<Row> {
    let PlanReport { run, planned, rates, .. } = report;
    let (Some(fleet), Some(_)) = (&report.fleet, &report.prediction) else { return Vec::new() };
    let of = |(link, topology): (&'static Link, Topology)| {
        let hardware = Hardware { network: topology.network(), ..rates.clone() };
        let prediction = planned.predict(run, &hardware);
        let rate = prediction.tokens_per_second.unwrap_or(0.0);
        let iteration = run.tokens_per_iteration() as f64 / rate.max(f64::MIN_POSITIVE);
        let communication = planned.communication(run, &hardware);
        let fleet = FleetReport { topology, communication, iteration: Some(iteration), ..*fleet };
        Row { link, fleet, tokens_per_second: rate, run_seconds: prediction.run_seconds }
    };
    by_each_link(&fleet.topology).map(of).collect()
}

/// Cells in columns, the first row strong.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let padded = row
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{cell:<width$}", width = width(column).unwrap_or(0)));
        let line = padded.collect::<Vec<_>>().join("  ").trim_end().to_string();
        text += &(if index == 0 { screen::strong(&line) } else { line } + "\n");
    }
    text
}
