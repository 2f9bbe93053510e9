//! The number of parameters, as a program prints it or as someone says it.

use super::settings::{Origin, Parameters};

/// Units of numbers, in lower case.
const UNITS: [(&str, f64); 18] = [
    ("millionen", 1e6),
    ("millions", 1e6),
    ("million", 1e6),
    ("milliarden", 1e9),
    ("milliards", 1e9),
    ("billions", 1e9),
    ("billion", 1e9),
    ("mio.", 1e6),
    ("mio", 1e6),
    ("mrd.", 1e9),
    ("百万", 1e6),
    ("億", 1e8),
    ("亿", 1e8),
    ("万", 1e4),
    ("m", 1e6),
    ("b", 1e9),
    ("k", 1e3),
    ("t", 1e12),
];

/// What is counted, in lower case.
const WORDS: [&str; 6] = ["param", "パラメータ", "パラメーター", "参数", "paramètre", "weights"];

/// The number of parameters that a line says. LoRA's trainable ones are not the model.
pub fn of_line(line: &str) -> Option<Parameters> {
    if line.len() > 4000 {
        return None;
    }
    let lower = line.to_lowercase();
    let at = WORDS.iter().filter_map(|word| lower.find(word)).min()?;
    if lower.contains("trainable") || lower.contains("decayed parameter") {
        return None;
    }
    printed(&lower, at).or_else(|| said(&lower))
}

/// OpenAI's GPT-2 and its distilled form by name, with all their parameters.
const MODELS: [(&str, u64); 5] = [
    ("distilgpt2", 81_912_576),
    ("gpt2-medium", 354_823_168),
    ("gpt2-large", 774_030_080),
    ("gpt2-xl", 1_557_611_200),
    ("gpt2", 124_439_808),
];

/// Words before the name of a model that is loaded.
const LOADS: [&str; 6] = [
    "model_name_or_path=",
    "model_name_or_path ",
    "pretrained gpt: ",
    "from_pretrained(\"",
    "from_pretrained('",
    "--model_name=",
];

/// The size of a model that a line names: `--model_name_or_path=gpt2-xl`.
pub fn of_named_model(line: &str) -> Option<Parameters> {
    let behind = |words: &&str| line.split_once(*words).map(|(_, rest)| rest.to_string());
    let rest = LOADS.iter().find_map(behind)?;
    let rest = rest.trim_start_matches("openai-community/");
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
    let (_, count) = MODELS.iter().find(|(name, _)| *name == &rest[..end])?;
    Some(Parameters { count: *count, within: 0, origin: Origin::CommandLine })
}

/// `Total number of parameters in the model: 3,161,117,824`, `number of parameters: 123.59M`.
/// The GPT-2 that a sentence is about: `gpt2xl`, `GPT-2 small`.
pub fn of_sentence(line: &str) -> Option<Parameters> {
    const SIZES: [(&str, u64); 4] = [
        ("xl", 1_557_611_200),
        ("large", 774_030_080),
        ("medium", 354_823_168),
        ("small", 124_439_808),
    ];
    if line.len() > 4000 {
        return None;
    }
    let lower = line.to_lowercase();
    let behind = ["gpt2", "gpt-2"].iter().flat_map(|name| {
        lower.match_indices(name).map(|(at, name)| &lower[at + name.len()..]).collect::<Vec<_>>()
    });
    behind.into_iter().find_map(|rest| {
        let rest = rest.trim_start_matches(['-', '_', ' ']);
        let (size, count) = SIZES.iter().find(|(size, _)| rest.starts_with(size))?;
        let ends = !rest[size.len()..].starts_with(|c: char| c.is_ascii_alphanumeric());
        let within = count / 16;
        ends.then_some(Parameters { count: *count, within, origin: Origin::Prose })
    })
}

fn printed(lower: &str, at: usize) -> Option<Parameters> {
    let (name, value) = lower[at..].split_once([':', '='])?;
    if name.chars().count() > 40 {
        return None;
    }
    let (count, last, rest) = number(value.trim_start())?;
    let ends = rest.trim().is_empty() || rest.starts_with([',', ' ', ')', ';']);
    // nanoGPT's own sum may be rounded either way.
    let within = if last <= 1.0 { 0 } else { (last * 0.6) as u64 };
    let sound = ends && count >= 1e4;
    sound.then_some(Parameters { count: count as u64, within, origin: Origin::Echoed })
}

