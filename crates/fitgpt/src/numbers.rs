//! Numbers as people read them.

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

/// `12s`, `3m20s`, `1h02m`, `4d03h`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60) {
        (0, 0, 0, s) => format!("{s}s"),
        (0, 0, m, s) => format!("{m}m{s:02}s"),
        (0, h, m, _) => format!("{h}h{m:02}m"),
        (d, h, _, _) => format!("{d}d{h:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (seconds, want) in
            [(0.4, "0s"), (61.0, "1m01s"), (3725.0, "1h02m"), (2.6e5, "3d00h"), (-1.0, "0s")]
        {
            assert_eq!(duration(seconds), want);
        }
        for (number, want) in [(812.4, "812"), (24_700.0, "24.7k"), (1.25e6, "1.25M")] {
            assert_eq!(short(number), want);
        }
        for (number, want) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_003_854, "1,003,854")] {
            assert_eq!(grouped(number), want);
        }
    }
}
