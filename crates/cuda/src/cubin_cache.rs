//! Compiled kernels on disk, keyed by source, architecture and compiler. If a file cannot be read
//! or trusted, the kernel is compiled again, and a notice says why.

use crate::error::CudaError;
use crate::kernel_source::ModuleSpec;
use crate::nvrtc::{Compiler, OPTIONS};
use cache::Ignored;
use plan::fnv::Fnv;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;

/// The first bytes of a cached file. The last one is the version of the file format.
const MAGIC: &[u8; 8] = b"fitgpt\0\x01";

/// The longest file that is read. Ours have a few hundred kilobytes.
const MOST_BYTES: u64 = 64 << 20;

/// Where compiled kernels are kept.
#[derive(Clone, Debug, Default)]
pub struct CubinCache {
    folder: Option<PathBuf>,
    notices: Arc<Mutex<Vec<String>>>,
}

impl CubinCache {
    /// In the program's cache folder; disabled if the user has no home.
    pub fn standard() -> CubinCache {
        let folder = cache::folder().map(|folder| folder.join(cache::KERNELS));
        CubinCache { folder, ..CubinCache::default() }
    }

    /// A cache in a folder of its own.
    pub fn at(folder: &Path) -> CubinCache {
        CubinCache { folder: Some(folder.to_path_buf()), ..CubinCache::default() }
    }

    /// Which files were found but not used since the last call, in one sentence.
    pub fn take_notice(&self) -> Option<String> {
        let mut notices = self.notices.lock().ok()?;
        let (count, first) = (notices.len(), notices.first().cloned());
        notices.clear();
        first.map(|first| match count {
            1 => first,
            _ => format!("{first}; {} more kernel cache files are ignored too", count - 1),
        })
    }

    /// Its folder, unless it is disabled.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Adds a notice, unless it is there already.
    pub(crate) fn notice(&self, notice: String) {
        if let Ok(mut notices) = self.notices.lock()
            && !notices.contains(&notice)
        {
            notices.push(notice);
        }
    }

    /// The machine code in a file, if it exists and is ours.
    fn find(&self, path: &Path, key: u64) -> Option<Vec<u8>> {
        match CubinCache::read(path, key) {
            Ok(cubin) => Some(cubin),
            Err(Ignored::Absent) => None,
            Err(why) => {
                self.notice(format!("{} is ignored: {why}", path.display()));
                None
            }
        }
    }

