//! `cargo xtask new-op NAME`: the files of a new op and its gradient as skeletons, the lines that
//! declare them, and what to do next.
//!
//! A skeleton compiles, and stops with the path of the file that is to be written. What is left to
//! write is marked; `cargo xtask tidy` finds the marks, so that no skeleton passes as finished.

mod edits;

use crate::process::{self, Failure};
use edits::{add_before, add_item, add_to_block};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// The flags, for the usage text.
pub const FLAGS: &str = "NAME";

/// What stands where something is left to write.
pub const MARK: &str = "NEW-OP";

/// Keeps the lines that hold a name inside 100 columns.
const LONGEST_NAME: usize = 20;

/// Words of Rust and of Python: no module and no function can be called so.
const RESERVED: &str = "abstract and as assert async await become box break class const continue \
                        crate def del do dyn elif else enum except extern final finally fn for \
                        from gen global if impl import in is lambda let loop macro match mod move \
                        mut nonlocal not or override pass priv pub raise ref return self static \
                        struct super trait try type typeof unsafe unsized use virtual where while \
                        with yield false true";

/// The spellings of an op's name.
struct Names {
    /// `rms_norm`: files, functions, listings.
    snake: String,
    /// `RmsNorm`: the type.
    camel: String,
    /// `RMS_NORM`: the constant.
    upper: String,
}

impl Names {
    fn new(name: &str) -> Result<Names, String> {
        let is_word = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        };
        if !name.split('_').all(is_word) {
            return Err(format!(
                "'{name}' is no name like rms_norm: lower case, words joined by _"
            ));
        }
        if name.len() > LONGEST_NAME {
            return Err(format!("'{name}' has more than {LONGEST_NAME} letters"));
        }
        if RESERVED.split(' ').any(|word| word == name) {
            return Err(format!("'{name}' is a word of Rust or Python"));
        }
        if name.ends_with("_backward") {
            return Err(format!("'{name}': the gradient comes with the op, name only the op"));
        }
        let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
        let camel = name.split('_').map(capital).collect();
        Ok(Names { snake: name.to_owned(), camel, upper: name.to_ascii_uppercase() })
    }

    fn fill(&self, skeleton: &str) -> String {
        let text = skeleton.replace("@name@", &self.snake);
        text.replace("@Name@", &self.camel).replace("@NAME@", &self.upper)
    }
}

/// The files that an op has of its own.
const NEW: [(&str, &str); 5] = [
    ("crates/plan/src/ops/@name@.rs", include_str!("skeletons/plan.rs.txt")),
    ("crates/cpu/src/kernels/@name@.rs", include_str!("skeletons/cpu.rs.txt")),
    ("crates/cuda/src/kernels/@name@.rs", include_str!("skeletons/cuda.rs.txt")),
    ("crates/cuda/src/kernels/@name@.cu", include_str!("skeletons/kernels.cu.txt")),
    ("crates/conformance/src/cases/@name@.rs", include_str!("skeletons/case.rs.txt")),
];

const OPS: &str = "crates/plan/src/ops/mod.rs";
const REFERENCE: &str = "crates/conformance/golden/reference.py";

/// A change of a file's text.
type Change = fn(String, &Names) -> Result<String, String>;

