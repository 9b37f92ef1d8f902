//! Files that survive a kill: staged under a hidden name, synced once, renamed into place.
//! POSIX `rename` is atomic; it is durable after the folder that holds the name was synced.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use super::FileInfo;
use crate::error::{Error, Result};

/// Hidden names begin with this; such folders and files are never read and are removed when a run is opened.
pub(super) const TEMPORARY: &str = ".tmp-";

/// Threads that wait for the disk while files are synced.
const SYNCS_AT_ONCE: usize = 16;

/// A folder under construction, removed on drop unless it was renamed into place.
pub(super) struct Staging {
    path: PathBuf,
    files: Vec<(PathBuf, File)>,
}

impl Staging {
    /// `parent/.tmp-<name>-<pid>`, empty.
    pub fn new(parent: &Path, name: &str) -> Result<Self> {
        let path = parent.join(format!("{TEMPORARY}{name}-{}", std::process::id()));
        if path.is_dir() {
            // Left by a save of ours that the system did not even let clean up.
            fs::remove_dir_all(&path).map_err(|e| Error::io("deleting", &path, e))?;
        }
        fs::create_dir(&path).map_err(|e| Error::io("creating", &path, e))?;
        Ok(Staging { path, files: Vec::new() })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new file with one call; synced by `publish`.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<FileInfo> {
        let path = self.path.join(name);
        super::state::check_name(&path, name)?;
        let mut file = File::create_new(&path).map_err(|e| Error::io("creating", &path, e))?;
        file.write_all(bytes).map_err(|e| Error::io("writing", &path, e))?;
        self.files.push((path, file));
        Ok(FileInfo { file: name.into(), bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) })
    }

    /// A file that somebody else wrote here is to be synced by `publish` too.
    pub fn adopt(&mut self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        let file = OpenOptions::new().write(true).open(&path).map_err(|e| Error::io("opening", &path, e))?;
        self.files.push((path, file));
        Ok(())
    }

    /// Syncs files and folder and renames it to `place`. A folder already there is replaced: it is moved to `aside`
    /// first, so that one of the two is there under a known name at any moment.
    pub fn publish(mut self, place: &Path, aside: &Path) -> Result<()> {
        sync_all(&std::mem::take(&mut self.files))?;
        sync_folder(&self.path)?;
        let replaced = place.is_dir();
        if replaced {
            fs::rename(place, aside).map_err(|e| Error::io("renaming", place, e))?;
        }
        if let Err(e) = fs::rename(&self.path, place) {
            if replaced {
                fs::rename(aside, place).map_err(|e| Error::io("restoring", place, e))?;
            }
            return Err(Error::io("renaming to", place, e));
        }
        if let Some(parent) = place.parent() {
            sync_folder(parent)?;
        }
        if replaced {
            fs::remove_dir_all(aside).map_err(|e| Error::io("deleting", aside, e))?;
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After `publish` the name is gone and this finds nothing.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Syncs files side by side: a journalling file system then serves them with one commit instead of one each.
fn sync_all(files: &[(PathBuf, File)]) -> Result<()> {
    for some in files.chunks(SYNCS_AT_ONCE) {
        std::thread::scope(|scope| {
            let syncs: Vec<_> = some.iter().map(|(path, file)| (path, scope.spawn(|| file.sync_all()))).collect();
            // All are joined, whichever fails.
            let done: Vec<_> = syncs.into_iter().map(|(path, sync)| (path, sync.join())).collect();
            done.into_iter().try_for_each(|(path, result)| {
                let result = result.unwrap_or_else(|_| Err(std::io::Error::other("the syncing thread ended")));
                result.map_err(|e| Error::io("syncing", path, e))
            })
        })?;
    }
    Ok(())
}

/// Makes names created, renamed or removed in a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<()> {
    // Windows has no sync of folders; its renames are journalled.
    if cfg!(unix) {
        let folder = File::open(path).map_err(|e| Error::io("opening", path, e))?;
        folder.sync_all().map_err(|e| Error::io("syncing", path, e))?;
    }
    Ok(())
}

/// Replaces a small file so that a reader sees the old or the new contents, never a part.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::io("writing", path, std::io::ErrorKind::InvalidInput.into()));
    };
    let staged = parent.join(format!("{TEMPORARY}{}-{}", name.to_string_lossy(), std::process::id()));
    let write = || {
        let mut file = File::create(&staged)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&staged, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&staged);
        Error::io("writing", path, e)
    })?;
    sync_folder(parent)
}

/// Deletes folders in the background: a folder's files take longer to unlink than a save to write. The hidden name is
/// given at once, so that a kill leaves no half of a folder under its own name.
#[derive(Debug, Default)]
pub(super) struct Deleter {
    running: Option<JoinHandle<Result<()>>>,
}

impl Deleter {
    /// Begins to delete folders, after those of the last call are gone.
    pub fn delete(&mut self, folders: &[PathBuf]) -> Result<()> {
        self.wait()?;
        let mut hidden = Vec::with_capacity(folders.len());
        for path in folders {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let to = path.with_file_name(format!("{TEMPORARY}deleted-{name}-{}", std::process::id()));
            fs::rename(path, &to).map_err(|e| Error::io("deleting", path, e))?;
            hidden.push(to);
        }
        if !hidden.is_empty() {
            self.running = Some(std::thread::spawn(move || {
                hidden.iter().try_for_each(|p| fs::remove_dir_all(p).map_err(|e| Error::io("deleting", p, e)))
            }));
        }
        Ok(())
    }

    /// Waits until everything is gone.
    pub fn wait(&mut self) -> Result<()> {
        // A panic in the thread would be ours: it only calls `remove_dir_all`.
        self.running.take().map_or(Ok(()), |running| running.join().unwrap_or(Ok(())))
    }
}

impl Drop for Deleter {
    fn drop(&mut self) {
        // What could not be deleted is tried again when the run is opened.
        let _ = self.wait();
    }
}

/// Size and CRC-32 of a file, read in blocks.
pub(super) fn checksum(path: &Path) -> Result<(u64, u32)> {
    let mut file = File::open(path).map_err(|e| Error::io("opening", path, e))?;
    let (mut hasher, mut bytes, mut block) = (crc32fast::Hasher::new(), 0, vec![0; 1 << 18]);
    loop {
        match file.read(&mut block).map_err(|e| Error::io("reading", path, e))? {
            0 => return Ok((bytes, hasher.finalize())),
            n => {
                hasher.update(&block[..n]);
                bytes += n as u64;
            }
        }
    }
}
