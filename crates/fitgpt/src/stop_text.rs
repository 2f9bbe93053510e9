//! Ends a sample before a given text, also when that text spans tokens.

/// Passes text on, except what may be the beginning of a stop text.
#[derive(Debug)]
pub struct StopText<'a> {
    stops: &'a [String],
    /// Text that was not passed on yet.
    held: String,
    found: bool,
}

impl<'a> StopText<'a> {
    /// Nothing seen yet; empty stop texts are never found.
    pub fn new(stops: &'a [String]) -> StopText<'a> {
        StopText { stops, held: String::new(), found: false }
    }

    /// Whether a stop text was found.
    pub fn is_found(&self) -> bool {
        self.found
    }

    /// The text that can be written after `part` arrived.
    pub fn push(&mut self, part: &str) -> String {
        if self.found {
            return String::new();
        }
        self.held.push_str(part);
        let stops = || self.stops.iter().filter(|stop| !stop.is_empty());
        let place = stops().filter_map(|stop| self.held.find(stop.as_str())).min();
        self.found = place.is_some();
        let may_begin = |at: &usize| stops().any(|stop| stop.starts_with(&self.held[*at..]));
        let ends = || self.held.char_indices().map(|(at, _)| at);
        let end = place.or_else(|| ends().find(may_begin)).unwrap_or(self.held.len());
        let rest = self.held.split_off(end);
        std::mem::replace(&mut self.held, rest)
    }

    /// The rest of the text, if no stop text was found.
    pub fn finish(&mut self) -> String {
        match self.found {
            true => String::new(),
            false => std::mem::take(&mut self.held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(stops: &[&str], parts: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(ToString::to_string).collect();
        let mut stop = StopText::new(&stops);
        let mut out: Vec<String> = parts.iter().map(|part| stop.push(part)).collect();
        out.push(stop.finish());
        (out, stop.is_found())
    }

    #[test]
    fn a_stop_text_may_span_parts() {
        let stops = ["\n\n", "END"];
        let (out, found) = passed(&stops, &["one\n", "two EN", "D three"]);
        assert_eq!((out, found), (vec!["one".into(), "\ntwo ".into(), "".into(), "".into()], true));
        let (out, found) = passed(&stops, &["E", "N", "x\n", "\n"]);
        assert_eq!(
            (out.concat(), out[..3].concat(), found),
            ("ENx".into(), "ENx".to_string(), true)
        );
    }

    #[test]
    fn what_is_not_a_stop_text_comes_out_whole() {
        for (stops, parts) in [
            (&["é!"][..], &["caf", "é", "é", "?"][..]),
            (&["aab"], &["a", "a", "a", "a"]),
            (&[], &["x", "y"]),
            (&[""], &["x", "", "y"]),
        ] {
            assert_eq!(passed(stops, parts).0.concat(), parts.concat(), "{stops:?}");
        }
    }

    #[test]
    fn the_first_place_counts_and_nothing_follows() {
        assert_eq!(passed(&["b", "ab"], &["xaby", "z"]).0.concat(), "x");
        assert_eq!(passed(&["aab"], &["aa", "ab"]).0.concat(), "a");
    }
}
