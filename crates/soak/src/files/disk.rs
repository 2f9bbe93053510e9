//! A model of a disk that may lose everything not synced. It keeps the changes of each file since
//! its last sync, and the changes of names in each folder since its last sync. After a power cut,
//! any subset of a file's changes and any prefix of a folder's changes remains.
//!
//! It is strict on purpose: syncing a file does not make its name durable, and syncing a folder
//! does not make the folder's own name durable.

use super::record::Call;
use rng::Stream;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that reach the disk together or not at all.
const PAGE: usize = 4096;

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Node {
    File(usize),
    Folder(usize),
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Debug, Default)]
struct File {
    safe: Vec<u8>,
    pending: Vec<Change>,
    /// Its current length, where appended bytes go.
    length: u64,
}

#[derive(Clone, Debug)]
enum Naming {
    Set(String, Node),
    Remove(String),
    /// Atomic: the old name disappears and the new one appears in one step.
    Rename(String, String, Node),
}

type Names = BTreeMap<String, Node>;

#[derive(Debug, Default)]
struct Folder {
    safe: Names,
    pending: Vec<Naming>,
    now: Names,
}

/// The modelled disk.
#[derive(Debug)]
pub struct Disk {
    files: Vec<File>,
    /// The first folder is the root.
    folders: Vec<Folder>,
    open: BTreeMap<u64, Node>,
}

impl Disk {
    /// Reads the content of a folder; all of it counts as durable.
    pub fn read(root: &Path) -> io::Result<Disk> {
        let mut disk = Disk { files: Vec::new(), folders: Vec::new(), open: BTreeMap::new() };
        disk.read_folder(root)?;
        Ok(disk)
    }

    fn read_folder(&mut self, path: &Path) -> io::Result<usize> {
        let index = self.folders.len();
        self.folders.push(Folder::default());
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let node = if entry.file_type()?.is_dir() {
                Node::Folder(self.read_folder(&entry.path())?)
            } else {
                let safe = std::fs::read(entry.path())?;
                let length = safe.len() as u64;
                self.files.push(File { safe, pending: Vec::new(), length });
                Node::File(self.files.len() - 1)
            };
            let name = entry.file_name().to_string_lossy().into_owned();
            self.folders[index].safe.insert(name.clone(), node);
            self.folders[index].now.insert(name, node);
        }
        Ok(index)
    }

    /// Applies a recorded call.
    pub fn play(&mut self, call: &Call) {
        match call {
            Call::Failed | Call::Read => {}
            Call::Open { path, number, creates, empties } => {
                self.opened(path, *number, *creates, *empties);
            }
            Call::Write { number, at, bytes } => {
                if let Some(file) = self.open_file(*number) {
                    let at = at.unwrap_or(file.length);
                    file.length = file.length.max(at + bytes.len() as u64);
                    file.pending.push(Change::Write(at, bytes.clone()));
                }
            }
            Call::Truncate { number, length } => {
                if let Some(file) = self.open_file(*number) {
                    file.cut(*length);
                }
            }
            Call::Sync { number } => match self.open.get(number) {
                Some(&Node::File(index)) => self.files[index].settle(),
                Some(&Node::Folder(index)) => self.folders[index].settle(),
                None => {}
            },
            Call::Rename { from, to } => self.renamed(from, to),
            Call::Link { from, to } => {
                if let (Some(node), Some((folder, name))) = (self.find(from), self.place(to)) {
                    self.folders[folder].change(Naming::Set(name, node));
                }
            }
            Call::Remove { path } => {
                if let Some((folder, name)) = self.place(path) {
                    self.folders[folder].change(Naming::Remove(name));
                }
            }
            Call::Folder { path } => {
                if let Some((folder, name)) = self.place(path) {
                    self.folders.push(Folder::default());
                    let node = Node::Folder(self.folders.len() - 1);
                    self.folders[folder].change(Naming::Set(name, node));
                }
            }
        }
    }

    fn opened(&mut self, path: &Path, number: u64, creates: bool, empties: bool) {
        let node = match self.find(path) {
            Some(node) => node,
            None if !creates => return,
            None => {
                let Some((folder, name)) = self.place(path) else { return };
                self.files.push(File::default());
                let node = Node::File(self.files.len() - 1);
                self.folders[folder].change(Naming::Set(name, node));
                node
            }
        };
        if let (true, Node::File(index)) = (empties, node) {
            self.files[index].cut(0);
        }
        self.open.insert(number, node);
    }

    fn renamed(&mut self, from: &Path, to: &Path) {
        let (Some(node), Some(old), Some(new)) =
            (self.find(from), self.place(from), self.place(to))
        else {
            return;
        };
        if old.0 == new.0 {
            self.folders[old.0].change(Naming::Rename(old.1, new.1, node));
        } else {
            self.folders[new.0].change(Naming::Set(new.1, node));
            self.folders[old.0].change(Naming::Remove(old.1));
        }
    }

    fn open_file(&mut self, number: u64) -> Option<&mut File> {
        match self.open.get(&number) {
            Some(&Node::File(index)) => self.files.get_mut(index),
            _ => None,
        }
    }

    /// What a path refers to now.
    fn find(&self, path: &Path) -> Option<Node> {
        path.iter().try_fold(Node::Folder(0), |node, name| match node {
            Node::Folder(index) => self.folders[index].now.get(name.to_str()?).copied(),
            Node::File(_) => None,
        })
    }

    /// The folder of a path, and the name in it.
    fn place(&self, path: &Path) -> Option<(usize, String)> {
        match self.find(path.parent()?)? {
            Node::Folder(index) => Some((index, path.file_name()?.to_str()?.to_owned())),
            Node::File(_) => None,
        }
    }

    /// Whether a name was in its folder at the folder's last sync, so that the program may rely on
    /// it.
    pub fn was_synced(&self, path: &Path) -> bool {
        self.place(path).is_some_and(|(index, name)| self.folders[index].safe.contains_key(&name))
    }

    /// Writes what a power cut leaves into an empty folder.
    pub fn cut_power(&self, draws: &mut Stream, to: &Path) -> io::Result<()> {
        self.leave_folder(0, draws, to)
    }

    fn leave_folder(&self, index: usize, draws: &mut Stream, to: &Path) -> io::Result<()> {
        std::fs::create_dir_all(to)?;
        let folder = &self.folders[index];
        let kept = draws.below(folder.pending.len() as u64 + 1) as usize;
        let mut names = folder.safe.clone();
        folder.pending[..kept].iter().for_each(|naming| naming.apply(&mut names));
        for (name, node) in names {
            let path: PathBuf = to.join(name);
            match node {
                Node::Folder(index) => self.leave_folder(index, draws, &path)?,
                Node::File(index) => std::fs::write(path, self.files[index].left(draws))?,
            }
        }
        Ok(())
    }
}

