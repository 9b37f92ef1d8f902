//! A file that grows by whole records: they gather in memory and reach the file together, so that a failed or
//! interrupted write never leaves half a record behind another one.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// Above this many waiting bytes the file is written without waiting for the clock.
const SPILL: usize = 64 * 1024;

/// An open file, its flushed length and the records that wait.
#[derive(Debug)]
pub(super) struct AppendFile {
    file: File,
    path: PathBuf,
    flushed: u64,
    pending: Vec<u8>,
    /// Where each waiting record ends in `pending`.
    ends: Vec<usize>,
}

impl AppendFile {
    /// Goes on at byte `at`, which must be the end of the file.
    pub fn new(mut file: File, path: PathBuf, at: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(at))?;
        Ok(Self { file, path, flushed: at, pending: Vec::new(), ends: Vec::new() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written and waiting.
    pub fn len(&self) -> u64 {
        self.flushed + self.pending.len() as u64
    }

    /// Bytes that the system has.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Appends one whole record, given by the closure that writes it.
    pub fn record(&mut self, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
        write(&mut self.pending)?;
        self.ends.push(self.pending.len());
        if self.pending.len() > SPILL { self.flush() } else { Ok(()) }
    }

    /// Replaces everything from byte `start` by a record that is at least as long, so nothing old shows behind it.
    /// What had been flushed before is flushed again at once: it must not become younger.
    pub fn replace(&mut self, start: u64, record: &[u8]) -> io::Result<()> {
        let waiting = start.checked_sub(self.flushed).map(|n| n as usize);
        let keep = waiting.unwrap_or(0);
        self.pending.truncate(keep);
        self.ends.retain(|end| *end <= keep);
        self.pending.extend_from_slice(record);
        self.ends.push(self.pending.len());
        if waiting.is_some() {
            return Ok(());
        }
        self.file.seek(SeekFrom::Start(start))?;
        self.flushed = start;
        self.flush()
    }

    /// Hands the waiting records to the system. After an error the file ends with the last whole record.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.still_there()?;
        let mut done = 0;
        while done < self.pending.len() {
            match self.file.write(&self.pending[done..]) {
                Ok(0) => return Err(self.cut(done, io::ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cut(done, error)),
            }
        }
        self.flushed += done as u64;
        self.pending.clear();
        self.ends.clear();
        Ok(())
    }

    /// After a failed write that took `done` bytes: ends the file with the last whole record among them.
    fn cut(&mut self, done: usize, error: io::Error) -> io::Error {
        self.flushed += self.ends.iter().rev().find(|end| **end <= done).copied().unwrap_or(0) as u64;
        self.pending.clear();
        self.ends.clear();
        // The first error is the one to report; a file that cannot even shrink stays torn at its end.
        let _ = self.file.set_len(self.flushed);
        error
    }

    /// Flushes and waits for the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_data()
    }

    /// An open file whose name is gone takes bytes without complaint and loses them when it is closed.
    #[cfg(unix)]
    fn still_there(&self) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed while it was being written"));
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn still_there(&self) -> io::Result<()> {
        Ok(())
    }
}
