//! A replay on disk: segments that are written once, and two small files that are written at each save.
//!
//! `replay-A-B.seg` holds the finished episodes number A to B (counted in the order they finished) with the recurrent
//! states of their sequences; it never changes, so later checkpoints link to it. `replay-open.bin` holds the running
//! episodes. `replay-index.bin` holds sequences, priorities, generations, counters and the list of the others with
//! their checksums. Loading gives the same replay: the same sequences under the same handles, the same draws.

use super::episodes::{CARRIED, Episode, FIRST, Lane, TRANSITION, Transition};
use super::error::Result;
use super::format::{Kind, Reader, Writer};
use super::rows::{ActionRows, ActionSlice, ObsRows, ObsSlice};
use super::states::NO_STATE;
use super::table::{Entry, Handle};
use super::{ClosedSpan, InitialState, Layout, ReplayConfig, ReplaySpec, SequenceReplay, StateDtype};
use std::collections::HashMap;
use std::path::Path;

/// File of the running episodes.
pub const OPEN_FILE: &str = "replay-open.bin";
/// File of sequences, priorities and counters.
pub const INDEX_FILE: &str = "replay-index.bin";

/// One segment file that a checkpoint needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// File name, without a folder.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// crc32 of its bytes.
    pub crc32: u32,
}

/// A segment and the episodes in it, first and last included.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    first: u64,
    last: u64,
    info: SegmentInfo,
}

/// States by lane and window start.
type States = HashMap<(u32, u64), u32>;

impl SequenceReplay {
    /// Writes what is new since the last save to `dir`: one segment with the episodes finished since, if there are any,
    /// and the two small files. Returns all segments that a later [`Self::load`] needs; the older ones must be linked
    /// or copied into `dir` by the caller.
    ///
    /// # Errors
    /// The file that cannot be written. The replay then counts nothing as saved.
    pub fn save_segments(&mut self, dir: &Path) -> Result<Vec<SegmentInfo>> {
        let oldest = self.n_finished - self.finished.len() as u64;
        let mut segments = self.segments.clone();
        segments.retain(|s| s.last >= oldest);
        let first = segments.last().map_or(oldest, |s| s.last + 1);
        if first < self.n_finished {
            segments.push(self.write_segment(dir, first)?);
        }
        let open = self.write_open(dir)?;
        self.write_index(dir, &segments, open)?;
        self.segments = segments;
        Ok(self.segment_list())
    }

    /// Segments of the last save.
    pub fn segment_list(&self) -> Vec<SegmentInfo> {
        self.segments.iter().map(|s| s.info.clone()).collect()
    }

    /// Takes only the segments named in `keep` as saved; the next save writes the rest again. For a checkpoint that
    /// failed after [`Self::save_segments`] (`keep` = the list of the checkpoint before it), or for one without links
    /// (`keep` empty).
    pub fn keep_segments(&mut self, keep: &[SegmentInfo]) {
        let kept = self.segments.iter().take_while(|s| keep.contains(&s.info)).count();
        self.segments.truncate(kept);
    }

    fn write_segment(&self, dir: &Path, first: u64) -> Result<Segment> {
        let last = self.n_finished - 1;
        let file = format!("replay-{first:08}-{last:08}.seg");
        let mut out = Writer::create(dir.join(&file), Kind::Segment)?;
        out.u64(first)?;
        out.u64(last)?;
        let oldest = self.n_finished - self.finished.len() as u64;
        let mut seen = vec![0; self.lanes.len()];
        for (number, &lane) in (oldest..).zip(&self.finished) {
            let episode = &self.lanes[lane as usize].episodes[seen[lane as usize]];
            seen[lane as usize] += 1;
            if number >= first {
                self.write_episode(&mut out, lane, episode)?;
            }
        }
        let (bytes, crc32) = out.finish()?;
        Ok(Segment { first, last, info: SegmentInfo { file, bytes, crc32 } })
    }

