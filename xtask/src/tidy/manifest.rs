//! Reads the dependencies out of a `Cargo.toml`, line by line.
//!
//! Knows the ways Cargo lets one write them: `[dependencies]`, `[target.….dependencies]`,
//! `[dependencies.name]`, dotted keys, inline tables over several lines. Not a TOML parser.

/// Which table a dependency stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `dependencies`.
    Normal,
    /// `build-dependencies`.
    Build,
    /// `dev-dependencies`.
    Dev,
    /// `workspace.dependencies`: only a name for others to use.
    Workspace,
}

/// One dependency as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The key.
    pub name: String,
    /// The table.
    pub kind: Kind,
    /// Line of its first mention, counted from 1.
    pub line: usize,
    /// `package = "…"`, where the key is an alias.
    pub package: Option<String>,
    /// `path = "…"`.
    pub path: Option<String>,
}

/// What a manifest says about dependencies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// All of them, in order.
    pub dependencies: Vec<Dependency>,
    /// Lines where a whole dependency table is one inline value, which is not read.
    pub unread_lines: Vec<usize>,
}

impl Manifest {
    /// Reads the text of a `Cargo.toml`.
    pub fn parse(text: &str) -> Manifest {
        let mut manifest = Manifest::default();
        let mut section: Vec<String> = Vec::new();
        let mut lines = text.lines().enumerate();
        while let Some((index, raw)) = lines.next() {
            let mut statement = without_comment(raw).trim().to_owned();
            if statement.starts_with('[') {
                section = dotted(statement.trim_matches(|c| c == '[' || c == ']'));
                manifest.note(&section, "", index + 1);
                continue;
            }
            while open_brackets(&statement) > 0 {
                let Some((_, more)) = lines.next() else { break };
                statement.push(' ');
                statement.push_str(without_comment(more).trim());
            }
            if let Some((key, value)) = split_outside_quotes(&statement, '=') {
                let mut path = section.clone();
                path.extend(dotted(key));
                manifest.note(&path, value.trim(), index + 1);
            }
        }
        manifest
    }

    /// Takes up one key path such as `target.x.dependencies.plan.workspace` with its value.
    fn note(&mut self, key_path: &[String], value: &str, line: usize) {
        let words: Vec<&str> = key_path.iter().map(String::as_str).collect();
        let (kind, rest) = match words.as_slice() {
            ["target", _, table, rest @ ..] | [table, rest @ ..] if kind_of(table).is_some() => {
                (kind_of(table).unwrap_or(Kind::Normal), rest)
            }
            ["workspace", "dependencies", rest @ ..] => (Kind::Workspace, rest),
            _ => return,
        };
        let Some((name, attribute)) = rest.split_first() else {
            if !value.is_empty() {
                self.unread_lines.push(line);
            }
            return;
        };
        let dependency = self.entry(name, kind, line);
        match attribute {
            ["package"] => dependency.package = Some(unquoted(value)),
            ["path"] => dependency.path = Some(unquoted(value)),
            [] => {
                dependency.package = inline(value, "package").or(dependency.package.take());
                dependency.path = inline(value, "path").or(dependency.path.take());
            }
            _ => {}
        }
    }

    /// The dependency of that name in that table, made at its first mention.
    fn entry(&mut self, name: &str, kind: Kind, line: usize) -> &mut Dependency {
        let known = self.dependencies.iter().position(|d| d.name == name && d.kind == kind);
        let index = known.unwrap_or_else(|| {
            let name = name.to_owned();
            self.dependencies.push(Dependency { name, kind, line, package: None, path: None });
            self.dependencies.len() - 1
        });
        &mut self.dependencies[index]
    }
}

fn kind_of(table: &str) -> Option<Kind> {
    match table {
        "dependencies" => Some(Kind::Normal),
        "build-dependencies" => Some(Kind::Build),
        "dev-dependencies" => Some(Kind::Dev),
        _ => None,
    }
}

/// Calls back with each character that no quotes enclose, until told to stop (true).
fn find_outside_quotes(text: &str, mut stop: impl FnMut(char) -> bool) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if stop(c) => return Some(at),
            None => {}
        }
    }
    None
}

fn split_outside_quotes(text: &str, separator: char) -> Option<(&str, &str)> {
    let at = find_outside_quotes(text, |c| c == separator)?;
    Some((&text[..at], &text[at + separator.len_utf8()..]))
}

