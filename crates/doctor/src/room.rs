//! How much memory a run could have had: the card's, less what other programs hold. A desktop is
//! assumed, and named, where nothing says what is in use.

use crate::account::Account;
use crate::log::Log;
use plan::hardware::Card;

/// Our model of PyTorch's memory is right to within 7 %, so what is meant to fit takes at most this
/// share of what is free.
pub const SAFE_SHARE: f64 = 0.93;

/// What a desktop takes of a card: 0.3 GiB for one screen, 2 GiB with a browser and two screens.
/// This much is assumed if nothing is said.
pub const DESKTOP: u64 = 1 << 30;

/// How it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomSource {
    /// `--vram`.
    Vram,
    /// `--used`, of the card's memory.
    Used,
    /// A cap that the message names.
    Cap,
    /// The message's own figures.
    Message,
    /// The text says what was in use before the run.
    Told,
    /// The card's memory, less an assumed desktop.
    Desktop,
    /// The card's memory; such cards drive no screen.
    Headless,
}

impl RoomSource {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            RoomSource::Vram => "given",
            RoomSource::Used => "given_used",
            RoomSource::Cap => "cap",
            RoomSource::Message => "read",
            RoomSource::Told => "read_used",
            RoomSource::Desktop => "assumed_desktop",
            RoomSource::Headless => "card",
        }
    }
}

/// Memory of the card, and what others hold of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The card's memory, or the cap.
    pub limit: u64,
    /// What others hold.
    pub used: u64,
    /// How it is known.
    pub source: RoomSource,
}

/// Whether a run fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// With a margin of 7 %.
    Fits,
    /// Within the margin: it may or may not.
    Tight,
    /// It needs more than is free.
    Exceeds,
}

impl Room {
    /// What the user says, else what the log says, else what is known about the card.
    pub fn find(
        log: Option<(&Log, &Account)>,
        card: Option<&Card>,
        vram: Option<u64>,
        used: Option<u64>,
    ) -> Option<Room> {
        let of_card = card.map(|card| card.hardware(false).memory.get());
        if let Some(limit) = vram {
            let source = RoomSource::Vram;
            return Some(Room { limit, used: used.unwrap_or(0).min(limit), source });
        }
        let message = log.map(|(log, _)| &log.message);
        let limit = message.and_then(|message| message.limit());
        let limit = limit.or(of_card).or_else(|| said_memory(log?.0))?;
        let (used, source) = match (used, message, log) {
            (Some(used), _, _) => (used, RoomSource::Used),
            (_, Some(message), _) if message.allowed.is_some() => (0, RoomSource::Cap),
            (_, _, Some((_, account))) if account.total.is_some() || account.others > 0 => {
                (account.others, RoomSource::Message)
            }
            (_, _, Some((log, _))) if log.run.used_before.is_some() => {
                (log.run.used_before.as_ref().map_or(0, |size| size.bytes), RoomSource::Told)
            }
            _ if card.is_some_and(|card| !drives_screens(card)) => (0, RoomSource::Headless),
            _ => (DESKTOP.min(limit / 4), RoomSource::Desktop),
        };
        Some(Room { limit, used: used.min(limit), source })
    }

    /// What the run can have.
    pub const fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// What changes aim at.
    pub fn target(&self) -> u64 {
        (self.free() as f64 * SAFE_SHARE) as u64
    }

    /// Whether a run that needs this much fits.
    pub fn fit(&self, needs: u64) -> Fit {
        match needs {
            needs if needs <= self.target() => Fit::Fits,
            needs if needs <= self.free() => Fit::Tight,
            _ => Fit::Exceeds,
        }
    }
}

/// `12GB VRAM`: drivers report about 97.4 % of what is advertised.
fn said_memory(log: &Log) -> Option<u64> {
    let size = log.run.card_memory.as_ref()?;
    Some((size.bytes as f64 * 0.974) as u64)
}

/// Cards of data centres have no screens.
fn drives_screens(card: &Card) -> bool {
    card.name.starts_with("RTX")
}

/// A card of this memory, to predict speeds with: a usual one of its class. Drivers report 91 to
/// 100 % of the advertised memory.
pub fn card_of(capacity: u64) -> Option<&'static Card> {
    const USUAL: [(f64, &str); 13] = [
        (6.0, "RTX 4050 Laptop GPU"),
        (8.0, "RTX 4060"),
        (10.0, "RTX 3080"),
        (11.0, "RTX 2080 Ti"),
        (12.0, "RTX 4070"),
        (16.0, "RTX 4080"),
        (20.0, "RTX A4500"),
        (24.0, "RTX 3090"),
        (32.0, "RTX 5090"),
        (40.0, "A100 40GB"),
        (48.0, "RTX A6000"),
        (80.0, "H100"),
        (141.0, "H200"),
    ];
    let gib = capacity as f64 / (1u64 << 30) as f64;
    // T4s report 14.6 to 14.8 GiB; other cards of 16 GB report 15.4 or more.
    if (14.5..14.9).contains(&gib) {
        return Card::find("T4");
    }
    let fits = |(advertised, _): &&(f64, &str)| gib > advertised * 0.91 && gib <= *advertised;
    USUAL.iter().find(fits).and_then(|(_, name)| Card::find(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_guessed_by_their_memory() {
        let gib = |n: f64| (n * (1u64 << 30) as f64) as u64;
        for (memory, want) in [
            (11.69, Some("RTX 4070")),
            (7.75, Some("RTX 4060")),
            (23.69, Some("RTX 3090")),
            (14.73, Some("T4")),
            (79.15, Some("H100")),
            (139.8, Some("H200")),
            (13.2, None),
            (1.0, None),
        ] {
            assert_eq!(card_of(gib(memory)).map(|card| card.name), want, "{memory}");
        }
    }

    #[test]
    fn a_desktop_is_assumed_only_if_nothing_is_said() {
        let card = Card::find("RTX 4070");
        let room = |vram, used| Room::find(None, card, vram, used).unwrap();
        assert_eq!(room(None, None).source, RoomSource::Desktop);
        assert_eq!(room(None, None).used, DESKTOP);
        assert_eq!(room(None, Some(5)).used, 5);
        assert_eq!(room(Some(100), None), Room { limit: 100, used: 0, source: RoomSource::Vram });
        assert_eq!(Room::find(None, Card::find("H100"), None, None).unwrap().used, 0);
        let room = Room { limit: 1000, used: 0, source: RoomSource::Vram };
        assert_eq!([930, 931, 1001].map(|n| room.fit(n)), [Fit::Fits, Fit::Tight, Fit::Exceeds]);
    }
}