    fn write_open(&self, dir: &Path) -> Result<(u64, u32)> {
        let mut out = Writer::create(dir.join(OPEN_FILE), Kind::Open)?;
        for (number, lane) in (0u32..).zip(&self.lanes) {
            out.u8(u8::from(lane.running))?;
            if let Some(episode) = lane.current() {
                self.write_episode(&mut out, number, episode)?;
            }
            out.u64(lane.pending.len() as u64)?;
            for &(slot, state) in &lane.pending {
                out.u64(slot)?;
                self.states.write(state, &mut out)?;
            }
        }
        out.finish()
    }

    /// One episode and the states of the sequences that end in it.
    fn write_episode(&self, out: &mut Writer, lane: u32, episode: &Episode) -> Result<()> {
        out.u32(lane)?;
        for x in [episode.id, episode.base, episode.push_base, episode.dropped, episode.slots] {
            out.u64(x)?;
        }
        out.u8(u8::from(episode.carried) | u8::from(episode.initial != NO_STATE) << 1)?;
        if episode.initial != NO_STATE {
            self.states.write(episode.initial, out)?;
        }
        for slot in episode.front()..episode.end() {
            let place = episode.place(&self.store, slot);
            let step = self.store.transition(place);
            out.u8(step.flags)?;
            match self.store.obs(place) {
                ObsSlice::U8(obs) => out.bytes(obs)?,
                ObsSlice::I32(obs) => out.i32s(obs)?,
                ObsSlice::F32(obs) => out.f32s(obs)?,
            }
            out.bytes(self.store.legal(place))?;
            if step.flags & TRANSITION != 0 {
                out.f32s(&[step.reward])?;
                match step.action {
                    ActionSlice::Discrete(action) => out.i32s(action)?,
                    ActionSlice::Continuous(action) => out.f32s(action)?,
                }
            }
        }
        let of = &self.lanes[lane as usize];
        let begin = of.sequences.partition_point(|&i| self.table.get(i).is_some_and(|e| e.last() < episode.base));
        let ends_here = |e: &&Entry| e.last() < episode.end();
        let entries = of.sequences.range(begin..).filter_map(|&i| self.table.get(i)).take_while(ends_here);
        let with_state: Vec<_> = entries.filter(|e| e.state != NO_STATE).collect();
        out.u64(with_state.len() as u64)?;
        for entry in with_state {
            out.u64(entry.first)?;
            self.states.write(entry.state, out)?;
        }
        Ok(())
    }

    fn write_index(&self, dir: &Path, segments: &[Segment], open: (u64, u32)) -> Result<()> {
        let mut out = Writer::create(dir.join(INDEX_FILE), Kind::Index)?;
        for (_, value) in identity(&self.spec, &self.config) {
            out.u64(value)?;
        }
        for x in [self.n_finished, self.finished.len() as u64, self.n_episodes, self.table.stale, self.table.refused] {
            out.u64(x)?;
        }
        out.f32s(&[self.table.largest.unwrap_or(-1.0)])?;
        out.u64(open.0)?;
        out.u32(open.1)?;
        out.u64(segments.len() as u64)?;
        for segment in segments {
            out.u64(segment.first)?;
            out.u64(segment.last)?;
            out.u64(segment.info.bytes)?;
            out.u32(segment.info.crc32)?;
        }
        out.u64(self.table.generations.len() as u64)?;
        out.u32s(&self.table.generations)?;
        out.u64(self.table.free.len() as u64)?;
        out.u32s(&self.table.free)?;
        for lane in &self.lanes {
            for x in [lane.origin, lane.cut, lane.next_slot, lane.pushes, lane.sequences.len() as u64] {
                out.u64(x)?;
            }
            for (index, entry) in lane.sequences.iter().filter_map(|&i| Some((i, self.table.get(i)?))) {
                out.u32s(&[index, entry.burn_in, entry.span])?;
                out.u64(entry.first)?;
                out.u8(u8::from(entry.has_prev) | u8::from(entry.state != NO_STATE) << 1)?;
                out.f32s(&[entry.priority])?;
            }
        }
        out.u64(self.closed.len() as u64)?;
        for span in &self.closed {
            out.u32s(&[span.handle.index, span.handle.generation, u32::from(span.ends_episode)])?;
            for x in [span.lane as u64, span.episode, span.start as u64, span.lane_step, span.len as u64] {
                out.u64(x)?;
            }
        }
        out.finish_with_crc()
    }

