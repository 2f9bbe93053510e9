//! Numbers, durations and dates in readable form.

/// `1,003,854`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `812`, `24.7k`, `1.25M`, `3.40B`.
pub fn short(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.2}B", n / 1e9),
        n if n >= 1e6 => format!("{:.2}M", n / 1e6),
        n if n >= 1e4 => format!("{:.1}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// From this many days on, a duration is given in years.
const MANY_DAYS: u64 = 1000;

/// `12s`, `3m20s`, `1h02m`, `4d03h`, `85 years`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m{s:02}s"),
        (0, h, m, _) => format!("{h}h{m:02}m"),
        (d, h, _, _) if d < MANY_DAYS => format!("{d}d{h:02}h"),
        (d, ..) => format!("{:.0} years", d as f64 / 365.25),
    }
}

/// A time that is compared with others: `140 µs`, `12.3 ms`, `4.37 s`, `41.0 s`.
pub fn seconds(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.2} s"),
        s => format!("{s:.1} s"),
    }
}

/// The seconds of `90s`, `10min`, `1h30m`, `2h` or `1d`; none without a unit.
pub fn parse_duration(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 11] = [
        ("seconds", 1.0),
        ("sec", 1.0),
        ("s", 1.0),
        ("minutes", 60.0),
        ("min", 60.0),
        ("m", 60.0),
        ("hours", 3600.0),
        ("h", 3600.0),
        ("days", 86_400.0),
        ("day", 86_400.0),
        ("d", 86_400.0),
    ];
    let mut rest = text.trim();
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let behind = behind.trim_start();
        let word = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (_, scale) = UNITS.iter().find(|(unit, _)| *unit == &behind[..word])?;
        seconds += number.parse::<f64>().ok()? * scale;
        rest = behind[word..].trim_start();
    }
    (seconds > 0.0).then_some(seconds)
}

/// `2026-11-16 14:05 UTC`, from seconds since 1970.
pub fn date(unix_seconds: f64) -> String {
    let text = plots::utc(unix_seconds);
    let (day, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("{day} {} UTC", time.get(..5).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (seconds, want) in [
            (0.4, "0s"),
            (61.0, "1m01s"),
            (3725.0, "1h02m"),
            (2.6e5, "3d00h"),
            (-1.0, "0s"),
            (999.5 * 86_400.0, "999d12h"),
            (31_026.8 * 86_400.0, "85 years"),
            (1e12, "31688 years"),
        ] {
            assert_eq!(duration(seconds), want);
        }
        for (seconds, want) in [
            (0.0, "1970-01-01 00:00 UTC"),
            (951_782_399.0, "2000-02-28 23:59 UTC"),
            (951_782_400.0, "2000-02-29 00:00 UTC"),
            (1_794_837_900.0, "2026-11-16 14:05 UTC"),
            (4_107_542_400.0, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), want);
        }
        for (text, want) in [
            ("90s", Some(90.0)),
            ("10min", Some(600.0)),
            ("1h30m", Some(5400.0)),
            ("1.5 h", Some(5400.0)),
            ("10", None),
            ("", None),
            ("min", None),
            ("10 parsecs", None),
            ("1e9s", None),
        ] {
            assert_eq!(parse_duration(text), want, "{text}");
        }
        for (time, want) in [
            (0.0, "0 µs"),
            (140e-6, "140 µs"),
            (0.0123, "12.3 ms"),
            (4.37, "4.37 s"),
            (41.0, "41.0 s"),
        ] {
            assert_eq!(super::seconds(time), want);
        }
        for (number, want) in [(812.4, "812"), (24_700.0, "24.7k"), (1.25e6, "1.25M")] {
            assert_eq!(short(number), want);
        }
        for (number, want) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_003_854, "1,003,854")] {
            assert_eq!(grouped(number), want);
        }
    }
}
