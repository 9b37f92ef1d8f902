//! Graphs: work that is recorded once and launched as one. The first run of some work is an ordinary one (it loads kernels
//! and makes working memory), the second is recorded, all others repeat the recording. A recording holds addresses: whoever
//! owns the buffers forgets it when they move.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::sys;
use cudarc::driver::{CudaGraph, CudaStream};

use super::Cuda;
use super::memory::Core;
use crate::device::Key;
use crate::error::{Error, Result};

/// Recorded work by key.
#[derive(Default)]
pub struct Recordings {
    of: HashMap<Key, Step>,
}

enum Step {
    /// Run once.
    Warm,
    /// Recorded.
    Graph(Graph),
}

struct Graph(CudaGraph);

// SAFETY: a graph is launched through a `&mut Recordings`, so by one thread at a time.
unsafe impl Send for Graph {}
// SAFETY: as above; nothing is done through a shared reference.
unsafe impl Sync for Graph {}

/// Ends a recording that was not ended.
struct Recording<'a> {
    core: &'a Core,
    stream: &'a Arc<CudaStream>,
    done: bool,
}

impl Recording<'_> {
    fn begin<'a>(core: &'a Core, stream: &'a Arc<CudaStream>) -> Result<Recording<'a>> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(core.failed("recording a graph"))?;
        core.set_recording(true);
        Ok(Recording { core, stream, done: false })
    }

    fn end(mut self) -> Result<CudaGraph> {
        self.done = true;
        self.core.set_recording(false);
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        graph.map_err(self.core.failed("recording a graph"))?.ok_or_else(|| Error::Driver {
            device: self.core.name.clone(),
            doing: "recording a graph".into(),
            problem: "the recording was broken off".into(),
        })
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.core.set_recording(false);
            // the recording is thrown away: why it failed is on its way to the caller
            let _ = self.stream.end_capture(sys::CUgraphInstantiate_flags(0));
        }
    }
}

impl Cuda {
    pub(super) fn repeat_work(
        &self,
        recordings: &mut Recordings,
        key: Key,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let core = &self.inner.core;
        core.enter_outside_graph("recording a graph")?;
        if !self.inner.graphs {
            return work();
        }
        let graph = match recordings.of.get(&key) {
            None => {
                work()?;
                recordings.of.insert(key, Step::Warm);
                return Ok(());
            }
            Some(Step::Graph(graph)) => graph,
            Some(Step::Warm) => {
                let recording = Recording::begin(core, &core.stream)?;
                work()?;
                let graph = Step::Graph(Graph(recording.end()?));
                recordings.of.insert(key, graph);
                match recordings.of.get(&key) {
                    Some(Step::Graph(graph)) => graph,
                    _ => return Ok(()), // just inserted
                }
            }
        };
        core.count(|c| &c.graphs);
        graph.0.launch().map_err(core.failed("launching a graph"))
    }
}
