//! How far the state that a window begins with leads astray: ΔQ = ‖Q(window) − Q(replayed)‖₂ / max |Q(replayed)|, where
//! Q(window) starts from the stored state (which has gone stale) or from zeros, and Q(replayed) from the episode's own
//! beginning with today's weights; the mean over the last learnt step of each window.
//! Source: R2D2 (Kapturowski et al., 2019), Sec. 3, Eq. 2.

use crate::error::{Error, Result};
use crate::replay::SequenceBatch;

/// Q-values of a batch and L, and how many there are per slot: ((Q [B, L, width], L), width).
pub(super) type Values = ((Vec<f32>, usize), usize);

/// `windows` and `prefixes` hold the same windows row by row; a prefix runs from the episode's first step and ends at the
/// same observation. None where there is no row. `values` computes with today's weights.
pub(super) fn delta_q(
    values: &mut dyn FnMut(&SequenceBatch) -> Result<Values>,
    windows: &SequenceBatch,
    prefixes: &SequenceBatch,
) -> Result<Option<f64>> {
    if windows.batch != prefixes.batch {
        let (want, got) = (windows.batch, prefixes.batch);
        return Err(Error::Shape { op: "delta_q", arg: "prefixes", shape: "[rows]".into(), want, got });
    }
    let stored = last_q(values, windows)?;
    let replayed = last_q(values, prefixes)?;
    let (mut sum, mut n) = (0.0, 0usize);
    for pair in stored.iter().zip(&replayed) {
        let (Some(stored), Some(replayed)) = pair else { continue };
        let largest = replayed.iter().fold(0.0f64, |m, q| m.max(f64::from(q.abs())));
        if largest > 0.0 {
            let distance: f64 = stored.iter().zip(replayed).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            sum += distance.sqrt() / largest;
            n += 1;
        }
    }
    Ok((n > 0).then(|| sum / n as f64))
}

/// Q-values at the last learnt step of each row.
fn last_q(
    values: &mut dyn FnMut(&SequenceBatch) -> Result<Values>,
    batch: &SequenceBatch,
) -> Result<Vec<Option<Vec<f32>>>> {
    let ((q, len), a) = values(batch)?;
    let learnt = |row: usize, t: usize| {
        let at = (batch.burn_in + t) * batch.batch + row;
        batch.valid[at] != 0 && batch.learn[at] != 0
    };
    Ok((0..batch.batch)
        .map(|row| {
            let last = (0..len).rev().find(|&t| learnt(row, t))?;
            Some(q[(row * len + last) * a..][..a].to_vec())
        })
        .collect())
}
