//! Two ranks, each on its own device: every collective, one thread or two, inside a graph too, and ranks that never come.

use crate::rig::simulated;
use crate::{child, rig};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaStream};
use cudarc::nccl::{Comm, Id, ReduceOp, group_end, group_start};
use std::sync::Arc;

/// Streams of two devices; none where the hardware has only one.
fn two() -> Option<[Arc<CudaStream>; 2]> {
    drop(rig::context());
    if CudaContext::device_count().unwrap() < 2 {
        println!("two devices are needed");
        return None;
    }
    Some([0, 1].map(|i| {
        let ctx = CudaContext::new(i).unwrap();
        // SAFETY: one stream for each device.
        unsafe { ctx.disable_event_tracking() };
        ctx.new_stream().unwrap()
    }))
}

/// Each rank in a thread of its own.
fn ranks(streams: [Arc<CudaStream>; 2], body: impl Fn(usize, &Comm, &Arc<CudaStream>) + Sync) {
    let (id, body) = (Id::new().unwrap(), &body);
    std::thread::scope(|scope| {
        for (rank, stream) in streams.into_iter().enumerate() {
            scope.spawn(move || {
                stream.context().bind_to_thread().unwrap();
                let comm = Comm::from_rank(stream.clone(), rank, 2, id).unwrap();
                body(rank, &comm, &stream);
                stream.synchronize().unwrap();
            });
        }
    });
}

#[test]
fn threads_reduce_and_share() {
    let Some(streams) = two() else { return };
    ranks(streams, |rank, comm, s| {
        let own: Vec<f32> = (0..1000).map(|i| (rank * 1000 + i) as f32).collect();
        let send = s.clone_htod(&own).unwrap();
        let mut receive = s.alloc_zeros::<f32>(1000).unwrap();
        for (op, expected) in
            [(ReduceOp::Sum, 1000.0), (ReduceOp::Max, 1000.0), (ReduceOp::Min, 0.0), (ReduceOp::Avg, 500.0)]
        {
            comm.all_reduce(&send, &mut receive, &op).unwrap();
            let slope = if matches!(op, ReduceOp::Sum) { 2.0 } else { 1.0 };
            let got = s.clone_dtoh(&receive).unwrap();
            assert!(got.iter().enumerate().all(|(i, v)| *v == expected + slope * i as f32), "{:?}", &got[..3]);
        }
        let mut in_place = s.clone_htod(&own).unwrap();
        comm.all_reduce_in_place(&mut in_place, &ReduceOp::Sum).unwrap();
        assert_eq!(s.clone_dtoh(&in_place).unwrap()[7], 1014.0);
        comm.broadcast(Some(&send), &mut receive, 1).unwrap();
        assert_eq!(s.clone_dtoh(&receive).unwrap()[3], 1003.0);
        let mut all = s.alloc_zeros::<f32>(2000).unwrap();
        comm.all_gather(&send, &mut all).unwrap();
        assert_eq!(s.clone_dtoh(&all).unwrap(), (0..2000).map(|i| i as f32).collect::<Vec<_>>());
        let mut half = s.alloc_zeros::<f32>(500).unwrap();
        comm.reduce_scatter(&send, &mut half, &ReduceOp::Sum).unwrap();
        assert_eq!(s.clone_dtoh(&half).unwrap()[0], 1000.0 + 1000.0 * rank as f32);
    });
}

/// A rank that comes late is waited for: what follows on the early rank's stream sees the result.
#[test]
fn a_late_rank_is_waited_for() {
    let Some(streams) = two() else { return };
    ranks(streams, |rank, comm, s| {
        let send = s.clone_htod(&[1.0f32 + rank as f32]).unwrap();
        let mut receive = s.alloc_zeros::<f32>(1).unwrap();
        if rank == 1 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        comm.all_reduce(&send, &mut receive, &ReduceOp::Sum).unwrap();
        let copy = s.clone_dtod(&receive).unwrap();
        assert_eq!(s.clone_dtoh(&copy).unwrap(), [3.0]);
    });
}

