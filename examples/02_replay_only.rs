//! The replay alone, under any network: two lanes write episodes, sequences come out with masks and priorities.
//! `cargo run --release --example 02_replay_only`

use mamba_rl::replay::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn main() -> mamba_rl::replay::Result<()> {
    let spec = ReplaySpec {
        obs_kind: ObsKind::F32,
        obs_len: 2,
        action: ActionKind::Discrete { parts: 1 },
        legal_len: 0,
        state_len: 0, // floats of your recurrent state, stored before each sequence
        lanes: 2,
    };
    let mut replay = SequenceReplay::new(spec, ReplayConfig { capacity: 1_000, ..ReplayConfig::default() })?;
    for (lane, length) in [(0, 12), (1, 7), (0, 5)] {
        replay.begin(lane, ObsSlice::F32(&[0.0, lane as f32]), None)?;
        for t in 1..=length {
            let (action, next_obs) = ([t % 3], [t as f32, lane as f32]);
            let step = PushStep {
                state: None,
                action: ActionSlice::Discrete(&action),
                reward: 1.0,
                terminated: t == length,
                truncated: false,
                next_obs: ObsSlice::F32(&next_obs),
                next_legal: None,
            };
            replay.push(lane, step)?;
        }
    }
    let (mut batch, mut rng) = (SequenceBatch::new(), ChaCha8Rng::seed_from_u64(1));
    replay.sample(3, &mut rng, &mut batch)?;
    for row in 0..batch.batch {
        let learnt = (0..batch.slots).filter(|t| batch.learn[batch.at(*t, row)] != 0).count();
        println!("sequence {row}: {learnt} steps to learn in {} slots", batch.slots);
    }
    let report = replay.set_priority(&batch.handle, &[0.1, 0.5, 2.0]); // yours, from the TD errors
    println!("{} priorities set, {} stale", report.applied, report.stale);
    Ok(())
}
