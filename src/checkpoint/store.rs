//! The checkpoints of one run: save, keep the newest K and the best, delete the rest after the new one is in place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::durable::{self, Deleter, Staging, TEMPORARY};
use super::state::{self, Sum};
use super::tensors;
use super::{CONFIG_FILE, FileInfo, MODEL_FILE, OPTIMIZER_FILE, ReplayStore, STATE_FILE, SaveReport, SaveRequest};
use crate::error::{Error, Result};

const FOLDER: &str = "checkpoints";
const BEST_FILE: &str = "best.json";
/// A checkpoint that is being replaced by one of the same step waits under this name.
const ASIDE: &str = ".old-";

#[derive(Serialize, Deserialize)]
struct Best {
    step: u64,
}

/// A folder `step-N`.
#[derive(Debug)]
pub struct Listed {
    /// Its N.
    pub step: u64,
    /// The folder.
    pub path: PathBuf,
    /// Why it is not complete; `None` when it is.
    pub problem: Option<Error>,
}

/// The checkpoints of one run, for its one writer.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    best: Option<u64>,
    /// The newest complete checkpoint and its files: where segments are linked from.
    last: Option<(PathBuf, BTreeMap<String, Sum>)>,
    publishing: Option<Publishing>,
    deleter: Deleter,
}

/// A checkpoint whose files are written, and that a thread syncs and puts in its place.
#[derive(Debug)]
struct Publishing {
    place: PathBuf,
    sums: BTreeMap<String, Sum>,
    best: Option<u64>,
    thread: JoinHandle<Result<()>>,
}

impl Checkpoints {
    /// Opens `run_dir/checkpoints` for writing, creating it, and removes what a killed process left half done. Opening
    /// comes before [`Checkpoints::newest`] in a resume: it also puts back a checkpoint that was about to be replaced.
    ///
    /// # Errors
    /// `Config` for `keep` 0, `Io` where the folder cannot be created or cleaned, `Checkpoint` for a damaged best.json.
    pub fn open(run_dir: &Path, keep: usize) -> Result<Self> {
        if keep == 0 {
            return Err(Error::config("checkpoint.keep", "is 0, expected at least 1"));
        }
        let folder = run_dir.join(FOLDER);
        fs::create_dir_all(&folder).map_err(|e| Error::io("creating", &folder, e))?;
        clean(&folder)?;
        let last = match Self::newest(run_dir)? {
            // A checkpoint that this version cannot read lends no segments.
            Some(path) => state::read(&path).ok().map(|s| (path, s.files)),
            None => None,
        };
        Ok(Checkpoints { best: read_best(&folder)?, folder, keep, last, publishing: None, deleter: Deleter::default() })
    }

    /// Writes `step-N` so that it is complete or absent, then deletes what is no longer kept. A checkpoint of the same
    /// step is replaced.
    ///
    /// # Errors
    /// `Shape` where a buffer is not `[layout.len()]`; `Io` with the path where the system refuses a write, in which
    /// case the earlier checkpoints are untouched and nothing temporary is left; errors of the replay. A folder that
    /// could not be deleted is reported too, after the new one is in place.
    pub fn save(&mut self, mut request: SaveRequest<'_>) -> Result<SaveReport> {
        let start = Instant::now();
        self.settle()?;
        let (place, aside) = self.places(&request)?;
        let mut replay = request.replay.take();
        let done = self.stage_all(&request, replay.as_deref_mut()).and_then(|(staging, sums, bytes)| {
            staging.publish(&place, &aside)?;
            Ok((sums, bytes))
        });
        let (sums, bytes) = done.inspect_err(|_| {
            if let Some(replay) = replay {
                replay.save_failed();
            }
        })?;
        self.last = Some((place.clone(), sums));
        self.prune()?;
        Ok(SaveReport { path: place, bytes, seconds: start.elapsed().as_secs_f64() })
    }

    /// As [`Checkpoints::save`], but returns when the files are handed to the system: a thread syncs them and puts the
    /// checkpoint in its place, marked as the best one if it is `best`. Until then the one before it is the newest.
    ///
    /// # Errors
    /// As [`Checkpoints::save`]. Those of the thread come from the next call of [`Checkpoints::poll`],
    /// [`Checkpoints::finish`] or a save; the replay then counts on files that are gone: end the run.
    pub fn save_behind(&mut self, mut request: SaveRequest<'_>, best: bool) -> Result<()> {
        self.settle()?;
        let (place, aside) = self.places(&request)?;
        let mut replay = request.replay.take();
        let (staging, sums, _) = self.stage_all(&request, replay.as_deref_mut()).inspect_err(|_| {
            if let Some(replay) = replay {
                replay.save_failed();
            }
        })?;
        let best = best.then_some(request.step);
        let (to, best_file) = (place.clone(), self.folder.join(BEST_FILE));
        let publish = move || {
            staging.publish(&to, &aside)?;
            best.map_or(Ok(()), |step| write_best(&best_file, step))
        };
        let thread = std::thread::Builder::new().name("mamba-rl-save".into()).spawn(publish);
        let thread = thread.map_err(|e| Error::io("starting a thread to sync", &place, e))?;
        self.publishing = Some(Publishing { place, sums, best, thread });
        Ok(())
    }

