//! Hugging Face's cache of downloaded repositories, in the layout that its Python library has.
//!
//! ```text
//! models--gpt2/refs/main                      the commit of a revision
//! models--gpt2/snapshots/<commit>/config.json a link to ../../blobs/<etag>
//! models--gpt2/blobs/<etag>                   content; <etag>.incomplete while it is downloaded
//! models--gpt2/.no_exist/<commit>/<file>      the repository has no such file
//! .locks/models--gpt2/<etag>.lock             held during a download
//! ```

use crate::environment;
use crate::error::{HubError, Result};
use crate::platform;
use crate::repo::ModelRepo;
use pick::{MOST_INDEX_BYTES, weight_files};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The file with a model's sizes.
pub const CONFIG: &str = "config.json";
/// The file with all its weights.
pub const WEIGHTS: &str = "model.safetensors";
/// Where the weights are if they are in several files.
pub const INDEX: &str = "model.safetensors.index.json";

/// The folder of all repositories.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache in this folder, which need not exist yet.
    #[must_use]
    pub fn new(root: PathBuf) -> Cache {
        Cache { root }
    }

    /// The user's: `HF_HUB_CACHE`, else `$HF_HOME/hub`, else `~/.cache/huggingface/hub`.
    ///
    /// # Errors
    ///
    /// When there is no home folder either.
    pub fn from_environment() -> Result<Cache> {
        environment::cache_folder().map(Cache::new).ok_or_else(|| HubError::Local {
            path: "~/.cache/huggingface/hub".into(),
            what: "there is no home folder; set HOME or HF_HOME".to_owned(),
        })
    }

    /// Its folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A repository's place in it.
    #[must_use]
    pub fn place(&self, repo: &ModelRepo) -> Place {
        let name = repo.folder_name();
        Place { locks: self.root.join(".locks").join(&name), folder: self.root.join(name) }
    }

    /// The cached `config.json` of a model.
    #[must_use]
    pub fn config(&self, repo: &ModelRepo) -> Option<PathBuf> {
        let place = self.place(repo);
        Some(place.snapshot(&place.commit()?).join(CONFIG)).filter(|path| path.is_file())
    }
}

/// The folders of one repository.
pub struct Place {
    folder: PathBuf,
    locks: PathBuf,
}

impl Place {
    /// The commit that is cached for the main revision.
    pub fn commit(&self) -> Option<String> {
        let commit = read(&self.folder.join("refs").join(ModelRepo::REVISION), 100).ok()?;
        let commit = String::from_utf8(commit).ok()?.trim().to_owned();
        is_name(&commit).then_some(commit)
    }

    /// Notes the commit of the main revision.
    ///
    /// # Errors
    ///
    /// When the disk fails.
    pub fn set_commit(&self, commit: &str) -> Result<()> {
        if self.commit().as_deref() == Some(commit) {
            return Ok(());
        }
        let refs = self.folder.join("refs");
        std::fs::create_dir_all(&refs).map_err(HubError::io(&refs, "create the folder"))?;
        // Two processes may do this at once, or two threads of one.
        static TIMES: AtomicU64 = AtomicU64::new(0);
        let (process, time) = (std::process::id(), TIMES.fetch_add(1, Ordering::Relaxed));
        let path = refs.join(ModelRepo::REVISION);
        let temporary = refs.join(format!("{}.{process}-{time}.tmp", ModelRepo::REVISION));
        let written =
            std::fs::write(&temporary, commit).and_then(|()| std::fs::rename(&temporary, &path));
        written.map_err(HubError::io(&path, "write it"))
    }

    /// The files of a commit.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// The content with this ETag.
    pub fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    /// The lock for this content.
    pub fn lock(&self, etag: &str) -> PathBuf {
        self.locks.join(format!("{etag}.lock"))
    }

    /// Whether it is known that a commit has no such file.
    pub fn is_absent(&self, commit: &str, file: &str) -> bool {
        self.folder.join(".no_exist").join(commit).join(file).is_file()
    }

    /// Notes that a commit has no such file. This only saves requests, so it may fail.
    pub fn set_absent(&self, commit: &str, file: &str) {
        let folder = self.folder.join(".no_exist").join(commit);
        let _ = std::fs::create_dir_all(&folder).and_then(|()| File::create(folder.join(file)));
    }

    /// Gives content a name in a commit's folder.
    ///
    /// # Errors
    ///
    /// When the disk fails.
    pub fn link(&self, commit: &str, file: &str, etag: &str) -> Result<()> {
        let folder = self.snapshot(commit);
        std::fs::create_dir_all(&folder).map_err(HubError::io(&folder, "create the folder"))?;
        let path = folder.join(file);
        if path.exists() {
            return Ok(());
        }
        let _ = std::fs::remove_file(&path); // a link to content that is gone
        let target = Path::new("../../blobs").join(etag);
        match platform::link(&target, &path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            // A file system without links: the content itself takes the name.
            Err(_) => std::fs::rename(self.blob(etag), &path)
                .map_err(HubError::io(&path, "name a complete download")),
        }
    }

    /// Whether a commit's weights are complete: one file, or all that the index names.
    pub fn has_weights(&self, commit: &str) -> bool {
        let folder = self.snapshot(commit);
        let has = |file: &str| folder.join(file).is_file();
        let named = || weight_files(&read(&folder.join(INDEX), MOST_INDEX_BYTES).ok()?).ok();
        has(WEIGHTS) || named().is_some_and(|files| files.iter().all(|file| has(file)))
    }
}

/// Whether a server's word can be a file's name.
pub fn is_name(word: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=128).contains(&word.len()) && !word.starts_with('.') && word.bytes().all(is_usual)
}

/// Reads a regular file of at most `most` bytes.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let metadata = path.metadata().map_err(HubError::io(path, "open it"))?;
    if !metadata.is_file() || metadata.len() > most {
        let what = format!("is not a file of at most {most} bytes; remove it");
        return Err(HubError::Local { path: path.to_owned(), what });
    }
    let mut content = Vec::new();
    let reading = HubError::io(path, "read it");
    File::open(path).map_err(&reading)?.take(most).read_to_end(&mut content).map_err(&reading)?;
    Ok(content)
}
