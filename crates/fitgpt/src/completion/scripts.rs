//! The scripts that connect the shells to [`offers`](super::offers). They call the program that
//! they complete, so they do not grow old.

use spec::words;

words! {
    /// A shell.
    pub enum Shell {
        /// bash 4 and newer.
        Bash = "bash",
        /// zsh.
        Zsh = "zsh",
        /// fish 3 and newer.
        Fish = "fish",
        /// PowerShell 5 and newer.
        Pwsh = "powershell",
    }
}

impl Shell {
    /// Its script.
    pub const fn script(self) -> &'static str {
        match self {
            Shell::Bash => include_str!("fitgpt.bash"),
            Shell::Zsh => include_str!("fitgpt.zsh"),
            Shell::Fish => include_str!("fitgpt.fish"),
            Shell::Pwsh => include_str!("fitgpt.ps1"),
        }
    }
}