    /// The replay that [`Self::save_segments`] wrote to `dir`, with all its segments there.
    ///
    /// # Errors
    /// A bad setting, or the file that is missing, cut short, damaged or of another replay.
    pub fn load(spec: ReplaySpec, config: ReplayConfig, dir: &Path) -> Result<Self> {
        let mut replay = SequenceReplay::new(spec, config)?;
        let mut index = Reader::open_with_crc(dir.join(INDEX_FILE), Kind::Index)?;
        for (field, expected) in identity(&replay.spec, &replay.config) {
            let found = index.u64()?;
            if found != expected {
                return Err(index.content(field, expected, found));
            }
        }
        replay.n_finished = index.u64()?;
        let n_live = index.u64()?;
        if n_live > replay.n_finished {
            return Err(index.content("finished episodes", format!("at most {}", replay.n_finished), n_live));
        }
        replay.n_episodes = index.u64()?;
        (replay.table.stale, replay.table.refused) = (index.u64()?, index.u64()?);
        let mut largest = [0.0];
        index.f32s(&mut largest)?;
        replay.table.largest = Some(largest[0]).filter(|&l| l >= 0.0);
        let open = (index.u64()?, index.u32()?);
        for _ in 0..index.count("segments", 28)? {
            let (first, last) = (index.u64()?, index.u64()?);
            let file = format!("replay-{first:08}-{last:08}.seg");
            let info = SegmentInfo { file, bytes: index.u64()?, crc32: index.u32()? };
            replay.segments.push(Segment { first, last, info });
        }
        let entries = replay.read_table(&mut index)?;
        let mut states = entries.iter().filter(|(_, e)| e.state != NO_STATE).map(key).collect::<States>();
        replay.read_segments(dir, n_live, &mut states)?;
        let open_file = Reader::open(dir.join(OPEN_FILE), Kind::Open, open.0, open.1)?;
        replay.read_open(open_file, &mut states)?;
        if let Some(lane) = replay.lanes.iter().position(|lane| !replay.lane_makes_sense(lane)) {
            return Err(index.content("lane", "slots that fit its episodes", lane));
        }
        replay.steps = replay.lanes.iter().flat_map(|l| &l.episodes).map(Episode::stored_steps).sum();
        for (row, mut entry) in entries {
            let lane = &replay.lanes[entry.lane as usize];
            let there = lane.episode_at(entry.needs()).is_some() && lane.episode_at(entry.last()).is_some();
            if entry.state != NO_STATE {
                entry.state = states.get(&(entry.lane, entry.first)).copied().unwrap_or(NO_STATE);
            }
            let found = entry.state != NO_STATE;
            if !there || found != states.contains_key(&(entry.lane, entry.first)) {
                return Err(index.content("sequence", "its steps and state in the segments", row));
            }
            replay.table.put(row, entry);
        }
        replay.read_closed(&mut index)?;
        index.finish()?;
        Ok(replay)
    }

    /// The counters of a lane fit its episodes: what pushing to it relies on.
    fn lane_makes_sense(&self, lane: &Lane) -> bool {
        let ordered = lane.episodes.iter().is_sorted_by(|a, b| a.end() <= b.base);
        let within = lane.episodes.back().is_none_or(|e| e.end() <= lane.next_slot);
        let cuts = lane.origin <= lane.cut
            && lane.origin <= lane.next_slot
            && lane.cut <= lane.next_slot.saturating_add(self.config.period as u64);
        let current = lane.current().is_none_or(|e| {
            e.end() == lane.next_slot && (self.config.seams || e.base == lane.origin) && e.slots > e.dropped
        });
        ordered && within && cuts && current
    }

