//! `cargo xtask map`: the crates and their arrows as a picture, `docs/crates.svg`, drawn from what
//! `cargo metadata` says. `tidy` compares the committed picture with a fresh one.
//!
//! A crate stands one row below the lowest crate that uses it. An arrow that follows from two
//! others is left out: `train` uses `plan`, but it also uses `search`, which does.

use crate::process::{self, Failure};
use crate::tidy::tree::Tree;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Where the picture is kept.
pub const PATH: &str = "docs/crates.svg";

const WIDTH: usize = 1080;
const BOX: (usize, usize) = (196, 74);
const GAP_Y: usize = 46;
const MARGIN: usize = 24;
/// Boxes that fit beside each other.
const MOST_IN_ROW: usize = (WIDTH - 2 * MARGIN) / (BOX.0 + 8);
/// Characters of a description that fit a line of a box.
const LINE: usize = 32;

/// A crate of the workspace.
#[derive(Debug)]
struct Crate {
    description: String,
    uses: BTreeSet<String>,
}

type Crates = BTreeMap<String, Crate>;

/// Writes the picture.
pub fn run(args: &[String]) -> Result<(), Failure> {
    process::expect_no_arguments("map", args)?;
    let root = process::workspace_root();
    let tree = Tree::read(&root).map_err(Failure::Task)?;
    let path = root.join(PATH);
    std::fs::write(&path, svg(&tree.packages))
        .map_err(|error| Failure::Task(format!("{}: {error}", path.display())))?;
    println!("wrote {PATH}");
    Ok(())
}

/// The picture of `cargo metadata`'s packages.
pub fn svg(packages: &Value) -> String {
    let crates = crates(packages);
    let shipped = reachable(&crates, "fitgpt");
    let rows = rows(&crates, &shipped);
    let helpers: Vec<&String> = crates.keys().filter(|name| !shipped.contains(*name)).collect();
    let places = places(&crates, &rows);
    let strip = MARGIN + 30 + rows.len() * (BOX.1 + GAP_Y);
    let height = strip + 30 + BOX.1 + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let heading = |out: &mut String, y: usize, text: &str| {
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"{y}\" font-size=\"13\" fill=\"#57606a\">{text}</text>"
        );
    };
    heading(&mut out, MARGIN + 8, "The program. A line leads down from a crate to one it uses.");
    for (from, to) in drawn_arrows(&crates, &shipped) {
        arrow(&mut out, places[&from], places[&to]);
    }
    for (name, &at) in &places {
        draw_box(&mut out, at, BOX.0, name, &crates[name].description, "#ddf4ff");
    }
    heading(&mut out, strip + 8, "For tests and for work on the project; never in the program.");
    let width = (WIDTH - 2 * MARGIN).saturating_sub(8 * helpers.len()) / helpers.len().max(1);
    for (index, name) in helpers.iter().enumerate() {
        let at = (MARGIN + index * (width + 8), strip + 24);
        draw_box(&mut out, at, width, name, &crates[*name].description, "#fff8c5");
    }
    out + "</svg>\n"
}

fn crates(packages: &Value) -> Crates {
    let short = |name: &str| name.strip_prefix("fitgpt-").unwrap_or(name).to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list(packages)
        .iter()
        .map(|package| {
            let code = |dependency: &&Value| {
                dependency["kind"].is_null() && dependency["path"].is_string()
            };
            let dependencies = list(&package["dependencies"]);
            let uses = dependencies.iter().filter(code).map(|one| short(&text(&one["name"])));
            let row = Crate { description: text(&package["description"]), uses: uses.collect() };
            (short(&text(&package["name"])), row)
        })
        .collect()
}

/// A crate and everything below it.
fn reachable(crates: &Crates, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(name) = next.pop() {
        let Some(row) = crates.get(&name) else {
            continue;
        };
        if found.insert(name) {
            next.extend(row.uses.iter().cloned());
        }
    }
    found
}

/// The crates of each row, topmost first.
fn rows(crates: &Crates, shipped: &BTreeSet<String>) -> Vec<Vec<String>> {
    let mut row_of: BTreeMap<&str, usize> = shipped.iter().map(|name| (name.as_str(), 0)).collect();
    // Cargo refuses cycles, so pushing users' crates down ends after one round for each row.
    for _ in 0..shipped.len() {
        for name in shipped {
            for used in &crates[name].uses {
                let below = row_of[name.as_str()] + 1;
                if let Some(row) = row_of.get_mut(used.as_str()) {
                    *row = (*row).max(below);
                }
            }
        }
    }
    let last = row_of.values().copied().max().unwrap_or(0);
    let in_row = |row: usize| {
        let names = row_of.iter().filter(|(_, at)| **at == row);
        names.map(|(name, _)| (*name).to_owned()).collect()
    };
    // Crates of a row do not use each other, so a row that is too wide becomes two.
    let rows = (0..=last).map(in_row).flat_map(|row: Vec<String>| {
        let each = row.len().div_ceil(row.len().div_ceil(MOST_IN_ROW).max(1)).max(1);
        row.chunks(each).map(<[String]>::to_vec).collect::<Vec<_>>()
    });
    rows.collect()
}

