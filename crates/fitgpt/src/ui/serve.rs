//! Starts the page of a command, says where it is, and opens a browser if asked.

use crate::flags::number;
use crate::screen;
use ::page::{Page, Settings, start};
use ::train::TrainError;
use std::process::{Command, Stdio};

/// What the flags say about the page.
#[derive(Clone, Debug, Default)]
pub struct PageFlags {
    /// `--host`.
    pub host: Option<String>,
    /// `--port`.
    pub port: Option<String>,
    /// `--open`.
    pub open: bool,
}

/// Only this machine.
const USUAL_HOST: &str = "localhost";

impl PageFlags {
    /// The host and the port.
    pub fn place(&self) -> Result<(String, Option<u16>), TrainError> {
        let host = self.host.clone().unwrap_or_else(|| USUAL_HOST.to_string());
        let port =
            self.port.as_deref().map(|port| number("--port", port, 1..=65_535)).transpose()?;
        Ok((host, port.and_then(|port| u16::try_from(port).ok())))
    }

    /// Starts the page and prints its address.
    pub fn serve(&self, settings: Settings) -> Result<Page, TrainError> {
        let is_open_to_others = !::page::loopback(&settings.host);
        let page = start(settings).map_err(|error| TrainError::Text { what: error.to_string() })?;
        screen::line(&format!("{} {}", screen::strong("page:"), page.url));
        if is_open_to_others {
            screen::notice(
                "this address has the token that opens the page; it is not encrypted: `ssh -L \
                 7070:localhost:7070` is safer than --host",
            );
        }
        if self.open {
            open(&page.url);
        }
        Ok(page)
    }
}

/// Opens the browser, if there is a program that does.
fn open(url: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(opener);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        screen::note(&format!("note: {opener} does not start ({error}): open {url} yourself"));
    }
}