    /// Ends what [`Checkpoints::save_behind`] began, if its thread is done; does not wait.
    ///
    /// # Errors
    /// Those of the thread, and of deleting what is no longer kept.
    pub fn poll(&mut self) -> Result<()> {
        if self.publishing.as_ref().is_some_and(|p| p.thread.is_finished()) { self.settle() } else { Ok(()) }
    }

    fn settle(&mut self) -> Result<()> {
        let Some(Publishing { place, sums, best, thread }) = self.publishing.take() else { return Ok(()) };
        let ended = || Err(Error::io("syncing", &place, std::io::Error::other("the syncing thread ended")));
        thread.join().unwrap_or_else(|_| ended())?;
        self.last = Some((place, sums));
        self.best = best.or(self.best);
        self.prune()
    }

    /// Where the checkpoint goes, and where one of the same step waits meanwhile.
    fn places(&self, request: &SaveRequest<'_>) -> Result<(PathBuf, PathBuf)> {
        check_lengths(request)?;
        let name = step_name(request.step);
        let place = self.folder.join(&name);
        if place.exists() && !place.is_dir() {
            return Err(Error::checkpoint(place, "is a file, expected a folder or nothing: move it away"));
        }
        Ok((place, self.folder.join(format!("{ASIDE}{name}"))))
    }