fn without_comment(line: &str) -> &str {
    split_outside_quotes(line, '#').map_or(line, |(code, _)| code)
}

fn open_brackets(text: &str) -> i32 {
    let mut depth = 0;
    find_outside_quotes(text, |c| {
        depth += match c {
            '[' | '{' => 1,
            ']' | '}' => -1,
            _ => 0,
        };
        false
    });
    depth
}

/// `a.'b.c'.d` as its words.
fn dotted(key: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = key;
    while let Some((word, after)) = split_outside_quotes(rest, '.') {
        words.push(unquoted(word));
        rest = after;
    }
    words.push(unquoted(rest));
    words
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches(|c| c == '"' || c == '\'').to_owned()
}

/// The string that `key = "…"` gives inside an inline table.
fn inline(table: &str, key: &str) -> Option<String> {
    let mut rest = table.trim().strip_prefix('{')?.strip_suffix('}')?;
    loop {
        let (item, after) = split_outside_quotes(rest, ',').unwrap_or((rest, ""));
        if let Some((name, value)) = split_outside_quotes(item, '=')
            && unquoted(name) == key
        {
            return Some(unquoted(value));
        }
        if after.is_empty() {
            return None;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (kind, name, package or path, line) of each dependency.
    fn read(text: &str) -> Vec<(Kind, String, String, usize)> {
        let told = |d: Dependency| {
            let target = d.package.or(d.path).unwrap_or_default();
            (d.kind, d.name, target, d.line)
        };
        Manifest::parse(text).dependencies.into_iter().map(told).collect()
    }

    #[test]
    fn every_way_to_write_a_dependency_is_read() {
        for (text, kind, target, line) in [
            ("[dependencies]\nplan.workspace = true # why\n", Kind::Normal, "", 2),
            ("[dependencies]\nplan = { workspace = true }\n", Kind::Normal, "", 2),
            ("[dependencies]\n\"plan\" = \"1\"\n", Kind::Normal, "", 2),
            ("[dependencies.plan]\npath = \"../plan\"\n", Kind::Normal, "../plan", 1),
            ("dependencies.plan.workspace = true\n", Kind::Normal, "", 1),
            ("[target.'cfg(a = \"b.c\")'.dependencies]\nplan = '1'\n", Kind::Normal, "", 2),
            ("[target.x.dependencies.plan]\npackage = \"p\"\n", Kind::Normal, "p", 1),
            ("[build-dependencies]\nplan = { package = \"p\" }\n", Kind::Build, "p", 2),
            ("[dev-dependencies]\nplan.path = \"../plan\"\n", Kind::Dev, "../plan", 2),
            (
                "[workspace.dependencies]\nplan = { path = \"crates/plan\", package = \"p\" }\n",
                Kind::Workspace,
                "p",
                2,
            ),
        ] {
            let want = vec![(kind, "plan".to_owned(), target.to_owned(), line)];
            assert_eq!(read(text), want, "{text}");
        }
    }

    #[test]
    fn other_keys_are_no_dependencies() {
        for text in [
            "[package]\nname = \"plan\"\n",
            "[features]\ndependencies = []\nplan = [\"dep:plan\"]\n",
            "[dependencies]\n# plan.workspace = true\n",
            "[lints]\nworkspace = true\n",
        ] {
            assert_eq!(read(text), vec![], "{text}");
        }
    }

    #[test]
    fn values_over_several_lines_are_one_dependency() {
        let text = "[dependencies]\na = { version = \"1\", features = [\n  \"x\", # ]\n  \"y=z\",\n\
                    ] }\nb = \"1\"\n";
        let names: Vec<_> = read(text).into_iter().map(|(_, name, _, line)| (name, line)).collect();
        assert_eq!(names, [("a".to_owned(), 2), ("b".to_owned(), 6)]);
    }

    #[test]
    fn two_keys_of_one_dependency_are_one() {
        let text = "[dependencies]\nplan.workspace = true\nplan.optional = true\n";
        assert_eq!(read(text).len(), 1);
    }

    #[test]
    fn an_inline_dependency_table_is_reported_as_unread() {
        let text = "[target.x]\ndependencies = { plan = \"1\" }\n";
        assert_eq!(Manifest::parse(text).unread_lines, [2]);
    }
}
