//! A file of kernels as the compiler gets it: its text, with the constants of a plan in front.

use crate::kernels;
use crate::nvrtc::Target;
use crate::signature::Signature;
use crate::step;
use crate::warpgroups;

/// A file of kernels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: &'static str,
    /// Its kernels.
    pub(crate) signatures: &'static [&'static Signature],
    /// The names of the constants that it is compiled with.
    pub(crate) constants: &'static [&'static str],
    /// The texts it is made of, the file itself last.
    pub(crate) parts: &'static [&'static str],
    /// Whether it multiplies by warpgroups, which only Hopper has.
    pub(crate) warpgroups: bool,
}

/// A file of kernels with the constants of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSpec {
    pub(crate) source: &'static Source,
    pub(crate) constants: Vec<(&'static str, String)>,
}

impl ModuleSpec {
    /// The file's name.
    pub fn file(&self) -> &'static str {
        self.source.file
    }

    /// The constants, as text for people.
    pub fn constants(&self) -> String {
        let words: Vec<String> =
            self.constants.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words.join(" ")
    }

    /// The source text for the compiler.
    pub fn text(&self) -> String {
        let mut text = step::definitions() + kernels::PRELUDE + "\n";
        let constants = self.constants.iter();
        text.extend(constants.map(|(name, value)| format!("#define {name} {value}\n")));
        text.extend(self.source.signatures.iter().map(|signature| signature.definition()));
        if self.source.warpgroups {
            text += &warpgroups::multiplications(self.element("T"));
        }
        text + &self.source.parts.join("\n")
    }

    /// What it is compiled for on a GPU of this compute capability times ten.
    pub fn target(&self, sm: u32) -> Target {
        Target { sm, specific: self.source.warpgroups }
    }

    /// The element type of a kernel's pointer: the value of the constant with that name, or the
    /// name itself.
    pub(crate) fn element<'a>(&'a self, name: &'a str) -> &'a str {
        let constant = self.constants.iter().find(|(constant, _)| *constant == name);
        constant.map_or(name, |(_, value)| value)
    }
}