    /// Everything written under a hidden name; removed again where that fails.
    fn stage_all(
        &self,
        request: &SaveRequest<'_>,
        replay: Option<&mut (dyn ReplayStore + '_)>,
    ) -> Result<(Staging, BTreeMap<String, Sum>, u64)> {
        let mut staging = Staging::new(&self.folder, &step_name(request.step))?;
        let (files, bytes) = self.stage(&mut staging, request, replay)?;
        let sums = files.into_iter().map(|f| (f.file, Sum { bytes: f.bytes, crc32: f.crc32 })).collect();
        Ok((staging, sums, bytes))
    }

    /// Writes all files; returns those that `state.json` lists, and the bytes written.
    fn stage(
        &self,
        staging: &mut Staging,
        r: &SaveRequest<'_>,
        replay: Option<&mut (dyn ReplayStore + '_)>,
    ) -> Result<(Vec<FileInfo>, u64)> {
        let dir = staging.path().to_path_buf();
        let model = tensors::encode(&dir.join(MODEL_FILE), r.layout, &[("", r.params)])?;
        let mut files = vec![staging.write(MODEL_FILE, &model)?];
        let mut config = serde_json::to_string_pretty(r.config)
            .map_err(|e| Error::checkpoint(dir.join(CONFIG_FILE), format!("cannot be written as JSON: {e}")))?;
        config.push('\n');
        files.push(staging.write(CONFIG_FILE, config.as_bytes())?);
        if let Some(o) = r.optimizer {
            let online = o.online.map(|online| (super::ONLINE, online));
            let sets: Vec<_> = [("target.", o.target), ("m.", o.m), ("v.", o.v)].into_iter().chain(online).collect();
            let bytes = tensors::encode(&dir.join(OPTIMIZER_FILE), r.layout, &sets)?;
            files.push(staging.write(OPTIMIZER_FILE, &bytes)?);
        }
        for (name, contents) in r.blobs {
            files.push(staging.write(name, contents)?);
        }
        let mut written: u64 = files.iter().map(|f| f.bytes).sum();
        if let Some(replay) = replay {
            written += self.stage_replay(staging, replay, &mut files)?;
        }
        let text = state::encode(&dir.join(STATE_FILE), r.step, &files, r.state)?;
        written += staging.write(STATE_FILE, &text)?.bytes;
        Ok((files, written))
    }

    /// Lets the replay write what is new and links the rest. Returns the bytes written.
    fn stage_replay(
        &self,
        staging: &mut Staging,
        replay: &mut (dyn ReplayStore + '_),
        files: &mut Vec<FileInfo>,
    ) -> Result<u64> {
        let dir = staging.path().to_path_buf();
        let needed = replay.save_segments(&dir)?;
        let mut written = 0;
        for info in needed {
            let path = dir.join(&info.file);
            state::check_name(&path, &info.file)?;
            if files.iter().any(|f| f.file == info.file) || info.file == STATE_FILE {
                return Err(Error::checkpoint(path, "is a name used twice in this checkpoint"));
            }
            match fs::metadata(&path) {
                Ok(m) if m.len() == info.bytes => {
                    staging.adopt(&info.file)?;
                    written += info.bytes;
                }
                Ok(m) => {
                    let problem = format!("has {} bytes, the replay says {}", m.len(), info.bytes);
                    return Err(Error::checkpoint(path, problem));
                }
                Err(_) => {
                    let source = self.earlier_copy(&info)?;
                    if fs::hard_link(&source, &path).is_err() {
                        // A file system without links: pay for a copy.
                        written += fs::copy(&source, &path).map_err(|e| Error::io("copying to", &path, e))?;
                        staging.adopt(&info.file)?;
                    }
                }
            }
            files.push(info);
        }
        // What the replay wrote beside its segments is part of the checkpoint too.
        for name in names_in(&dir)? {
            if !files.iter().any(|f| f.file == name) {
                staging.adopt(&name)?;
                let (bytes, crc32) = durable::checksum(&dir.join(&name))?;
                written += bytes;
                files.push(FileInfo { file: name, bytes, crc32 });
            }
        }
        Ok(written)
    }

    /// Where an earlier checkpoint keeps this very file.
    fn earlier_copy(&self, info: &FileInfo) -> Result<PathBuf> {
        let wanted = Sum { bytes: info.bytes, crc32: info.crc32 };
        let holds = |dir: &Path, sums: &BTreeMap<String, Sum>| {
            let path = dir.join(&info.file);
            (sums.get(&info.file) == Some(&wanted) && path.is_file()).then_some(path)
        };
        if let Some(path) = self.last.as_ref().and_then(|(dir, sums)| holds(dir, sums)) {
            return Ok(path);
        }
        for found in list_in(&self.folder)?.iter().filter(|l| l.problem.is_none()) {
            if let Some(path) = state::read(&found.path).ok().and_then(|s| holds(&found.path, &s.files)) {
                return Ok(path);
            }
        }
        let problem = format!(
            "no checkpoint here holds the replay file `{}` of {} bytes with checksum {:08x}, and the replay did not write it",
            info.file, info.bytes, info.crc32
        );
        Err(Error::checkpoint(&self.folder, problem))
    }

    /// Keeps the checkpoint of this step besides the newest K, until another is marked.
    ///
    /// # Errors
    /// `Checkpoint` where there is no complete checkpoint of this step; `Io`.
    pub fn mark_best(&mut self, step: u64) -> Result<()> {
        self.settle()?;
        state::check_complete(&self.folder.join(step_name(step)))?;
        write_best(&self.folder.join(BEST_FILE), step)?;
        self.best = Some(step);
        self.prune()
    }

    /// Waits until everything is in its place and the folders that are no longer kept are gone; both happen in the
    /// background. Dropping waits too.
    ///
    /// # Errors
    /// `Io` with what could not be synced, renamed or deleted.
    pub fn finish(&mut self) -> Result<()> {
        self.settle()?;
        self.deleter.wait()
    }

    fn prune(&mut self) -> Result<()> {
        let last = self.last.as_ref().map(|(path, _)| path);
        let complete = list_in(&self.folder)?.into_iter().filter(|l| l.problem.is_none());
        let old = complete.skip(self.keep).filter(|l| Some(l.step) != self.best && Some(&l.path) != last);
        let old: Vec<PathBuf> = old.map(|l| l.path).collect();
        self.deleter.delete(&old)
    }

    /// The newest complete checkpoint of a run; `None` where there is none.
    ///
    /// # Errors
    /// `Io` where the folder cannot be read.
    pub fn newest(run_dir: &Path) -> Result<Option<PathBuf>> {
        Ok(Self::list(run_dir)?.into_iter().find(|l| l.problem.is_none()).map(|l| l.path))
    }

    /// The checkpoint marked as best; `None` where none is.
    ///
    /// # Errors
    /// `Checkpoint` for a damaged best.json; `Io`.
    pub fn best(run_dir: &Path) -> Result<Option<PathBuf>> {
        let folder = run_dir.join(FOLDER);
        let place = read_best(&folder)?.map(|step| folder.join(step_name(step)));
        Ok(place.filter(|p| state::check_complete(p).is_ok()))
    }

    /// All folders `step-N` of a run, newest first, incomplete ones too.
    ///
    /// # Errors
    /// `Io` where the folder cannot be read.
    pub fn list(run_dir: &Path) -> Result<Vec<Listed>> {
        list_in(&run_dir.join(FOLDER))
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        // Who wants to know of errors calls `finish`.
        let _ = self.settle();
    }
}

fn write_best(path: &Path, step: u64) -> Result<()> {
    durable::replace_file(path, format!("{{\"step\":{step}}}\n").as_bytes())
}

fn step_name(step: u64) -> String {
    format!("step-{step}")
}

/// The N of `step-N`, written the one way that we write it.
fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-").and_then(|n| n.parse().ok()).filter(|&step| step_name(step) == name)
}

fn check_lengths(r: &SaveRequest<'_>) -> Result<()> {
    let o = r.optimizer;
    let buffers = [
        ("params", Some(r.params)),
        ("target", o.map(|o| o.target)),
        ("online", o.and_then(|o| o.online)),
        ("m", o.map(|o| o.m)),
        ("v", o.map(|o| o.v)),
    ];
    let want = r.layout.len();
    for (arg, buffer) in buffers {
        if let Some(got) = buffer.map(<[f32]>::len).filter(|&got| got != want) {
            return Err(Error::Shape { op: "checkpoint", arg, shape: "[parameters]".into(), want, got });
        }
    }
    Ok(())
}

fn read_best(folder: &Path) -> Result<Option<u64>> {
    let path = folder.join(BEST_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("reading", path, e)),
    };
    let best: Best = serde_json::from_slice(&text)
        .map_err(|e| Error::checkpoint(&path, format!("JSON: {e}; delete it to forget which one was best")))?;
    Ok(Some(best.step))
}

/// Names in a folder; none where the folder is missing.
fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io("reading", folder, e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("reading", folder, e))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

fn list_in(folder: &Path) -> Result<Vec<Listed>> {
    let mut found = Vec::new();
    for name in names_in(folder)? {
        let path = folder.join(&name);
        if let (Some(step), true) = (step_of(&name), path.is_dir()) {
            found.push(Listed { step, problem: state::check_complete(&path).err(), path });
        }
    }
    found.sort_by_key(|l| std::cmp::Reverse(l.step));
    Ok(found)
}

/// Removes temporaries, and ends a replacement that was cut between its two renames.
fn clean(folder: &Path) -> Result<()> {
    for name in names_in(folder)? {
        let path = folder.join(&name);
        let gone = |r: std::io::Result<()>| r.map_err(|e| Error::io("deleting", &path, e));
        if let Some(step) = name.strip_prefix(ASIDE).filter(|n| step_of(n).is_some()) {
            let place = folder.join(step);
            if place.exists() {
                gone(fs::remove_dir_all(&path))?;
            } else {
                fs::rename(&path, &place).map_err(|e| Error::io("restoring", &place, e))?;
            }
        } else if name.starts_with(TEMPORARY) {
            gone(if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Group, Init, ParamLayout, ParamSpec};

    fn request<'a>(step: u64, layout: &'a ParamLayout, config: &'a serde_json::Value) -> SaveRequest<'a> {
        let (params, blobs, state) = (&[0.5; 2][..], &[][..], config);
        SaveRequest { step, layout, params, optimizer: None, config, state, blobs, replay: None }
    }

    #[test]
    fn a_save_behind_is_in_its_place_after_finish_and_tells_its_errors() {
        let run = tempfile::tempdir().unwrap();
        let layout = ParamLayout::new(vec![ParamSpec::new("w", &[2], Group::HeadsDecayed, Init::Zeros)]).unwrap();
        let config = serde_json::json!({});
        let mut store = Checkpoints::open(run.path(), 2).unwrap();
        for step in 1..=5 {
            store.save_behind(request(step, &layout, &config), step == 2).unwrap();
        }
        store.finish().unwrap();
        let steps = || Checkpoints::list(run.path()).unwrap().into_iter().map(|l| l.step).collect::<Vec<_>>();
        assert_eq!(steps(), [5, 4, 2]);
        assert_eq!(Checkpoints::best(run.path()).unwrap(), Some(run.path().join("checkpoints/step-2")));
        // The one that is to be replaced cannot be moved aside.
        std::fs::create_dir_all(run.path().join("checkpoints/.old-step-5/in-the-way")).unwrap();
        store.save_behind(request(5, &layout, &config), false).unwrap();
        let problem = store.finish().unwrap_err().to_string();
        assert!(problem.contains("step-5"), "{problem}");
        assert_eq!(steps(), [5, 4, 2]);
        let left = names_in(&run.path().join("checkpoints")).unwrap();
        assert!(!left.iter().any(|n| n.starts_with(TEMPORARY)), "{left:?}");
    }
}
