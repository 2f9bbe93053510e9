//! Writes what the reference needs to compute every case: `<case>.json` describes it, `<case>.bin`
//! holds the inputs, little-endian, one after the other. `cargo xtask golden` calls it.

use fitgpt_conformance::case::{Attribute, Case};
use fitgpt_conformance::values::SEED;
use fitgpt_conformance::{cases, models};
use plan::{NoScratch, Scratch};
use std::error::Error;
use std::path::Path;
use std::rc::Rc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        return Err("usage: dump_cases <folder>".into());
    };
    let folder = Path::new(&folder);
    // The reference never sees the backend's scratch.
    let scratch: Rc<dyn Scratch> = Rc::new(NoScratch);
    let mut all = cases::cases(&scratch)?;
    all.extend(models::cases(&scratch)?);
    for case in &all {
        std::fs::write(folder.join(format!("{}.json", case.name)), question(case))?;
        let inputs: Vec<u8> =
            case.inputs.iter().flat_map(|input| input.values.to_bytes()).collect();
        std::fs::write(folder.join(format!("{}.bin", case.name)), inputs)?;
    }
    println!("{} cases in {}", all.len(), folder.display());
    Ok(())
}

fn question(case: &Case) -> String {
    let inputs = list(case.inputs.iter().map(|input| {
        let dtype = input.values.dtype();
        format!(
            "{{\"name\": {:?}, \"dtype\": \"{dtype}\", \"shape\": {:?}}}",
            input.name, input.shape
        )
    }));
    let readings = list(case.readings().map(|reading| {
        format!("{{\"label\": {:?}, \"shape\": {:?}}}", reading.label, case.reading_shape(reading))
    }));
    let attributes: Vec<String> =
        case.attributes.iter().map(|(name, value)| format!("{name:?}: {}", json(value))).collect();
    format!(
        "{{\n\"name\": {:?},\n\"kind\": {:?},\n\"seed\": {SEED},\n\"fingerprint\": \"{:016x}\",\n\
         \"attributes\": {{{}}},\n\"inputs\": {inputs},\n\"readings\": {readings}\n}}\n",
        case.name,
        case.kind,
        case.fingerprint(),
        attributes.join(", ")
    )
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[\n  {}\n]", items.collect::<Vec<_>>().join(",\n  "))
}

/// All numbers are finite and all words plain, so Rust's notation is valid JSON.
fn json(value: &Attribute) -> String {
    match value {
        Attribute::Int(value) => value.to_string(),
        Attribute::Float(value) => format!("{value:?}"),
        Attribute::Text(value) => format!("{value:?}"),
        Attribute::Ints(values) => format!("{values:?}"),
        Attribute::Floats(values) => format!("{values:?}"),
    }
}
