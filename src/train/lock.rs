//! One process per run folder: an exclusive lock on its empty file `lock`, which the system gives up when the process
//! ends, however it ends. The file stays.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::error::{Error, Result};

/// Name of the file.
const LOCK_FILE: &str = "lock";

/// The right to write into a run folder, held until dropped.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl RunLock {
    /// Takes the lock of an existing folder. A file system without locks grants it to all.
    ///
    /// # Errors
    /// `Usage` naming the folder where another process holds the lock; `Io` where the file cannot be made.
    pub fn take(run_dir: &Path) -> Result<Self> {
        let path = run_dir.join(LOCK_FILE);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|e| Error::io("opening", &path, e))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(Error::Usage(format!(
                "another process trains in {}; wait until it ends, stop it, or choose another --run-dir",
                run_dir.display()
            ))),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(RunLock { _file: file }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = RunLock::take(dir.path()).unwrap();
        let second = RunLock::take(dir.path()).unwrap_err();
        assert!(second.is_usage() && second.to_string().contains(&dir.path().display().to_string()), "{second}");
        drop(first);
        RunLock::take(dir.path()).unwrap();
    }
}
