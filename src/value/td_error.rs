//! TD errors: the double-Q value of the next observation, losses and their gradients, means over learnt steps.
//!
//! Double Q: V(o) = h⁻¹(q_target(o, argmax_a q_online(o, a))). Huber with width d: x²/2 for |x| ≤ d, else d(|x| − d/2).
//! Sources: van Hasselt et al. (2016), Eq. 4; R2D2 (Kapturowski et al., 2019), Eq. 1; Huber (1964).

use super::{ValueError, check_len, number, rescaling::rescale_inverse};
use num_traits::Float;

/// Index of the largest legal value, the first one among equals; `None` if no action is legal.
/// NaN is never chosen while another legal action has a number.
pub fn legal_argmax<F: Float>(q: &[F], legal: Option<&[bool]>) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (a, &value) in q.iter().enumerate() {
        if legal.is_some_and(|mask| !mask.get(a).copied().unwrap_or(false)) {
            continue;
        }
        if best.is_none_or(|b| value > q[b] || (q[b].is_nan() && !value.is_nan())) {
            best = Some(a);
        }
    }
    best
}

/// h⁻¹(q_target\[argmax q_online\]) over the legal actions; `eps` is ε of h, `None` for no rescaling.
/// `q_online`, `q_target` and `legal` are `[A]`. 0 where no action is legal.
pub fn double_q_value<F: Float>(q_online: &[F], q_target: &[F], legal: Option<&[bool]>, eps: Option<F>) -> F {
    let Some(value) = legal_argmax(q_online, legal).and_then(|a| q_target.get(a).copied()) else { return F::zero() };
    eps.map_or(value, |eps| rescale_inverse(value, eps))
}

/// The loss of one TD error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss<F> {
    /// x²/2.
    Squared,
    /// Huber's loss with the given width.
    Huber(F),
}

impl<F: Float> Loss<F> {
    /// Loss of the error x.
    pub fn value(self, x: F) -> F {
        match self {
            Loss::Squared => number::<F>(0.5) * x * x,
            Loss::Huber(width) => huber(x, width),
        }
    }

    /// Derivative of the loss with respect to x.
    pub fn grad(self, x: F) -> F {
        match self {
            Loss::Squared => x,
            Loss::Huber(width) => huber_grad(x, width),
        }
    }
}

/// Huber's loss: x²/2 inside `width`, width(|x| − width/2) outside.
pub fn huber<F: Float>(x: F, width: F) -> F {
    let half = number::<F>(0.5);
    if x.abs() <= width { half * x * x } else { width * (x.abs() - half * width) }
}

/// Derivative of [`huber`]: x, limited to ±width.
pub fn huber_grad<F: Float>(x: F, width: F) -> F {
    if x.abs() <= width { x } else { width * x.signum() }
}

/// One row of TD errors for [`td_loss`].
#[derive(Debug, Clone, Copy)]
pub struct TdRow<'a, F> {
    /// target − q of the action taken, `[T]`.
    pub td_error: &'a [F],
    /// The step is learnt, `[T]`; burn-in and padding are not, and are not read.
    pub learnt: &'a [bool],
    /// Importance weight of the row.
    pub weight: F,
    /// Learnt steps of the whole batch: losses are means over steps, not over rows.
    pub n_learnt: usize,
}

/// The row's share of the loss Σ w ℓ(δ) / n_learnt; `g_q` `[T]` gets its derivative with respect to q of the action
/// taken, −w ℓ'(δ) / n_learnt, and 0 where a step is not learnt.
///
/// # Errors
/// Lengths that differ.
pub fn td_loss<F: Float>(row: TdRow<'_, F>, loss: Loss<F>, g_q: &mut [F]) -> Result<F, ValueError> {
    check_len("learnt", row.learnt.len(), row.td_error.len())?;
    check_len("g_q", g_q.len(), row.td_error.len())?;
    let scale = row.weight / number::<F>(row.n_learnt.max(1) as f64);
    let mut sum = F::zero();
    for ((&x, &learnt), g) in row.td_error.iter().zip(row.learnt).zip(g_q) {
        *g = if learnt { -scale * loss.grad(x) } else { F::zero() };
        if learnt {
            sum = sum + loss.value(x);
        }
    }
    Ok(scale * sum)
}

/// Mean of `x` where `mask`; 0 if nothing is. Masked numbers are not read, NaN included.
pub fn masked_mean<F: Float>(x: &[F], mask: &[bool]) -> F {
    let (mut sum, mut n) = (F::zero(), 0usize);
    for (&x, _) in x.iter().zip(mask).filter(|&(_, &m)| m) {
        sum = sum + x;
        n += 1;
    }
    if n == 0 { F::zero() } else { sum / number(n as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_mask_decides_the_argmax() {
        let (online, target) = ([1.0, 9.0, 2.0], [10.0, 20.0, 30.0]);
        assert_eq!(double_q_value(&online, &target, None, None), 20.0);
        assert_eq!(double_q_value(&online, &target, Some(&[true, false, true]), None), 30.0);
        assert_eq!(double_q_value(&online, &target, Some(&[false; 3]), None), 0.0);
        assert_eq!(legal_argmax(&[f64::NAN, 1.0, 1.0], None), Some(1));
    }

    #[test]
    fn rows_of_ten_and_two_steps_have_one_mean() {
        let mut g = [7.0; 3];
        let row = TdRow { td_error: &[2.0, f64::NAN, -1.0], learnt: &[true, false, true], weight: 0.5, n_learnt: 4 };
        assert_eq!(td_loss(row, Loss::Squared, &mut g), Ok(0.125 * 2.5));
        assert_eq!(g, [-0.25, 0.0, 0.125]);
        assert_eq!(masked_mean(row.td_error, row.learnt), 0.5);
    }
}
