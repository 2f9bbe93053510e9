//! How this program was installed, and so how to add NVIDIA's libraries to it. Nothing tells the
//! program; it looks at where its file lies.

use crate::library::Package;
use library::{program, site_packages_of};
use std::path::{Path, PathBuf};

/// Who installed this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installation {
    /// `uv tool install fitgpt`.
    UvTool,
    /// `uvx fitgpt`, an environment that uv keeps in its cache.
    Uvx,
    /// `pipx install fitgpt`.
    Pipx,
    /// `pip install fitgpt` or `uv pip install fitgpt` into this environment.
    Python(PathBuf),
    /// cargo, or a file that was copied.
    Other,
}

/// The major version of CUDA that the extra `cuda` brings, and the drivers that need `cuda12`.
const CUDA13: u32 = 13;
const DRIVER: &str = "a driver older than 580";

impl Installation {
    /// That of the running program.
    pub fn current() -> Installation {
        program().map_or(Installation::Other, |program| Installation::of(&program))
    }

    /// That of a program at this path, in which links are resolved.
    pub fn of(program: &Path) -> Installation {
        let Some(root) = program.parent().and_then(Path::parent) else {
            return Installation::Other;
        };
        let parts: Vec<&str> = root.iter().filter_map(|part| part.to_str()).collect();
        let below = |names: [&str; 2]| parts.windows(2).any(|pair| pair == names);
        let cached = |pair: &[&str]| pair[0] == "uv" && pair[1].starts_with("archive-v");
        match () {
            () if below(["uv", "tools"]) => Installation::UvTool,
            () if parts.windows(2).any(cached) => Installation::Uvx,
            () if below(["pipx", "venvs"]) => Installation::Pipx,
            () if site_packages_of(root).iter().any(|site| site.join("fitgpt").is_dir()) => {
                Installation::Python(root.to_path_buf())
            }
            () => Installation::Other,
        }
    }

    /// How to add a library of NVIDIA's. `newest` is the major version of CUDA that the driver can
    /// use.
    pub fn advice(&self, package: Package, newest: Option<u32>) -> String {
        let old = newest.is_some_and(|newest| newest < CUDA13);
        let extra = if old { "cuda12" } else { "cuda" };
        let (command, other) = match self {
            Installation::UvTool => (format!("uv tool install 'fitgpt[{extra}]'"), "cuda12"),
            Installation::Uvx => {
                (format!("uvx --from 'fitgpt[{extra}]' fitgpt"), "cuda12 instead of cuda")
            }
            Installation::Pipx => (format!("pipx install --force 'fitgpt[{extra}]'"), "cuda12"),
            Installation::Python(_) => (format!("pip install 'fitgpt[{extra}]'"), "cuda12"),
            Installation::Other => {
                let name = if old { package.cuda12 } else { package.cuda13 };
                (format!("pip install {name}"), package.cuda12)
            }
        };
        let place = match self {
            Installation::Python(root) => format!(" in the environment {}", root.display()),
            _ => String::new(),
        };
        let older = if newest.is_none() { format!(" ({DRIVER}: {other})") } else { String::new() };
        match self {
            Installation::Uvx => format!("start it with `{command}`{older}"),
            Installation::Other => {
                let elsewhere = package.elsewhere;
                format!("install it with `{command}`{older}, with PyTorch or {elsewhere}")
            }
            _ => format!("install it with `{command}`{place}{older}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUBLAS: Package = Package {
        cuda13: "nvidia-cublas",
        cuda12: "nvidia-cublas-cu12",
        elsewhere: "with the CUDA toolkit",
    };

    #[test]
    fn the_path_says_who_installed_it() {
        for (path, want) in [
            ("/home/a/.local/share/uv/tools/fitgpt/bin/fitgpt", Installation::UvTool),
            ("/home/a/.cache/uv/archive-v0/x1/bin/fitgpt", Installation::Uvx),
            ("/home/a/.local/share/pipx/venvs/fitgpt/bin/fitgpt", Installation::Pipx),
            ("/home/a/.cargo/bin/fitgpt", Installation::Other),
            ("/fitgpt", Installation::Other),
        ] {
            assert_eq!(Installation::of(Path::new(path)), want, "{path}");
        }
    }

    #[test]
    fn an_environment_is_one_that_holds_the_package() {
        let root = std::env::temp_dir().join(format!("fitgpt-environment-{}", std::process::id()));
        let package = root.join("lib/python3.12/site-packages/fitgpt");
        std::fs::create_dir_all(root.join("bin")).unwrap();
        assert_eq!(Installation::of(&root.join("bin/fitgpt")), Installation::Other);
        std::fs::create_dir_all(package).unwrap();
        let found = Installation::of(&root.join("bin/fitgpt"));
        assert_eq!(found, Installation::Python(root.clone()));
        let advice = found.advice(CUBLAS, Some(13));
        assert!(advice.starts_with("install it with `pip install 'fitgpt[cuda]'`"), "{advice}");
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_driver_decides_which_packages() {
        let advice = |newest| Installation::Other.advice(CUBLAS, newest);
        assert!(advice(Some(13)).contains("`pip install nvidia-cublas`,"));
        assert!(advice(Some(12)).contains("`pip install nvidia-cublas-cu12`,"));
        assert!(advice(None).contains("(a driver older than 580: nvidia-cublas-cu12)"));
        assert!(advice(None).ends_with(", with PyTorch or with the CUDA toolkit"));
        let tool = |newest| Installation::UvTool.advice(CUBLAS, newest);
        assert_eq!(tool(Some(12)), "install it with `uv tool install 'fitgpt[cuda12]'`");
        assert!(tool(None).ends_with("(a driver older than 580: cuda12)"));
    }
}
