//! Dates without a library.

/// `2026-11-16T14:05:09.250000+00:00`, from seconds since 1970.
pub fn utc(unix_time: f64) -> String {
    // The largest is the year 9999.
    let micros = (unix_time.clamp(0.0, 253_402_300_799.0) * 1e6).round() as i64;
    let (days, of_day) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
    // Years begin in March, so that the leap day is the last of a year; an era has 400 years.
    let day = days + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let (seconds, micros) = (of_day / 1_000_000, of_day % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (unix, want) in [
            (0.0, "1970-01-01T00:00:00.000000+00:00"),
            (951_782_400.0, "2000-02-29T00:00:00.000000+00:00"),
            (1_795_010_709.25, "2026-11-18T14:05:09.250000+00:00"),
            (f64::NAN, "1970-01-01T00:00:00.000000+00:00"),
            (f64::INFINITY, "9999-12-31T23:59:59.000000+00:00"),
        ] {
            assert_eq!(utc(unix), want);
        }
    }
}