    fn read_table(&mut self, index: &mut Reader) -> Result<Vec<(u32, Entry)>> {
        let generations = read_u32s(index, "generations")?;
        let free = read_u32s(index, "free rows")?;
        let n = generations.len() as u32;
        let mut taken = vec![false; n as usize];
        let mut take = |row: u32| taken.get_mut(row as usize).is_some_and(|t| !std::mem::replace(t, true));
        if let Some(&row) = free.iter().find(|&&row| !take(row)) {
            return Err(index.content("free row", format!("a free one below {n}"), row));
        }
        let mut entries = Vec::new();
        for lane in 0..self.lanes.len() {
            let of = &mut self.lanes[lane];
            for x in [&mut of.origin, &mut of.cut, &mut of.next_slot, &mut of.pushes] {
                *x = index.u64()?;
            }
            for _ in 0..index.count("sequences", 25)? {
                let (row, burn_in, span) = (index.u32()?, index.u32()?, index.u32()?);
                let (first, bits) = (index.u64()?, index.u8()?);
                let mut priority = [0.0];
                index.f32s(&mut priority)?;
                let bad = !take(row) || !priority[0].is_finite() || priority[0] <= 0.0 || (bits & 1 == 1 && first == 0);
                if bad || first >= of.next_slot {
                    return Err(index.content("sequence row", format!("a valid one below {n}"), row));
                }
                // Any number but NO_STATE says for now that there is a state to find.
                let state = if bits & 2 == 0 { NO_STATE } else { 0 };
                let entry = Entry {
                    lane: lane as u32,
                    first,
                    burn_in,
                    span,
                    has_prev: bits & 1 == 1,
                    state,
                    priority: priority[0],
                };
                of.sequences.push_back(row);
                entries.push((row, entry));
            }
        }
        if entries.len() + free.len() != n as usize {
            return Err(index.content("table rows", n, entries.len() + free.len()));
        }
        self.table.restore_rows(generations, free);
        Ok(entries)
    }

    fn read_segments(&mut self, dir: &Path, n_live: u64, states: &mut States) -> Result<()> {
        let oldest = self.n_finished - n_live;
        let mut expected = oldest;
        for segment in self.segments.clone() {
            let info = &segment.info;
            let mut file = Reader::open(dir.join(&info.file), Kind::Segment, info.bytes, info.crc32)?;
            for (field, want) in [("first episode", segment.first), ("last episode", segment.last)] {
                let found = file.u64()?;
                if found != want {
                    return Err(file.content(field, want, found));
                }
            }
            if segment.first > expected || segment.last >= self.n_finished {
                return Err(file.content("first episode", format!("at most {expected}"), segment.first));
            }
            for number in segment.first..=segment.last {
                let (lane, episode) = self.read_episode(&mut file, states)?;
                if number < oldest {
                    episode.release(&mut self.store, &mut self.states);
                } else {
                    self.lanes[lane as usize].episodes.push_back(episode);
                    self.finished.push_back(lane);
                }
            }
            file.finish()?;
            expected = segment.last + 1;
        }
        Ok(())
    }

    fn read_open(&mut self, mut file: Reader, states: &mut States) -> Result<()> {
        for lane in 0..self.lanes.len() {
            if file.u8()? != 0 {
                let (found, episode) = self.read_episode(&mut file, states)?;
                if found as usize != lane {
                    return Err(file.content("lane", lane, found));
                }
                self.lanes[lane].episodes.push_back(episode);
                self.lanes[lane].running = true;
            }
            for _ in 0..file.count("pending states", 8)? {
                let slot = file.u64()?;
                let state = self.states.read_from(&mut file)?;
                self.lanes[lane].pending.push_back((slot, state));
            }
        }
        file.finish()
    }