/// The top left corner of each box: every row spread evenly, each crate below the middle of those
/// that use it.
fn places(crates: &Crates, rows: &[Vec<String>]) -> BTreeMap<String, (usize, usize)> {
    let mut places: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (row, names) in rows.iter().enumerate() {
        let middle = |name: &String| {
            let users: Vec<usize> = places
                .iter()
                .filter(|(user, _)| crates[*user].uses.contains(name))
                .map(|(_, &(x, _))| x)
                .collect();
            users.iter().sum::<usize>() / users.len().max(1)
        };
        let mut names: Vec<(usize, &String)> = names.iter().map(|n| (middle(n), n)).collect();
        let most_below_first = |name: &str| Reverse(reachable(crates, name).len());
        names.sort_by_key(|(middle, name)| (*middle, most_below_first(name)));
        let (room, y) = (WIDTH - 2 * MARGIN, MARGIN + 24 + row * (BOX.1 + GAP_Y));
        for (index, (_, name)) in names.iter().enumerate() {
            let centre = MARGIN + room * (2 * index + 1) / (2 * names.len());
            places.insert((*name).clone(), (centre - BOX.0 / 2, y));
        }
    }
    places
}

/// The arrows that do not follow from others.
fn drawn_arrows(crates: &Crates, shipped: &BTreeSet<String>) -> Vec<(String, String)> {
    let mut arrows = Vec::new();
    for from in shipped {
        let uses = &crates[from].uses;
        for to in uses {
            let implied =
                uses.iter().any(|other| other != to && reachable(crates, other).contains(to));
            if !implied {
                arrows.push((from.clone(), to.clone()));
            }
        }
    }
    arrows
}

fn arrow(out: &mut String, from: (usize, usize), to: (usize, usize)) {
    let (x1, y1) = (from.0 + BOX.0 / 2, from.1 + BOX.1);
    let (x2, y2) = (to.0 + BOX.0 / 2, to.1);
    let bend = GAP_Y;
    let _ = writeln!(
        out,
        "<path d=\"M{x1} {y1} C{x1} {} {x2} {} {x2} {y2}\" fill=\"none\" stroke=\"#8c959f\" \
         stroke-width=\"1.3\"/>",
        y1 + bend,
        y2 - bend,
    );
}

fn draw_box(
    out: &mut String,
    (x, y): (usize, usize),
    width: usize,
    name: &str,
    about: &str,
    fill: &str,
) {
    let height = BOX.1;
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\" \
         fill=\"{fill}\" stroke=\"#57606a\"/>\n\
         <text x=\"{}\" y=\"{}\" font-size=\"14\" font-weight=\"600\">{name}</text>",
        x + 8,
        y + 18,
    );
    for (index, line) in wrapped(about, LINE * width / BOX.0).iter().take(4).enumerate() {
        let line = line.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" font-size=\"10.5\" fill=\"#24292f\">{line}</text>",
            x + 8,
            y + 32 + index * 12,
        );
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, uses: &[&str]) -> Value {
        let uses: Vec<Value> =
            uses.iter().map(|used| json!({"name": used, "kind": null, "path": "/tree"})).collect();
        json!({"name": name, "description": format!("what {name} does"), "dependencies": uses})
    }

    #[test]
    fn implied_arrows_are_left_out_and_helpers_stand_apart() {
        let packages = json!([
            package("fitgpt", &["fitgpt-train", "fitgpt-plan"]),
            package("fitgpt-train", &["fitgpt-plan"]),
            package("fitgpt-plan", &[]),
            package("fitgpt-soak", &["fitgpt-train"]),
        ]);
        let crates = crates(&packages);
        let shipped = reachable(&crates, "fitgpt");
        assert!(!shipped.contains("soak"));
        let owned = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let arrows = drawn_arrows(&crates, &shipped);
        assert_eq!(arrows, [owned("fitgpt", "train"), owned("train", "plan")]);
        assert_eq!(rows(&crates, &shipped), [["fitgpt"], ["train"], ["plan"]]);
        assert!(svg(&packages).contains("what fitgpt-soak does"));
    }
}
