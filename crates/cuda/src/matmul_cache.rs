//! The algorithms of timed matmuls on disk: one file for each GPU, driver and library version, one
//! line for each shape. A file that cannot be read or trusted is ignored with a notice, and its
//! matmuls are timed again.

use crate::cublaslt::{Algorithm, algorithm_of, text_of};
use cache::Ignored;
use plan::fnv::Fnv;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first line. Its number is the version of the file format.
const MAGIC: &str = "fitgpt matmuls 1";

/// The longest file that is read: some 4,000 shapes.
const MOST_BYTES: u64 = 1 << 20;

/// The most shapes that are kept. Later ones displace the oldest.
const MOST_SHAPES: usize = 2048;

/// How long to wait for another process that times matmuls.
const PATIENCE: Duration = Duration::from_secs(12);

/// The fastest algorithm of a shape, and how much was gained.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimedShape {
    /// The shape's key and the bytes of workspace.
    pub(crate) key: String,
    pub(crate) algorithm: Algorithm,
    /// Microseconds of the heuristic's favourite and of this one, for people who look.
    pub(crate) favourite: f64,
    pub(crate) fastest: f64,
}

/// The cache of one GPU with its libraries.
pub(crate) struct MatmulCache {
    folder: PathBuf,
    /// GPU, driver and library.
    made_for: String,
    shapes: Vec<TimedShape>,
}

impl MatmulCache {
    /// Reads the cache of a GPU and its libraries, and says why an existing file is not used.
    pub(crate) fn read(folder: &Path, made_for: String) -> (MatmulCache, Option<String>) {
        let mut cache = MatmulCache { folder: folder.to_path_buf(), made_for, shapes: Vec::new() };
        let notice = cache.refresh();
        (cache, notice)
    }

    /// Reads the file again, after another process may have written it.
    pub(crate) fn refresh(&mut self) -> Option<String> {
        let path = self.path();
        let content = cache::read(&path, MOST_BYTES).and_then(|content| {
            parse(&content, &self.made_for).ok_or(Ignored::Content("it is damaged"))
        });
        match content {
            Ok(shapes) => {
                self.shapes = shapes;
                None
            }
            Err(Ignored::Absent) => None,
            Err(why) => Some(format!("{} is ignored: {why}", path.display())),
        }
    }

    /// The algorithm of a shape.
    pub(crate) fn find(&self, key: &str) -> Option<Algorithm> {
        self.shapes.iter().find(|shape| shape.key == key).map(|shape| shape.algorithm)
    }

    /// Keeps others from timing at the same time, which would disturb both.
    pub(crate) fn lock(&self) -> Option<File> {
        cache::lock(&self.folder.join("matmuls.lock"), PATIENCE)
    }

    /// Adds shapes. A full or read-only disk must not stop a run, so failures are ignored.
    pub(crate) fn add(&mut self, timed: Vec<TimedShape>) {
        let _ = self.refresh();
        self.shapes.retain(|old| timed.iter().all(|new| new.key != old.key));
        self.shapes.extend(timed);
        let surplus = self.shapes.len().saturating_sub(MOST_SHAPES);
        self.shapes.drain(..surplus);
        let _ = cache::write(&self.path(), text(&self.shapes, &self.made_for).as_bytes());
    }

    fn path(&self) -> PathBuf {
        let name = format!("matmuls-{:016x}.txt", Fnv::of(self.made_for.as_bytes()));
        self.folder.join(name)
    }
}

/// A file's content; the last line is a checksum of the others.
fn text(shapes: &[TimedShape], made_for: &str) -> String {
    let mut text = format!("{MAGIC}\n{made_for}\n");
    for TimedShape { key, algorithm, favourite, fastest } in shapes {
        let algorithm = text_of(algorithm);
        text += &format!("{key}\t{algorithm}\t{favourite:.2}\t{fastest:.2}\n");
    }
    let sum = Fnv::of(text.as_bytes());
    text + &format!("sum {sum:016x}\n")
}

