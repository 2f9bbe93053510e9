//! The settings as typed: for every key its value and where the value comes from.

use crate::error::SpecError;
use crate::keys::{Command, KEYS, Key};
use crate::memory::Memory;
use crate::run_spec::{RequestedDevice, RequestedDtype};
use crate::value::Value;
use crate::{overrides, preset};
use std::fmt;
use std::io;

/// The file system and the clock, passed in so that reading settings is a pure function.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// Reads a file.
    pub read: &'a dyn Fn(&str) -> io::Result<Vec<u8>>,
    /// Seconds since 1970, for `time.time()` in config files.
    pub unix_time: f64,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table.
    Default,
    /// The built-in preset.
    Preset,
    /// Chosen by `train TEXT` for this machine, this text and the available time.
    Sized,
    /// The newest run, found by `sample`.
    Newest,
    /// The checkpoint that the run resumes from.
    Checkpoint,
    /// A config file.
    File {
        /// As it was typed.
        path: String,
        /// Counted from 1.
        line: u32,
    },
    /// The command line.
    Argument {
        /// Counted from 1, after the command.
        index: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Preset => f.write_str("built-in preset"),
            Origin::Sized => f.write_str("sized for this machine"),
            Origin::Newest => f.write_str("newest run"),
            Origin::Checkpoint => f.write_str("checkpoint"),
            Origin::File { path, line } => write!(f, "{path}:{line}"),
            Origin::Argument { index } => write!(f, "argument {index}"),
        }
    }
}

/// The current value of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The key's row of the table.
    pub key: &'static Key,
    /// Its value, of the key's type.
    pub value: Value,
    /// Where the value comes from.
    pub origin: Origin,
}

impl Setting {
    /// Whether the user typed it, in a file or as an argument.
    pub fn is_given(&self) -> bool {
        matches!(self.origin, Origin::File { .. } | Origin::Argument { .. })
    }
}

/// The current values of all keys, in the order of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    command: Command,
    settings: Vec<Setting>,
    files: Vec<String>,
    preset: bool,
}

impl Settings {
    /// The defaults of a command.
    pub fn defaults(command: Command) -> Settings {
        let setting = |key: &'static Key| {
            let (value, origin) = (key.default_for(command), Origin::Default);
            Setting { key, value, origin }
        };
        let settings = KEYS.iter().map(setting).collect();
        Settings { command, settings, files: Vec::new(), preset: false }
    }

    /// Starts from the defaults, applies the arguments (config files included) from left to right,
    /// then fills in the built-in preset if it applies.
    pub fn read(
        command: Command,
        arguments: &[String],
        world: &World<'_>,
    ) -> Result<Settings, SpecError> {
        let mut settings = Settings::defaults(command);
        overrides::apply(&mut settings, arguments, world)?;
        if preset::applies(&settings) {
            preset::apply(&mut settings);
            settings.preset = true;
        }
        Ok(settings)
    }

    /// The command they are for.
    pub fn command(&self) -> Command {
        self.command
    }

    /// Every key, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }

    /// One key.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.key.name == name)
    }

    /// The config files that were read, in order.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Whether the built-in preset filled in the keys that the user did not give.
    pub fn uses_preset(&self) -> bool {
        self.preset
    }

    /// A setting that requires a GPU, as `key=value`: a limit on GPU memory, or a 16-bit format.
    /// None where there is none or the user chose the device.
    pub fn asks_for_gpu(&self) -> Option<String> {
        let given = |name: &str| self.get(name).filter(|setting| setting.is_given());
        let is_open = |device: &Setting| {
            RequestedDevice::of(&device.value.plain()) == Some(RequestedDevice::Auto)
        };
        if given("device").is_some_and(|device| !is_open(device)) {
            return None;
        }
        let vram = given("vram").filter(|vram| Memory::parse(&vram.value) != Some(Memory::Auto));
        let dtype = given("dtype").filter(|dtype| {
            let choice = RequestedDtype::of(&dtype.value.plain());
            matches!(choice, Some(RequestedDtype::Bfloat16 | RequestedDtype::Float16))
        });
        vram.or(dtype).map(|setting| format!("{}={}", setting.key.name, setting.value))
    }

    /// Sets a key to a value.
    pub fn set(&mut self, name: &str, value: Value, origin: Origin) -> Result<(), SpecError> {
        let setting = self.find(name, &origin)?;
        match setting.key.accept(value) {
            Ok(value) => *setting = Setting { key: setting.key, value, origin },
            Err(given) => return Err(SpecError::WrongType { key: setting.key, given, at: origin }),
        }
        Ok(())
    }

    /// Sets a key to the text of a command line argument.
    pub fn set_text(&mut self, name: &str, text: &str, origin: Origin) -> Result<(), SpecError> {
        let key = self.find(name, &origin)?.key;
        match key.accept_text(text) {
            Ok(value) => self.set(name, value, origin),
            Err(given) => Err(SpecError::WrongType { key, given, at: origin }),
        }
    }

    fn find(&mut self, name: &str, at: &Origin) -> Result<&mut Setting, SpecError> {
        let found = self.settings.iter_mut().find(|setting| setting.key.name == name);
        found.ok_or_else(|| SpecError::UnknownKey {
            name: name.to_string(),
            at: at.clone(),
            nearest: Key::nearest(name),
        })
    }

    /// Records that a config file was read.
    pub(crate) fn add_file(&mut self, path: &str) {
        self.files.push(path.to_string());
    }
}