    fn read_episode(&mut self, file: &mut Reader, states: &mut States) -> Result<(u32, Episode)> {
        let lane = file.u32()?;
        if lane as usize >= self.lanes.len() {
            return Err(file.content("lane", format!("below {}", self.lanes.len()), lane));
        }
        let [id, base, push_base, dropped, slots] = [file.u64()?, file.u64()?, file.u64()?, file.u64()?, file.u64()?];
        if dropped >= slots {
            return Err(file.content("dropped slots", format!("below {slots}"), dropped));
        }
        let mut episode = Episode::new(&mut self.store, id, base, push_base);
        episode.skip(dropped);
        let carried = file.u8()?;
        episode.carried = carried & 1 != 0;
        if carried & 2 != 0 {
            episode.initial = self.states.read_from(file)?;
        }
        let mut obs = ObsRows::zeros(self.spec.obs_kind, self.spec.obs_len);
        let mut action = ActionRows::zeros(self.spec.action, 1);
        let mut legal_bytes = vec![0; self.spec.legal_len];
        let mut legal = vec![false; self.spec.legal_len];
        for _ in dropped..slots {
            let flags = file.u8()?;
            match &mut obs {
                ObsRows::U8(obs) => file.bytes(obs)?,
                ObsRows::I32(obs) => file.i32s(obs)?,
                ObsRows::F32(obs) => file.f32s(obs)?,
            }
            file.bytes(&mut legal_bytes)?;
            legal.iter_mut().zip(&legal_bytes).for_each(|(l, &b)| *l = b != 0);
            let place = episode.append(&mut self.store);
            self.store.write_obs(place, obs.as_slice(), Some(&legal), flags & (FIRST | CARRIED));
            if flags & TRANSITION != 0 {
                let mut reward = [0.0];
                file.f32s(&mut reward)?;
                match &mut action {
                    ActionRows::Discrete(action) => file.i32s(action)?,
                    ActionRows::Continuous(action) => file.f32s(action)?,
                }
                let action = action.row(0, self.spec.action.len());
                self.store.write_transition(place, Transition { action, reward: reward[0], flags });
            }
        }
        for _ in 0..file.count("states", 8)? {
            let first = file.u64()?;
            let state = self.states.read_from(file)?;
            match states.get_mut(&(lane, first)) {
                Some(wanted) => *wanted = state,
                None => self.states.release(state),
            }
        }
        Ok((lane, episode))
    }

    fn read_closed(&mut self, index: &mut Reader) -> Result<()> {
        for _ in 0..index.count("closed spans", 52)? {
            let handle = Handle { index: index.u32()?, generation: index.u32()? };
            let ends_episode = index.u32()? != 0;
            let [lane, episode, start, lane_step, len] =
                [index.u64()?, index.u64()?, index.u64()?, index.u64()?, index.u64()?];
            let (lane, start, len) = (lane as usize, start as usize, len as usize);
            self.closed.push(ClosedSpan { handle, lane, episode, start, lane_step, len, ends_episode });
        }
        Ok(())
    }
}

/// A state that is still to be found.
fn key(&(_, entry): &(u32, Entry)) -> ((u32, u64), u32) {
    ((entry.lane, entry.first), NO_STATE)
}

fn read_u32s(file: &mut Reader, field: &'static str) -> Result<Vec<u32>> {
    (0..file.count(field, 4)?).map(|_| file.u32()).collect()
}

/// Everything that must be equal between the replay that was saved and the one that loads.
fn identity(spec: &ReplaySpec, config: &ReplayConfig) -> [(&'static str, u64); 16] {
    let (layout, max_episode) = match config.layout {
        Layout::Episode { max_episode } => (0, max_episode),
        Layout::Window => (1, 0),
    };
    let action_kind = match spec.action {
        super::ActionKind::Discrete { .. } => 0,
        super::ActionKind::Continuous { .. } => 1,
    };
    let state_dtype = match config.state_dtype {
        StateDtype::F32 => 0,
        StateDtype::F16 => 1,
        StateDtype::Bf16 => 2,
    };
    let fields: [(&'static str, usize); 16] = [
        ("obs_kind", spec.obs_kind as usize),
        ("obs_len", spec.obs_len),
        ("action kind", action_kind),
        ("action length", spec.action.len()),
        ("legal_len", spec.legal_len),
        ("state_len", spec.state_len),
        ("lanes", spec.lanes),
        ("capacity", config.capacity),
        ("layout", layout),
        ("max_episode", max_episode),
        ("burn_in", config.burn_in),
        ("length", config.length),
        ("period", config.period),
        ("seams", usize::from(config.seams)),
        ("state_dtype", state_dtype),
        ("initial_state", usize::from(config.initial_state == InitialState::Zero)),
    ];
    fields.map(|(name, value)| (name, value as u64))
}