/// The shapes of a file, if it is whole and made for this GPU and these libraries.
fn parse(content: &[u8], made_for: &str) -> Option<Vec<TimedShape>> {
    let text = std::str::from_utf8(content).ok()?;
    let at = text.trim_end_matches('\n').rfind('\n')? + 1;
    let (body, sum) = text.split_at(at);
    if sum != format!("sum {:016x}\n", Fnv::of(body.as_bytes())) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next() != Some(MAGIC) || lines.next() != Some(made_for) {
        return None;
    }
    let shape = |line: &str| {
        let mut parts = line.split('\t');
        let shape = TimedShape {
            key: parts.next()?.to_string(),
            algorithm: algorithm_of(parts.next()?)?,
            favourite: parts.next()?.parse().ok()?,
            fastest: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(shape)
    };
    lines.map(shape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "NVIDIA H200, driver 13000, cuBLASLt 130101";

    fn shape(key: &str, word: u64) -> TimedShape {
        let key = key.to_string();
        TimedShape { key, algorithm: [word; 8], favourite: 12.5, fastest: 10.25 }
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("fitgpt-matmuls-{}-{name}", std::process::id());
            Folder(std::env::temp_dir().join(name))
        }

        fn read(&self, made_for: &str) -> (MatmulCache, Option<String>) {
            MatmulCache::read(&self.0, made_for.to_string())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn shapes_of_two_processes_are_kept() {
        let folder = Folder::new("two");
        let ((mut one, none), (mut other, _)) = (folder.read(GPU), folder.read(GPU));
        assert_eq!(none, None);
        one.add(vec![shape("nn 1x2x3", 1), shape("nt 1x2x3", 2)]);
        other.add(vec![shape("tn 1x2x3", 3), shape("nn 1x2x3", 4)]);
        let (now, notice) = folder.read(GPU);
        assert_eq!(notice, None);
        assert_eq!(now.find("nt 1x2x3"), Some([2; 8]));
        assert_eq!(now.find("tn 1x2x3"), Some([3; 8]));
        assert_eq!(now.find("nn 1x2x3"), Some([4; 8]), "the later one");
        assert_eq!(now.find("nn"), None);
        let (newer, notice) = folder.read("NVIDIA H200, driver 13000, cuBLASLt 130200");
        assert_eq!((newer.shapes, notice), (Vec::new(), None), "another version starts empty");
    }

    #[test]
    fn a_damaged_file_is_ignored_and_written_anew() {
        let folder = Folder::new("damaged");
        folder.read(GPU).0.add(vec![shape("nn 1x2x3", 1)]);
        let path = folder.read(GPU).0.path();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut content = whole.clone();
            content[at] ^= 1;
            assert_eq!(parse(&content, GPU), None, "byte {at}");
            assert_eq!(parse(&whole[..at], GPU), None, "cut at {at}");
        }
        assert_eq!(parse(&whole, "another GPU"), None);
        std::fs::write(&path, &whole[1..]).unwrap();
        let (mut cache, notice) = folder.read(GPU);
        assert!(notice.unwrap().ends_with(".txt is ignored: it is damaged"));
        cache.add(vec![shape("nt 1x2x3", 2)]);
        let (cache, notice) = folder.read(GPU);
        assert_eq!((cache.shapes, notice), (vec![shape("nt 1x2x3", 2)], None));
    }

    #[test]
    fn the_file_stays_small() {
        let folder = Folder::new("small");
        let (mut cache, _) = folder.read(GPU);
        let key = |index: u64| format!("nt {0}x{0}x{0} bf16>bf16 a16 w33554432", index + (1 << 40));
        cache.add((0..3000).map(|index| shape(&key(index), index)).collect());
        let (cache, notice) = folder.read(GPU);
        assert_eq!((cache.shapes.len(), notice), (MOST_SHAPES, None));
        assert_eq!(cache.find(&key(2999)), Some([2999; 8]));
        assert_eq!(cache.find(&key(0)), None);
    }
}