/// `~77M parameters`, `約7700万パラメータ`, `124M-parameter`.
fn said(lower: &str) -> Option<Parameters> {
    let mut rest = lower;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let from = &rest[at..];
        let Some((count, _, behind)) = number(from) else {
            let skip = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
            rest = &from[skip..];
            continue;
        };
        let word = behind.trim_start_matches([' ', '-', '个', 'の', '的']);
        let word = word.strip_prefix("de ").unwrap_or(word);
        if count >= 1e5 && WORDS.iter().any(|name| word.starts_with(name)) {
            // People round, and count embeddings or not.
            let count = count as u64;
            return Some(Parameters { count, within: count / 16, origin: Origin::Prose });
        }
        rest = behind;
    }
    None
}

/// A number with its unit: the value, what one of its last digit counts, and the rest.
fn number(text: &str) -> Option<(f64, f64, &str)> {
    let digit = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let end = text.find(|c| !digit(c)).unwrap_or(text.len());
    let digits = text[..end].trim_end_matches(['.', ',']);
    let grouped = digits.split(',').skip(1).all(|group| group.len() == 3);
    let plain = if grouped { digits.replace(',', "") } else { digits.replace(',', ".") };
    let value: f64 = plain.parse().ok()?;
    let decimals = plain.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let rest = &text[digits.len()..];
    let unit = UNITS.iter().find(|(name, _)| {
        let behind = rest.trim_start().strip_prefix(name);
        // `77m`, but not `77 mb`.
        behind.is_some_and(|behind| {
            !name.is_ascii() || !behind.starts_with(|c: char| c.is_ascii_alphanumeric())
        })
    });
    let Some((name, scale)) = unit else {
        return Some((value, 1.0, rest));
    };
    let behind = rest.trim_start().strip_prefix(name).unwrap_or(rest);
    let last = scale / 10f64.powi(decimals.min(12) as i32);
    // `1億2500万`
    if let Some((more, last, rest)) = number(behind).filter(|_| !name.is_ascii()) {
        return Some((value * scale + more, last, rest));
    }
    Some((value * scale, last, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_by_name() {
        let count = |line: &str| of_named_model(line).map(|said| said.count);
        assert_eq!(count("run.py --model_name_or_path=gpt2-xl --fp16"), Some(1_557_611_200));
        assert_eq!(count("GPT2LMHeadModel.from_pretrained('gpt2')"), Some(124_439_808));
        assert_eq!(count("--model_name_or_path=gpt2-mine"), None);
        assert_eq!(count("gpt2"), None);
    }

    #[test]
    fn counts_are_read_as_printed_and_as_said() {
        for (line, count, within, origin) in [
            ("number of parameters: 76.77M", 76_770_000, 6_000, Origin::Echoed),
            (
                "Total number of parameters in the model: 3,000,117,824",
                3_000_117_824,
                0,
                Origin::Echoed,
            ),
            ("num_parameters: 124475904", 124_475_904, 0, Origin::Echoed),
            ("a GPT with ~80M parameters", 80_000_000, 5_000_000, Origin::Prose),
            ("eines ~80M Parameter großen Modells", 80_000_000, 5_000_000, Origin::Prose),
            ("約8000万パラメータのGPT", 80_000_000, 5_000_000, Origin::Prose),
            ("1億2000万パラメータ", 120_000_000, 7_500_000, Origin::Prose),
            ("约1.2亿参数", 120_000_000, 7_500_000, Origin::Prose),
            ("environ 80 millions de paramètres", 80_000_000, 5_000_000, Origin::Prose),
        ] {
            let found = of_line(line).unwrap();
            assert_eq!(
                (found.count, found.within, found.origin),
                (count, within, origin),
                "{line}"
            );
        }
        for line in ["trainable parameters: 1229760", "no parameters: none", "batch 64, parameters"]
        {
            assert_eq!(of_line(line), None, "{line}");
        }
    }
}
