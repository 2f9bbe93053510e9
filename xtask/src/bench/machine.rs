//! Where and when a measurement was made: CPU, GPU, commit, date.

use crate::process;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What identifies a measurement.
#[derive(Debug)]
pub struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// Number of logical CPUs.
    pub cpus: usize,
    /// The GPU that was measured, if it was one.
    pub gpu: Option<String>,
    /// Short hash, with `-dirty` if the tree differs from it.
    pub commit: String,
    /// Today in UTC, as YYYY-MM-DD.
    pub date: String,
}

impl Machine {
    /// Asks `/proc/cpuinfo`, git and the clock.
    pub fn read() -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs());
        let (cpu, cpus) = cpu_of(&info);
        Machine { cpu, cpus, gpu: None, commit: commit(), date: date_of(seconds / 86_400) }
    }

    /// The measured device as part of a file name: the GPU, or the CPU with its number of logical
    /// CPUs.
    pub fn slug(&self) -> String {
        let name = match &self.gpu {
            Some(gpu) => gpu.clone(),
            None => format!("{} {}c", self.cpu, self.cpus),
        };
        let plain = name.replace("(R)", " ").replace("(TM)", " ").to_lowercase();
        let words = plain.split(|c: char| !c.is_ascii_alphanumeric());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
    }
}

/// (name, logical CPUs) from the text of `/proc/cpuinfo`.
fn cpu_of(info: &str) -> (String, usize) {
    let value_of = |line: &str, key: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    };
    let name = info.lines().find_map(|line| value_of(line, "model name"));
    let cpus = info.lines().filter(|line| value_of(line, "processor").is_some()).count();
    (name.unwrap_or_else(|| format!("unknown {}", std::env::consts::ARCH)), cpus.max(1))
}

/// The commit; `$FITGPT_COMMIT` where there is no repository. Earlier records of the bench do not
/// make the tree dirty.
pub fn commit() -> String {
    if let Ok(commit) = std::env::var("FITGPT_COMMIT") {
        return commit;
    }
    let git = |args: &[&str]| {
        process::ask(Command::new("git").current_dir(process::workspace_root()).args(args))
    };
    let Some(hash) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "no-commit".to_owned();
    };
    let changes = git(&["status", "--porcelain", "--", ".", ":!bench-history"]);
    let dirty = if changes.is_none_or(|list| !list.is_empty()) { "-dirty" } else { "" };
    format!("{}{dirty}", hash.trim())
}

/// The civil date of a day counted from 1970-01-01.
///
/// Howard Hinnant's days-from-civil, backwards: years begin in March so that the leap day is the
/// last of a year, and 400 years (an era) always have 146 097 days.
fn date_of(day_since_1970: u64) -> String {
    let day = day_since_1970 + 719_468; // from 0000-03-01
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (day, want) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_722, "2023-12-31"),
            (19_723, "2024-01-01"),
            (19_782, "2024-02-29"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date_of(day), want, "{day}");
        }
    }

    #[test]
    fn cpus_are_named_and_counted() {
        let info = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.80GHz\n\n\
                    processor\t: 1\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.80GHz\n";
        let (cpu, cpus) = cpu_of(info);
        assert_eq!((cpu.as_str(), cpus), ("Intel(R) Xeon(R) CPU @ 2.80GHz", 2));
        let (commit, date) = (String::new(), String::new());
        let mut machine = Machine { cpu, cpus, gpu: None, commit, date };
        assert_eq!(machine.slug(), "intel-xeon-cpu-2-80ghz-2c");
        machine.gpu = Some("NVIDIA H200".to_owned());
        assert_eq!(machine.slug(), "nvidia-h200");
        assert!(cpu_of("").0.starts_with("unknown "));
    }
}