    /// The machine code of modules: from the cache, or compiled on all cores and then cached.
    pub fn get_all(
        &self,
        compiler: &Compiler,
        modules: &[ModuleSpec],
        sm: u32,
    ) -> Result<Vec<Vec<u8>>, CudaError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let each = modules.len().div_ceil(threads).max(1);
        let parts: Vec<Result<Vec<Vec<u8>>, CudaError>> = std::thread::scope(|scope| {
            let start = |part: &'_ [ModuleSpec]| -> Result<Vec<Vec<u8>>, CudaError> {
                part.iter().map(|module| self.get(compiler, module, sm)).collect()
            };
            let running: Vec<_> = modules
                .chunks(each)
                .map(|part| {
                    let thread = std::thread::Builder::new();
                    // If a thread cannot be started, this one compiles its part.
                    thread.spawn_scoped(scope, move || start(part)).map_err(|_| part)
                })
                .collect();
            let end = |started: Result<ScopedJoinHandle<'_, _>, &[ModuleSpec]>| match started {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err(died())),
                Err(part) => start(part),
            };
            running.into_iter().map(end).collect()
        });
        Ok(parts.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// The machine code in a file, if no other user could have written it, it is complete, and it
    /// has this key.
    ///
    /// # Errors
    ///
    /// Why the file is not used.
    pub fn read(path: &Path, key: u64) -> Result<Vec<u8>, Ignored> {
        let content = cache::read(path, MOST_BYTES)?;
        let cubin = CubinCache::whole(&content, key);
        cubin.map(<[u8]>::to_vec).ok_or(Ignored::Content("it is damaged"))
    }

    /// The machine code in a file's content, if the content is complete and has this key.
    pub fn whole(content: &[u8], key: u64) -> Option<&[u8]> {
        let (head, cubin) = content.split_at_checked(24)?;
        let word = |at: usize| head.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let whole = head.starts_with(MAGIC) && word(8)? == key && word(16)? == hash(cubin);
        whole.then_some(cubin)
    }

    /// A file's content: magic bytes, the key, a checksum of the machine code, the code.
    pub fn written(key: u64, cubin: &[u8]) -> Vec<u8> {
        let mut content = MAGIC.to_vec();
        content.extend(key.to_le_bytes());
        content.extend(hash(cubin).to_le_bytes());
        content.extend(cubin);
        content
    }

    /// Whether the cache already holds a module.
    pub fn holds(&self, compiler: &Compiler, module: &ModuleSpec, sm: u32) -> bool {
        let (path, key, _) = self.entry(compiler, module, sm);
        path.is_some_and(|path| CubinCache::read(&path, key).is_ok())
    }

    fn get(&self, compiler: &Compiler, module: &ModuleSpec, sm: u32) -> Result<Vec<u8>, CudaError> {
        let (path, key, text) = self.entry(compiler, module, sm);
        if let Some(cubin) = path.as_deref().and_then(|path| self.find(path, key)) {
            return Ok(cubin);
        }
        let cubin = compiler.compile(module.file(), &text, module.target(sm))?;
        if let Some(path) = path {
            // A full or read-only disk must not stop a run.
            let _ = write(&path, key, &cubin);
        }
        Ok(cubin)
    }

    /// A module's cache file, its key and its source text.
    fn entry(
        &self,
        compiler: &Compiler,
        module: &ModuleSpec,
        sm: u32,
    ) -> (Option<PathBuf>, u64, String) {
        let text = module.text();
        let (major, minor) = compiler.version();
        let target = module.target(sm);
        let made_by = format!("{} {target} nvrtc {major}.{minor}", OPTIONS.join(" "));
        let key = hash(format!("{made_by}\n{text}").as_bytes());
        let stem = module.file().trim_end_matches(".cu");
        let path = self.folder.as_ref().map(|f| f.join(format!("{stem}-sm{sm}-{key:016x}.cubin")));
        (path, key, text)
    }
}

/// The error when a compiling thread panicked.
fn died() -> CudaError {
    let log = "the compiler's thread died".to_string();
    CudaError::Compiler { file: "a kernel".to_string(), log }
}

fn write(path: &Path, key: u64, cubin: &[u8]) -> std::io::Result<()> {
    cache::write(path, &CubinCache::written(key, cubin))
}

/// FNV-1a with a final mix: enough to tell sources apart and to detect damage.
fn hash(bytes: &[u8]) -> u64 {
    let sum = Fnv::of(bytes);
    (sum ^ sum >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_or_of_another_key_is_not_used() {
        let folder = std::env::temp_dir().join(format!("fitgpt-cubins-{}", std::process::id()));
        let path = folder.join("a.cubin");
        assert!(matches!(CubinCache::read(&path, 7), Err(Ignored::Absent)));
        write(&path, 7, b"machine code").unwrap();
        assert_eq!(CubinCache::read(&path, 7).unwrap(), b"machine code");
        assert!(matches!(CubinCache::read(&path, 8), Err(Ignored::Content(_))));
        let mut content = std::fs::read(&path).unwrap();
        for at in 0..content.len() {
            content[at] ^= 1;
            std::fs::write(&path, &content).unwrap();
            assert!(CubinCache::read(&path, 7).is_err(), "byte {at}");
            content[at] ^= 1;
        }
        std::fs::write(&path, &content[..content.len() - 1]).unwrap();
        assert!(CubinCache::read(&path, 7).is_err(), "cut short");
        let cache = CubinCache::at(&folder);
        assert_eq!(cache.find(&path, 7), None);
        assert_eq!(cache.find(&folder.join("b.cubin"), 7), None);
        let notice = cache.take_notice().unwrap();
        assert!(notice.ends_with("a.cubin is ignored: it is damaged"), "{notice}");
        assert_eq!(cache.take_notice(), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_that_the_caller_drops() {
        assert!(write(Path::new("/proc/fitgpt/a.cubin"), 1, b"x").is_err());
    }
}
