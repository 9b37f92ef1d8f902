//! n-step targets over a row of slots. G_t = Σ_{k<m} γᵏ r_{t+k} + γᵐ V_{t+m}, target = h(G).
//!
//! The window of step t ends at the first of: a terminated step (nothing is added), a truncated step, n rewards, or a
//! next slot that holds no transition. m is the number of rewards; V is the value of the observation reached by the
//! last of them. So near an end the largest available n is used, with the right exponent.
//! Source: R2D2 (Kapturowski et al., 2019), Sec. 2.3; Sutton and Barto (2018), Sec. 7.1.

use super::{ValueError, check_len, rescaling::rescale};
use num_traits::Float;

/// One row of T slots in time order.
#[derive(Debug, Clone, Copy)]
pub struct NStepRow<'a, F> {
    /// Reward of the slot's transition, `[T]`.
    pub reward: &'a [F],
    /// The transition ended its episode for good, `[T]`. Wins over `truncated`.
    pub terminated: &'a [bool],
    /// The transition was the last one before a time limit, `[T]`; its value still counts.
    pub truncated: &'a [bool],
    /// The slot holds a transition, `[T]`. Where false nothing of the slot is read.
    pub mask: &'a [bool],
    /// Value, not rescaled, of the observation reached by the slot's transition, `[T]`; 0 if terminated.
    pub next_value: &'a [F],
}

/// Where the results of [`n_step_targets`] go, each `[T]`. Slots without a transition get zeros.
#[derive(Debug)]
pub struct NStepOut<'a, F> {
    /// h(G), or G without rescaling.
    pub target: &'a mut [F],
    /// G.
    pub raw: &'a mut [F],
    /// m, the number of rewards in the window.
    pub steps: &'a mut [usize],
    /// A value was added at the window's end.
    pub bootstrap: &'a mut [bool],
    /// False where nothing but the end of the row cut the window short of n rewards.
    pub full: &'a mut [bool],
}

/// n-step targets of every slot of `row`. `rescale_eps` is ε of h, `None` for no rescaling.
///
/// # Errors
/// Lengths that differ, or n = 0.
///
/// ```
/// use mamba_rl::value::n_step::{NStepOut, NStepRow, n_step_targets};
/// let row = NStepRow { reward: &[1.0, 2.0], terminated: &[false; 2], truncated: &[false, true], mask: &[true; 2],
///                      next_value: &[10.0, 20.0] };
/// let (mut target, mut raw, mut steps) = ([0.0; 2], [0.0; 2], [0; 2]);
/// let (mut bootstrap, mut full) = ([false; 2], [false; 2]);
/// let out = NStepOut { target: &mut target, raw: &mut raw, steps: &mut steps, bootstrap: &mut bootstrap,
///                      full: &mut full };
/// n_step_targets(row, 0.5, 2, None, out)?;
/// assert_eq!(target, [1.0 + 0.5 * 2.0 + 0.25 * 20.0, 2.0 + 0.5 * 20.0]);
/// # Ok::<(), mamba_rl::value::ValueError>(())
/// ```
pub fn n_step_targets<F: Float>(
    row: NStepRow<'_, F>,
    gamma: F,
    n: usize,
    rescale_eps: Option<F>,
    out: NStepOut<'_, F>,
) -> Result<(), ValueError> {
    let time = row.reward.len();
    for (argument, found) in [
        ("terminated", row.terminated.len()),
        ("truncated", row.truncated.len()),
        ("mask", row.mask.len()),
        ("next_value", row.next_value.len()),
        ("target", out.target.len()),
        ("raw", out.raw.len()),
        ("steps", out.steps.len()),
        ("bootstrap", out.bootstrap.len()),
        ("full", out.full.len()),
    ] {
        check_len(argument, found, time)?;
    }
    if n == 0 {
        return Err(ValueError::Range { argument: "n", expected: "at least 1", found: 0.0 });
    }
    for t in 0..time {
        let window = if row.mask[t] { window_at(&row, gamma, n, t) } else { Window::empty() };
        out.raw[t] = window.sum;
        out.target[t] = rescale_eps.map_or(window.sum, |eps| rescale(window.sum, eps));
        out.steps[t] = window.steps;
        out.bootstrap[t] = window.bootstrap;
        out.full[t] = window.full;
    }
    Ok(())
}

struct Window<F> {
    sum: F,
    steps: usize,
    bootstrap: bool,
    full: bool,
}

impl<F: Float> Window<F> {
    fn empty() -> Self {
        Window { sum: F::zero(), steps: 0, bootstrap: false, full: false }
    }
}

fn window_at<F: Float>(row: &NStepRow<'_, F>, gamma: F, n: usize, t: usize) -> Window<F> {
    let mut window = Window::empty();
    let mut discount = F::one();
    for at in t..row.reward.len().min(t.saturating_add(n)) {
        window.sum = window.sum + discount * row.reward[at];
        discount = discount * gamma;
        window.steps += 1;
        let row_ends = !row.mask.get(at + 1).copied().unwrap_or(false);
        if row.terminated[at] {
            window.full = true;
            return window;
        }
        window.full = row.truncated[at] || window.steps == n;
        if window.full || row_ends {
            window.sum = window.sum + discount * row.next_value[at];
            window.bootstrap = true;
            return window;
        }
    }
    window
}