#[test]
fn one_thread_with_both_ranks() {
    let Some(streams) = two() else { return };
    let comms = Comm::from_devices(streams.to_vec()).unwrap();
    let send = [0, 1].map(|i| streams[i].clone_htod(&[i as f32 + 1.0; 3]).unwrap());
    let mut receive = [0, 1].map(|i| streams[i].alloc_zeros::<f32>(3).unwrap());
    group_start().unwrap();
    for (i, out) in receive.iter_mut().enumerate() {
        comms[i].all_reduce(&send[i], out, &ReduceOp::Sum).unwrap();
    }
    group_end().unwrap();
    for (s, out) in streams.iter().zip(&receive) {
        assert_eq!(s.clone_dtoh(out).unwrap(), [3.0; 3]);
    }
}

/// The gradient's all-reduce inside each rank's graph, launched several times.
#[test]
fn a_graph_may_hold_a_collective() {
    let Some(streams) = two() else { return };
    ranks(streams, |rank, comm, s| {
        let mut send = s.clone_htod(&[0.0f32; 4]).unwrap();
        let mut receive = s.alloc_zeros::<f32>(4).unwrap();
        s.synchronize().unwrap();
        s.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        comm.all_reduce(&send, &mut receive, &ReduceOp::Sum).unwrap();
        let graph = s.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
        for step in 1..5 {
            s.memcpy_htod(&[(step * (rank + 1)) as f32; 4], &mut send).unwrap();
            graph.launch().unwrap();
            assert_eq!(s.clone_dtoh(&receive).unwrap(), [(3 * step) as f32; 4]);
        }
    });
}

#[test]
fn ranks_that_disagree_or_stay_away_are_reported() {
    if !simulated() {
        return println!("NCCL hangs here");
    }
    let seen = child::run("nccl::alone", "alone", &[("CUDA_SIM_TIMEOUT", "0.3")]);
    assert!(seen.stderr.contains("1 of 2 ranks joined"), "{}", seen.stderr);
    assert!(seen.stderr.contains("other ranks of a collective that did not come"), "{}", seen.stderr);
    let seen = child::run("nccl::disagree", "disagree", &[]);
    assert!(seen.stderr.contains("ranks disagree on a collective"), "{}", seen.stderr);
}

#[test]
#[ignore = "a case of another test, which starts it in a process of its own"]
fn alone() {
    assert_eq!(child::case(), "alone");
    let streams = two().unwrap();
    streams[0].context().bind_to_thread().unwrap();
    assert!(Comm::from_rank(streams[0].clone(), 0, 2, Id::new().unwrap()).is_err());
    let comms = Comm::from_devices(streams.to_vec()).unwrap();
    let send = streams[0].clone_htod(&[1.0f32]).unwrap();
    let mut receive = streams[0].alloc_zeros::<f32>(1).unwrap();
    comms[0].all_reduce(&send, &mut receive, &ReduceOp::Sum).unwrap();
    assert_eq!(streams[0].synchronize().unwrap_err().0, CUresult::CUDA_ERROR_LAUNCH_TIMEOUT);
}

#[test]
#[ignore = "a case of another test, which starts it in a process of its own"]
fn disagree() {
    assert_eq!(child::case(), "disagree");
    let streams = two().unwrap();
    let comms = Comm::from_devices(streams.to_vec()).unwrap();
    for (i, n) in [(0, 4), (1, 5)] {
        let send = streams[i].clone_htod(&vec![1.0f32; n]).unwrap();
        let mut receive = streams[i].alloc_zeros::<f32>(n).unwrap();
        comms[i].all_reduce(&send, &mut receive, &ReduceOp::Sum).unwrap();
        std::mem::forget((send, receive)); // freeing would wait for the other rank
    }
    assert!(streams.iter().all(|s| s.synchronize().is_err()));
}