/// The files that declare it.
const CHANGED: [(&str, Change); 6] = [
    (OPS, |text, names| {
        let text = add_item(&text, "mod ", &names.fill("mod @name@;"))?;
        let used = names.fill("pub use @name@::{@Name@, @Name@Backward};");
        let text = add_item(&text, "pub use ", &used)?;
        let rows = "    /// NEW-OP: the formula.\n    @Name@,\n    /// Its gradient.\n    \
                    @Name@Backward,";
        add_to_block(&text, "ops! {", "}", &names.fill(rows))
    }),
    ("crates/plan/tests/it/every_op.rs", |text, names| {
        let rows = "    (\"@name@\", @name@),\n    (\"@name@_backward\", @name@_backward),";
        let opening = "pub const OPS: &[(&str, Make)] = &[";
        let text = add_to_block(&text, opening, "];", &names.fill(rows))?;
        Ok(text + &names.fill(include_str!("skeletons/examples.rs.txt")))
    }),
    ("crates/cpu/src/kernels/mod.rs", |text, names| {
        add_item(&text, "pub(crate) mod ", &names.fill("pub(crate) mod @name@;"))
    }),
    ("crates/cuda/src/kernels/mod.rs", |text, names| {
        let text = add_item(&text, "mod ", &names.fill("mod @name@;"))?;
        let row = names.fill("        &@name@::@NAME@,");
        add_to_block(&text, "    const SOURCES: &[&Source] = &[", "    ];", &row)
    }),
    ("crates/conformance/src/cases/mod.rs", |text, names| {
        let text = add_item(&text, "mod ", &names.fill("mod @name@;"))?;
        let row = names.fill("        @name@::cases(scratch)?,");
        add_to_block(&text, "    let families = [", "    ];", &row)
    }),
    (REFERENCE, |text, names| {
        let function = names.fill(include_str!("skeletons/reference.py.txt"));
        let text = add_before(&text, "KINDS = [", &function)?;
        add_to_block(&text, "KINDS = [", "]", &names.fill("    @name@,"))
    }),
];

/// A function with a match over all ops, which does not compile until it has arms for the new one.
struct Arms {
    file: &'static str,
    function: &'static str,
    says: &'static str,
}

/// What is left to do in one crate.
struct Step {
    write: &'static str,
    arms: &'static [Arms],
    then: &'static str,
}

const STEPS: [Step; 5] = [
    Step {
        write: "crates/plan/src/ops/@name@.rs: fields, operands, shape rule, work, backward; its \
                examples in crates/plan/tests/it/every_op.rs",
        arms: &[
            Arms {
                file: "crates/plan/src/ops/mod.rs",
                function: "again",
                says: "what recompute runs again; the op itself, if it has no shorter form",
            },
            Arms {
                file: "crates/plan/src/recompute.rs",
                function: "re_emitting",
                says: "the gradient that makes the output again as it goes; None for none",
            },
            Arms {
                file: "crates/plan/src/gpu_scratch.rs",
                function: "bytes",
                says: "bytes of workspace on a GPU; 0 for none",
            },
            Arms {
                file: "crates/plan/src/cost.rs",
                function: "kind",
                says: "what bounds its time; Kind::Pass for one pass over the operands",
            },
            Arms {
                file: "crates/plan/src/cost.rs",
                function: "launches",
                says: "what it costs however small it is, in launches; 1.0 for one kernel",
            },
        ],
        then: "cargo test -p fitgpt-plan refusals",
    },
    Step {
        write: "crates/cpu/src/kernels/@name@.rs",
        arms: &[
            Arms {
                file: "crates/cpu/src/executor.rs",
                function: "scratch_floats",
                says: "f32 numbers of workspace on the CPU; Some(0) for none",
            },
            Arms {
                file: "crates/cpu/src/executor.rs",
                function: "execute",
                says: "kernels::@name@::forward(cx, op), kernels::@name@::backward(cx, op)",
            },
        ],
        then: "cargo check -p fitgpt-cpu",
    },
    Step {
        write: "crates/cuda/src/kernels/@name@.rs, then @name@.cu beside it",
        arms: &[
            Arms {
                file: "crates/cuda/src/kernels/mod.rs",
                function: "lower",
                says: "@name@::forward(cx, op), @name@::backward(cx, op)",
            },
            Arms {
                file: "crates/cuda/src/limits.rs",
                function: "add",
                says: "ids and positions that the kernels trust; nothing for none",
            },
        ],
        then: "FITGPT_KERNELS=@name@.cu cargo test -p fitgpt-cuda --test it no_kernel_spills \
               (compiles this file only; needs NVRTC)",
    },
    Step {
        write: "crates/conformance/src/cases/@name@.rs; the formula for PyTorch in \
                crates/conformance/golden/reference.py, and in f64 in \
                crates/conformance/tests/it/naive_ops.rs",
        arms: &[Arms {
            file: "crates/conformance/tests/it/naive.rs",
            function: "step",
            says: "naive_ops::@name@(self, op), naive_ops::@name@_backward(self, op)",
        }],
        then: "cargo xtask golden @name@ (PyTorch answers the new cases only); cargo test -p \
               fitgpt-conformance -p fitgpt-cpu; on a GPU cargo xtask check --cuda",
    },
    Step {
        write: "the search",
        arms: &[Arms {
            file: "crates/search/src/probe.rs",
            function: "head",
            says: "None, unless the op computes the loss and turns forward into backward",
        }],
        then: "cargo check --workspace --all-targets",
    },
];