impl Naming {
    fn apply(&self, names: &mut Names) {
        match self {
            Naming::Set(name, node) => drop(names.insert(name.clone(), *node)),
            Naming::Remove(name) => drop(names.remove(name)),
            Naming::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

impl Folder {
    fn change(&mut self, naming: Naming) {
        naming.apply(&mut self.now);
        self.pending.push(naming);
    }

    fn settle(&mut self) {
        self.pending.clear();
        self.safe.clone_from(&self.now);
    }
}

impl File {
    fn cut(&mut self, length: u64) {
        self.length = length;
        self.pending.push(Change::Length(length));
    }

    fn settle(&mut self) {
        let mut safe = std::mem::take(&mut self.safe);
        self.pending.drain(..).for_each(|change| change.apply(&mut safe, &mut |_| true));
        self.safe = safe;
    }

    /// Its content after a power cut: of the unsynced changes all, none, or any pages.
    fn left(&self, draws: &mut Stream) -> Vec<u8> {
        let mut content = self.safe.clone();
        let chance = [0, 5, 10][draws.below(3) as usize];
        let mut keeps = |_: usize| draws.below(10) < chance;
        for change in &self.pending {
            change.clone().apply(&mut content, &mut keeps);
        }
        content
    }
}

impl Change {
    /// Applies the pages that `keeps` accepts.
    fn apply(self, content: &mut Vec<u8>, keeps: &mut dyn FnMut(usize) -> bool) {
        match self {
            Change::Length(length) if keeps(0) => content.resize(length as usize, 0),
            Change::Length(_) => {}
            Change::Write(at, bytes) => {
                for (page, part) in bytes.chunks(PAGE).enumerate() {
                    let start = at as usize + page * PAGE;
                    if keeps(page) {
                        if content.len() < start + part.len() {
                            content.resize(start + part.len(), 0);
                        }
                        content[start..start + part.len()].copy_from_slice(part);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::of_case;
    use crate::scratch::Scratch;

    fn open(path: &str, number: u64) -> Call {
        Call::Open { path: path.into(), number, creates: true, empties: false }
    }

    fn write(number: u64, bytes: &[u8]) -> Call {
        Call::Write { number, at: None, bytes: bytes.to_vec() }
    }

    /// What fifty power cuts leave under a name.
    fn left(calls: &[Call], name: &str) -> Vec<Option<Vec<u8>>> {
        let scratch = Scratch::new("disk").unwrap();
        let before = scratch.path().join("before");
        std::fs::create_dir_all(&before).unwrap();
        std::fs::write(before.join("old"), b"old").unwrap();
        let mut disk = Disk::read(&before).unwrap();
        calls.iter().for_each(|call| disk.play(call));
        let one = |case: u64| {
            let place = scratch.path().join(case.to_string());
            disk.cut_power(&mut of_case(1, "disk", case), &place).unwrap();
            std::fs::read(place.join(name)).ok()
        };
        let mut all: Vec<_> = (0..50).map(one).collect();
        all.sort();
        all.dedup();
        all
    }

    fn found(text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    #[test]
    fn synced_data_stays_and_the_rest_may_be_lost() {
        let root = || Call::Open { path: "".into(), number: 9, creates: false, empties: false };
        let calls = vec![open("a", 1), write(1, b"new")];
        let all = left(&calls, "a");
        assert!(all.contains(&None) && all.contains(&found("")) && all.contains(&found("new")));
        let synced = [calls.clone(), vec![Call::Sync { number: 1 }]].concat();
        assert_eq!(left(&synced, "a"), [None, found("new")], "the name is not durable");
        let named = [synced, vec![root(), Call::Sync { number: 9 }]].concat();
        assert_eq!(left(&named, "a"), [found("new")]);
    }

    #[test]
    fn a_folder_whose_own_name_is_not_durable_may_be_lost() {
        let folder = Call::Folder { path: "f".into() };
        let itself = Call::Open { path: "f".into(), number: 9, creates: false, empties: false };
        let calls = [folder, open("f/a", 1), itself, Call::Sync { number: 9 }];
        assert!(left(&calls, "f/a").contains(&None));
    }

    #[test]
    fn a_rename_is_one_step() {
        let replace = Call::Rename { from: "a".into(), to: "old".into() };
        let calls = [open("a", 1), write(1, b"new"), Call::Sync { number: 1 }, replace.clone()];
        assert_eq!(left(&calls, "old"), [found("new"), found("old")]);
        let careless = [open("a", 1), write(1, b"new"), replace];
        assert!(left(&careless, "old").contains(&found("")), "renamed before it was synced");
    }
}
