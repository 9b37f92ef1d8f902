//! The binary form of replay files: little-endian numbers in a fixed order, after a magic, a version and a kind.
//!
//! A file's length and crc32 are kept outside it (in the index), the index's own crc32 in its last four bytes. A file is
//! checked as a whole before anything in it is believed.

use super::error::{ReplayError, Result};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"MRLREPLY";
const VERSION: u32 = 2;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Segment = 1,
    Open = 2,
    Index = 3,
}

/// Maps system errors to ones that name the file.
pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ReplayError + '_ {
    move |source| ReplayError::Io { path: path.to_owned(), source }
}

/// Writes one file and sums it up.
pub(super) struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    crc: crc32fast::Hasher,
    bytes: u64,
    /// Numbers on their way to bytes.
    scratch: Vec<u8>,
}

impl Writer {
    pub fn create(path: PathBuf, kind: Kind) -> Result<Self> {
        // A file of this name may be a link that an older checkpoint shares: take the name, leave the bytes.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(&path)(error)),
            _ => {}
        }
        let file = File::create(&path).map_err(io(&path))?;
        let file = BufWriter::with_capacity(1 << 18, file);
        let mut writer = Writer { path, file, crc: crc32fast::Hasher::new(), bytes: 0, scratch: Vec::new() };
        writer.bytes(MAGIC)?;
        writer.u32(VERSION)?;
        writer.u32(kind as u32)?;
        Ok(writer)
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(io(&self.path))
    }

    pub fn u8(&mut self, x: u8) -> Result<()> {
        self.bytes(&[x])
    }

    pub fn u32(&mut self, x: u32) -> Result<()> {
        self.bytes(&x.to_le_bytes())
    }

    pub fn u64(&mut self, x: u64) -> Result<()> {
        self.bytes(&x.to_le_bytes())
    }

    fn words<const N: usize>(&mut self, words: impl Iterator<Item = [u8; N]>) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend(words.flatten());
        let written = self.bytes(&scratch);
        self.scratch = scratch;
        written
    }

    pub fn f32s(&mut self, x: &[f32]) -> Result<()> {
        self.words(x.iter().map(|x| x.to_le_bytes()))
    }

    pub fn i32s(&mut self, x: &[i32]) -> Result<()> {
        self.words(x.iter().map(|x| x.to_le_bytes()))
    }

    pub fn u16s(&mut self, x: &[u16]) -> Result<()> {
        self.words(x.iter().map(|x| x.to_le_bytes()))
    }

    pub fn u32s(&mut self, x: &[u32]) -> Result<()> {
        self.words(x.iter().map(|x| x.to_le_bytes()))
    }

    /// Hands the rest to the system; returns bytes and crc32. Who needs the file to survive a power cut syncs it: a
    /// checkpoint syncs all of its files together.
    pub fn finish(mut self) -> Result<(u64, u32)> {
        self.file.flush().map_err(io(&self.path))?;
        Ok((self.bytes, self.crc.finalize()))
    }

    /// As [`Self::finish`], with the crc32 of everything before as the file's last four bytes.
    pub fn finish_with_crc(mut self) -> Result<()> {
        let crc = self.crc.clone().finalize();
        self.u32(crc)?;
        self.finish().map(|_| ())
    }
}

/// Reads one file whose sum was checked.
pub(super) struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    left: u64,
}

impl Reader {
    /// Opens a file that must have `bytes` bytes with this crc32.
    pub fn open(path: PathBuf, kind: Kind, bytes: u64, crc: u32) -> Result<Self> {
        let found = std::fs::metadata(&path).map_err(io(&path))?.len();
        if found != bytes {
            return Err(ReplayError::Size { path, expected: bytes, found });
        }
        let found = checksum(&path, bytes)?;
        if found != crc {
            return Err(ReplayError::Checksum { path, expected: crc, found });
        }
        Self::start(path, kind, bytes)
    }

    /// Opens a file that ends with its own crc32.
    pub fn open_with_crc(path: PathBuf, kind: Kind) -> Result<Self> {
        let found = std::fs::metadata(&path).map_err(io(&path))?.len();
        if found < 20 {
            return Err(ReplayError::Size { path, expected: 20, found });
        }
        let bytes = found - 4;
        let mut file = File::open(&path).map_err(io(&path))?;
        let mut last = [0; 4];
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(bytes)).map_err(io(&path))?;
        file.read_exact(&mut last).map_err(io(&path))?;
        let (expected, found) = (u32::from_le_bytes(last), checksum(&path, bytes)?);
        if found != expected {
            return Err(ReplayError::Checksum { path, expected, found });
        }
        Self::start(path, kind, bytes)
    }

    fn start(path: PathBuf, kind: Kind, bytes: u64) -> Result<Self> {
        let file = BufReader::with_capacity(1 << 18, File::open(&path).map_err(io(&path))?);
        let mut reader = Reader { path, file, left: bytes };
        let mut magic = [0; 8];
        reader.bytes(&mut magic)?;
        if &magic != MAGIC {
            return Err(reader.content("magic", "MRLREPLY", String::from_utf8_lossy(&magic)));
        }
        let version = reader.u32()?;
        if version != VERSION {
            return Err(reader.content("version", VERSION, version));
        }
        let found = reader.u32()?;
        if found != kind as u32 {
            return Err(reader.content("kind", format!("{} ({kind:?})", kind as u32), found));
        }
        Ok(reader)
    }

    /// An error about something that was read.
    pub fn content(&self, field: &'static str, expected: impl ToString, found: impl ToString) -> ReplayError {
        let (expected, found) = (expected.to_string(), found.to_string());
        ReplayError::Content { path: self.path.clone(), field, expected, found }
    }

    pub fn bytes(&mut self, out: &mut [u8]) -> Result<()> {
        if out.len() as u64 > self.left {
            return Err(self.content("bytes left", out.len(), self.left));
        }
        self.left -= out.len() as u64;
        self.file.read_exact(out).map_err(io(&self.path))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        self.bytes(&mut out)?;
        Ok(out)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn f32s(&mut self, out: &mut [f32]) -> Result<()> {
        out.iter_mut().try_for_each(|x| self.array().map(|b| *x = f32::from_le_bytes(b)))
    }

    pub fn i32s(&mut self, out: &mut [i32]) -> Result<()> {
        out.iter_mut().try_for_each(|x| self.array().map(|b| *x = i32::from_le_bytes(b)))
    }

    pub fn u16s(&mut self, out: &mut [u16]) -> Result<()> {
        out.iter_mut().try_for_each(|x| self.array().map(|b| *x = u16::from_le_bytes(b)))
    }

    /// A count of items of at least `item_bytes` each; refused if the file is too short for them.
    pub fn count(&mut self, field: &'static str, item_bytes: u64) -> Result<u64> {
        let n = self.u64()?;
        if n > self.left / item_bytes.max(1) {
            return Err(self.content(field, format!("at most {}", self.left / item_bytes.max(1)), n));
        }
        Ok(n)
    }

    /// Nothing may be left.
    pub fn finish(self) -> Result<()> {
        if self.left == 0 { Ok(()) } else { Err(self.content("bytes at the end", 0, self.left)) }
    }
}

fn checksum(path: &Path, bytes: u64) -> Result<u32> {
    let (mut crc, mut buffer) = (crc32fast::Hasher::new(), vec![0; 1 << 18]);
    let mut file = File::open(path).map_err(io(path))?.take(bytes);
    loop {
        match file.read(&mut buffer).map_err(io(path))? {
            0 => return Ok(crc.finalize()),
            n => crc.update(&buffer[..n]),
        }
    }
}