/// What is behind the op itself.
const LAST: &str = "Then a model uses it (crates/model/src/forward.rs and an architecture), or \
                    IN_NO_MODEL in crates/conformance/tests/it/table.rs names it.";

/// Writes the skeletons and says what is next.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let [name] = args else {
        return Err(Failure::Usage("new-op takes one NAME, like rms_norm".to_owned()));
    };
    let names = Names::new(name).map_err(Failure::Usage)?;
    let root = process::workspace_root();
    let files = planned(&root, &names).map_err(failed)?;
    refuse_dirty(&root)?;
    write(&root, &files)?;
    format_new(&root, &names)?;
    println!("{}", summary(&names));
    Ok(())
}

fn failed(problem: String) -> Failure {
    Failure::Task(format!("new-op: {problem}; nothing was written"))
}

/// One file as it will be.
struct File {
    path: String,
    text: String,
    is_new: bool,
}

/// All files, new and changed, or why the op cannot be added.
fn planned(root: &Path, names: &Names) -> Result<Vec<File>, String> {
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    refuse_taken(&read(OPS)?, &read(REFERENCE)?, names)?;
    let mut files = Vec::new();
    for (path, skeleton) in NEW {
        let path = names.fill(path);
        if root.join(&path).exists() {
            return Err(format!("{path} exists"));
        }
        files.push(File { path, text: names.fill(skeleton), is_new: true });
    }
    for (path, change) in CHANGED {
        let text = change(read(path)?, names).map_err(|problem| format!("{path}: {problem}"))?;
        files.push(File { path: path.to_owned(), text, is_new: false });
    }
    Ok(files)
}

/// The types must be new where ops are listed, the function where the reference is.
fn refuse_taken(ops: &str, reference: &str, names: &Names) -> Result<(), String> {
    let code = ops.lines().filter_map(|line| line.split("//").next());
    let mut words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let gradient = names.fill("@Name@Backward");
    if let Some(word) = words.find(|word| [&names.camel, &gradient].iter().any(|n| *n == word)) {
        return Err(format!("{OPS} has a {word}"));
    }
    if reference.contains(&names.fill("\ndef @name@(")) {
        return Err(format!("{REFERENCE} has a {}", names.snake));
    }
    Ok(())
}

/// So that `git diff` shows what this task did, and `git checkout` takes it back.
fn refuse_dirty(root: &Path) -> Result<(), Failure> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["status", "--porcelain", "--"]);
    let dirty = process::capture(git.args(CHANGED.map(|(path, _)| path)))?;
    if dirty.is_empty() {
        return Ok(());
    }
    let paths: Vec<&str> = dirty.lines().filter_map(|line| line.get(3..)).collect();
    Err(failed(format!("commit your changes of {} first", paths.join(", "))))
}

fn write(root: &Path, files: &[File]) -> Result<(), Failure> {
    for File { path, text, is_new } in files {
        let mut open = OpenOptions::new();
        let open = open.write(true).truncate(!is_new).create_new(*is_new);
        let written = open.open(root.join(path)).and_then(|mut to| to.write_all(text.as_bytes()));
        written.map_err(|error| Failure::Task(format!("new-op: {path}: {error}")))?;
    }
    Ok(())
}

/// How lines of the skeletons break depends on the name.
fn format_new(root: &Path, names: &Names) -> Result<(), Failure> {
    let paths = NEW.iter().map(|(path, _)| names.fill(path)).filter(|path| path.ends_with(".rs"));
    let mut rustfmt = Command::new("rustfmt");
    process::run(rustfmt.current_dir(root).args(["--edition", "2024"]).args(paths))
}

