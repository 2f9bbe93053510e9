//! Compiled kernels on disk, by source, architecture and compiler. A cache that cannot be read,
//! written or trusted only costs time: the kernel is compiled again.

use crate::error::CudaError;
use crate::lowering::ModuleSpec;
use crate::nvrtc::{Compiler, OPTIONS};
use std::path::{Path, PathBuf};

/// What a cached file starts with; the last byte counts changes of its form.
const MAGIC: &[u8; 8] = b"fitgpt\0\x01";

/// Where compiled kernels are kept.
#[derive(Clone, Debug, Default)]
pub struct CubinCache {
    folder: Option<PathBuf>,
}

impl CubinCache {
    /// In `FITGPT_CACHE`, else where the system keeps caches; nowhere if neither is known.
    pub fn standard() -> CubinCache {
        let folder =
            |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let own = folder("FITGPT_CACHE");
        let system = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        let folder = own.or_else(|| Some(system?.join("fitgpt")));
        CubinCache { folder: folder.map(|folder| folder.join("kernels")) }
    }

    /// A cache in a folder of its own.
    pub fn at(folder: &Path) -> CubinCache {
        CubinCache { folder: Some(folder.to_path_buf()) }
    }

    /// The machine code of modules: from the cache, or compiled by all cores and kept.
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
            let running: Vec<_> =
                modules.chunks(each).map(|part| scope.spawn(move || start(part))).collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(died())))
                .collect()
        });
        Ok(parts.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// The machine code in a file's content, if the content is whole and of this key.
    pub fn whole(content: &[u8], key: u64) -> Option<&[u8]> {
        let (head, cubin) = content.split_at_checked(24)?;
        let word = |at: usize| head.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let whole = head.starts_with(MAGIC) && word(8)? == key && word(16)? == hash(cubin);
        whole.then_some(cubin)
    }

    /// A file's content: a name, the key, a sum of the machine code, the code.
    pub fn written(key: u64, cubin: &[u8]) -> Vec<u8> {
        let mut content = MAGIC.to_vec();
        content.extend(key.to_le_bytes());
        content.extend(hash(cubin).to_le_bytes());
        content.extend(cubin);
        content
    }

    /// Whether a module need not be compiled.
    pub fn holds(&self, compiler: &Compiler, module: &ModuleSpec, sm: u32) -> bool {
        let (path, key, _) = self.entry(compiler, module, sm);
        path.is_some_and(|path| read(&path, key).is_some())
    }

    fn get(&self, compiler: &Compiler, module: &ModuleSpec, sm: u32) -> Result<Vec<u8>, CudaError> {
        let (path, key, text) = self.entry(compiler, module, sm);
        if let Some(cubin) = path.as_deref().and_then(|path| read(path, key)) {
            return Ok(cubin);
        }
        let cubin = compiler.compile(module.file(), &text, sm)?.cubin;
        if let Some(path) = path {
            // A full or read-only disk must not stop a run.
            let _ = write(&path, key, &cubin);
        }
        Ok(cubin)
    }

    /// Where a module is kept, under which key, and its text.
    fn entry(
        &self,
        compiler: &Compiler,
        module: &ModuleSpec,
        sm: u32,
    ) -> (Option<PathBuf>, u64, String) {
        let text = module.text();
        let (major, minor) = compiler.version();
        let made_by = format!("{} sm_{sm} nvrtc {major}.{minor}", OPTIONS.join(" "));
        let key = hash(format!("{made_by}\n{text}").as_bytes());
        let stem = module.file().trim_end_matches(".cu");
        let path = self.folder.as_ref().map(|f| f.join(format!("{stem}-sm{sm}-{key:016x}.cubin")));
        (path, key, text)
    }
}

/// A thread that compiled ended by itself.
fn died() -> CudaError {
    let log = "the compiler's thread died".to_string();
    CudaError::Compiler { file: "a kernel".to_string(), log }
}

/// The file's content, if it is whole and of this key.
fn read(path: &Path, key: u64) -> Option<Vec<u8>> {
    CubinCache::whole(&std::fs::read(path).ok()?, key).map(<[u8]>::to_vec)
}

/// Written beside and renamed: another process never sees half of it.
fn write(path: &Path, key: u64, cubin: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let content = CubinCache::written(key, cubin);
    let beside = path.with_extension(format!("{}.part", std::process::id()));
    std::fs::write(&beside, content)?;
    std::fs::rename(&beside, path)
}

/// FNV-1a with a last stir: enough to tell sources apart and to see damage.
fn hash(bytes: &[u8]) -> u64 {
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    (sum ^ sum >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_or_of_another_key_is_not_used() {
        let folder = std::env::temp_dir().join(format!("fitgpt-cubins-{}", std::process::id()));
        let path = folder.join("a.cubin");
        assert_eq!(read(&path, 7), None);
        write(&path, 7, b"machine code").unwrap();
        assert_eq!(read(&path, 7).as_deref(), Some(&b"machine code"[..]));
        assert_eq!(read(&path, 8), None);
        let mut content = std::fs::read(&path).unwrap();
        for at in 0..content.len() {
            content[at] ^= 1;
            std::fs::write(&path, &content).unwrap();
            assert_eq!(read(&path, 7), None, "byte {at}");
            content[at] ^= 1;
        }
        std::fs::write(&path, &content[..content.len() - 1]).unwrap();
        assert_eq!(read(&path, 7), None, "cut short");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_that_the_caller_drops() {
        assert!(write(Path::new("/proc/fitgpt/a.cubin"), 1, b"x").is_err());
    }
}
