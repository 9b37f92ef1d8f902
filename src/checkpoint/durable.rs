//! Files that survive a kill: staged under a hidden name, synced once, renamed into place.
//! POSIX `rename` is atomic; it is durable after the folder that holds the name was synced.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::FileInfo;
use crate::error::{Error, Result};

/// Hidden names begin with this; such folders and files are never read and are removed when a run is opened.
pub(super) const TEMPORARY: &str = ".tmp-";

/// A folder under construction, removed on drop unless it was renamed into place.
pub(super) struct Staging {
    path: PathBuf,
    files: Vec<(PathBuf, File)>,
}

impl Staging {
    /// `parent/.tmp-<name>-<pid>`, empty.
    pub fn new(parent: &Path, name: &str) -> Result<Self> {
        let path = parent.join(format!("{TEMPORARY}{name}-{}", std::process::id()));
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
        for (path, file) in self.files.drain(..) {
            file.sync_all().map_err(|e| Error::io("syncing", &path, e))?;
        }
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

/// Deletes a folder so that a kill in the middle leaves no half of it under its own name.
pub(super) fn delete_folder(path: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::io("deleting", path, std::io::ErrorKind::InvalidInput.into()));
    };
    let staged = parent.join(format!("{TEMPORARY}deleted-{}-{}", name.to_string_lossy(), std::process::id()));
    fs::rename(path, &staged).map_err(|e| Error::io("deleting", path, e))?;
    fs::remove_dir_all(&staged).map_err(|e| Error::io("deleting", &staged, e))
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