fn summary(names: &Names) -> String {
    let mut text = "new-op: written, each place that is yours marked NEW-OP:\n".to_owned();
    let new = NEW.iter().map(|(path, _)| path);
    text.extend(new.map(|path| format!("  {path}\n")));
    text += "declared in:\n";
    text.extend(CHANGED.map(|(path, _)| format!("  {path}\n")));
    text += "\nNext, in this order. A match over all ops does not compile until it has arms for \
             the new op and its gradient:\n";
    for (index, step) in STEPS.iter().enumerate() {
        text += &format!("  {}. {}\n", index + 1, step.write);
        for Arms { file, function, says } in step.arms {
            text += &format!("     match arms in fn {function} of {file}: {says}\n");
        }
        text += &format!("     {}\n", step.then);
    }
    names.fill(&(text + LAST + " `cargo xtask tidy` lists the marks that are left."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchFolder;

    /// The files that the task reads, copied; a git repository, so that it can be dirty.
    fn copy(purpose: &str) -> ScratchFolder {
        let folder = ScratchFolder::new(purpose).unwrap();
        for (path, _) in NEW {
            let parent = folder.path.join(path);
            std::fs::create_dir_all(parent.parent().unwrap()).unwrap();
        }
        for (path, _) in CHANGED {
            let target = folder.path.join(path);
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            std::fs::copy(process::workspace_root().join(path), target).unwrap();
        }
        for args in [
            &["init", "-q"][..],
            &["add", "."],
            &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "copy"],
        ] {
            process::run(Command::new("git").current_dir(&folder.path).args(args)).unwrap();
        }
        folder
    }

    fn names(name: &str) -> Names {
        Names::new(name).unwrap()
    }

    #[test]
    fn skeletons_parse_and_are_declared_once() {
        let folder = copy("new-op");
        let root = &folder.path;
        let config = process::workspace_root().join("rustfmt.toml");
        std::fs::copy(config, root.join("rustfmt.toml")).unwrap();
        // As long as a name may be: the lines of the lists must stay inside 100 columns.
        for name in ["rms_norm", "abcdefghijklmnopqrst"] {
            let names = names(name);
            refuse_dirty(root).unwrap();
            let files = planned(root, &names).unwrap();
            write(root, &files).unwrap();
            format_new(root, &names).unwrap();
            let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
            // Only leaves: `mod` lines would lead rustfmt to files that were not copied.
            let leaves = rust.filter(|file| !file.path.ends_with("/mod.rs"));
            let mut check = Command::new("rustfmt");
            check.current_dir(root).args(["--edition", "2024", "--check"]);
            process::run(check.args(leaves.map(|file| &file.path))).unwrap();
            for file in &files {
                let text = std::fs::read_to_string(root.join(&file.path)).unwrap();
                assert!(!text.contains('@') || !file.is_new, "{}", file.path);
                assert!(!file.is_new || text.contains(MARK), "{}", file.path);
                let long = text.lines().find(|line| line.chars().count() > 100);
                assert_eq!(long, None, "{}", file.path);
                if !file.is_new && file.path.ends_with("mod.rs") {
                    let declared = format!("mod {name};");
                    assert_eq!(text.matches(&declared).count(), 1, "{}", file.path);
                }
            }
            let again = planned(root, &names).err().unwrap();
            assert_eq!(again, format!("{OPS} has a {}", names.camel));
            let commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "op"];
            process::run(Command::new("git").current_dir(root).args(commit)).unwrap();
        }
        let text = std::fs::read_to_string(root.join(OPS)).unwrap();
        for line in ["    RmsNorm,\n", "    RmsNormBackward,\n", "\npub use rms_norm::{RmsNorm, "] {
            assert_eq!(text.matches(line).count(), 1, "{line}");
        }
        let text = std::fs::read_to_string(root.join(REFERENCE)).unwrap();
        assert!(text.contains("\n\n\ndef rms_norm(q):\n") && text.contains("\n    rms_norm,\n"));
    }

    #[test]
    fn changed_files_are_left_alone() {
        let folder = copy("new-op-dirty");
        refuse_dirty(&folder.path).unwrap();
        std::fs::write(folder.path.join(REFERENCE), "# mine\n").unwrap();
        let refused = refuse_dirty(&folder.path).unwrap_err().to_string();
        assert!(refused.contains(REFERENCE) && !refused.contains(OPS), "{refused}");
        let refused = planned(&folder.path, &names("rms_norm")).err().unwrap();
        assert_eq!(refused, format!("{REFERENCE}: there is no line 'KINDS = ['"));
    }

    #[test]
    fn names_that_are_bad_or_taken_are_refused() {
        for (name, want) in [
            ("RmsNorm", "lower case"),
            ("rms-norm", "lower case"),
            ("rms__norm", "lower case"),
            ("_norm", "lower case"),
            ("2norm", "lower case"),
            ("", "lower case"),
            ("a_name_of_too_many_letters", "more than 20"),
            ("rms_norm_backward", "only the op"),
            ("match", "a word of Rust"),
            ("lambda", "a word of Rust or Python"),
        ] {
            let refused = Names::new(name).err().unwrap();
            assert!(refused.contains(want), "{refused}");
        }
        let root = process::workspace_root();
        for (name, want) in [
            ("gelu", "has a Gelu"),
            ("layer_norm", "has a LayerNorm"),
            ("write", "has a Write"),
            ("sums", "sums.rs exists"),
            ("state_fields", "has a state_fields"),
        ] {
            let refused = planned(&root, &names(name)).err().unwrap();
            assert!(refused.contains(want), "{refused}");
        }
    }

    /// The words of a text's imports.
    fn imported(text: &str) -> Vec<&str> {
        let lines = text.lines().filter(|line| line.starts_with("use "));
        lines.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
    }

    /// Nothing here compiles the skeletons: a renamed type shows as an import no other op has.
    #[test]
    fn skeletons_import_what_other_ops_import() {
        for (path, skeleton) in NEW.iter().filter(|(path, _)| path.ends_with(".rs")) {
            let folder = process::workspace_root().join(path);
            let others: String = ["layernorm.rs", "gelu.rs", "embed.rs"]
                .map(|name| std::fs::read_to_string(folder.with_file_name(name)).unwrap())
                .concat();
            let known = imported(&others);
            for word in imported(skeleton) {
                let is_own = ["Name", "Backward"].contains(&word); // of @Name@Backward
                assert!(is_own || known.contains(&word), "{path} imports {word}");
            }
        }
    }

    #[test]
    fn what_is_next_is_there() {
        let said = summary(&names("rms_norm"));
        assert!(!said.contains('@'), "{said}");
        let paths = said.split_whitespace().filter(|word| word.starts_with("crates/"));
        for path in paths.map(|path| path.trim_end_matches([',', ';', ':'])) {
            let is_there = process::workspace_root().join(path).is_file();
            assert!(is_there || path.contains("rms_norm"), "{path}");
        }
        for Arms { file, function, .. } in STEPS.iter().flat_map(|step| step.arms) {
            let text = std::fs::read_to_string(process::workspace_root().join(file)).unwrap();
            let body = text.split(&format!("fn {function}(")).nth(1).unwrap_or_default();
            let next = body.split("\n    fn ").next().unwrap_or_default();
            assert!(next.contains("Op::Linear"), "{function} in {file} matches no op");
        }
    }

    /// The ops in the list that the compiler reads.
    fn ops() -> Vec<String> {
        let text = std::fs::read_to_string(process::workspace_root().join(OPS)).unwrap();
        let list = text.split_once("\nops! {\n").unwrap().1.split_once("\n}").unwrap().0;
        let names = list.lines().map(str::trim).filter(|line| !line.starts_with("///"));
        names.map(|name| name.trim_end_matches(',').to_owned()).collect()
    }

    /// A file that names every op has a match over all of them, and so needs arms for a new one.
    #[test]
    fn every_match_over_all_ops_is_in_the_list() {
        let root = process::workspace_root();
        let listed = STEPS.iter().flat_map(|step| step.arms).map(|arms| arms.file);
        let known: Vec<&str> = listed.chain(CHANGED.map(|(path, _)| path)).collect();
        let ops: Vec<String> = ops().iter().map(|name| format!("Op::{name}(")).collect();
        assert!(ops.len() > 15, "{ops:?}");
        let mut folders = vec![root.join("crates")];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ext| ext == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    if ops.iter().all(|op| text.contains(op)) {
                        found.push(path.strip_prefix(&root).unwrap().display().to_string());
                    }
                }
            }
        }
        assert!(found.len() > 5, "{found:?}");
        found.retain(|file| !known.contains(&file.as_str()));
        assert_eq!(found, Vec::<String>::new(), "not among the arms");
    }
}
