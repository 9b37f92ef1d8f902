//! From a policy's numbers to actions of a space. A `MultiDiscrete` action is one index for Q-learning, row-major
//! (`row · columns + column`), and one element per component for the environment and as network input (source: POPGym's
//! DiscreteAction wrapper). A `Box` action is a number in [−1, 1] per component for the learner, and lies between the space's
//! bounds for the environment.

use mamba_rl_envs::{ActionBuffer, ActionRef, Space};

use crate::error::{Error, Result};
use crate::value::gaussian::{from_env_action, to_env_action};
use crate::value::td_error::legal_argmax;

/// Components of joint action `index`, into `parts` `[components]`.
pub fn split_action(space: &Space, index: usize, parts: &mut [i32]) {
    match space {
        Space::MultiDiscrete(sizes) => {
            let mut rest = index;
            for (part, &n) in parts.iter_mut().zip(sizes).rev() {
                *part = (rest % n) as i32;
                rest /= n;
            }
        }
        _ => parts[0] = index as i32,
    }
}

/// Index of the joint action with these components.
///
/// # Errors
/// `Usage` naming the space when a component lies outside it.
pub fn join_action(space: &Space, parts: &[i32]) -> Result<usize> {
    let outside = || Error::Usage(format!("stored action {parts:?} is not in {space}"));
    let one = [match space {
        Space::Discrete(n) => *n,
        _ => 0,
    }];
    let sizes = match space {
        Space::MultiDiscrete(sizes) => &sizes[..],
        _ => &one,
    };
    if sizes.len() != parts.len() {
        return Err(outside());
    }
    let mut index = 0;
    for (&n, &part) in sizes.iter().zip(parts) {
        let part = usize::try_from(part).ok().filter(|&p| p < n).ok_or_else(outside)?;
        index = index * n + part;
    }
    Ok(index)
}

/// Lower and upper bounds of a `Box` of actions, `[components]` each; every one finite.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActionBounds {
    low: Vec<f32>,
    high: Vec<f32>,
}

impl ActionBounds {
    /// Of a `Box` space.
    ///
    /// # Errors
    /// `Usage` for another space, and for a component without two finite bounds, the lower one below the upper one.
    pub fn new(space: &Space) -> Result<Self> {
        let Space::Box { low, high, .. } = space else {
            return Err(Error::Usage(format!("continuous actions need a Box, found {space}")));
        };
        let usable = |(l, h): (&f32, &f32)| l.is_finite() && h.is_finite() && (h - l).is_finite() && l < h;
        if let Some(i) = low.iter().zip(high).position(|b| !usable(b)) {
            let (l, h) = (low[i], high[i]);
            let problem = format!(
                "actions in {space}: component {i} lies between {l} and {h}, expected two finite bounds; wrap the task so \
                 that its actions have them"
            );
            return Err(Error::Usage(problem));
        }
        Ok(ActionBounds { low: low.clone(), high: high.clone() })
    }

    /// Components.
    pub fn len(&self) -> usize {
        self.low.len()
    }

    /// No components?
    pub fn is_empty(&self) -> bool {
        self.low.is_empty()
    }

    /// An action in [−1, 1] between the bounds, never beyond them. Both `[components]`.
    ///
    /// # Errors
    /// `Shape` when a length differs.
    pub fn to_env(&self, action: &[f32], out: &mut [f32]) -> Result<()> {
        self.check("action", action.len())?;
        to_env_action(action, &self.low, &self.high, out).map_err(|_| self.wrong("out", out.len()))?;
        // rounding may step over a bound
        for ((x, &l), &h) in out.iter_mut().zip(&self.low).zip(&self.high) {
            *x = x.clamp(l, h);
        }
        Ok(())
    }

    /// An action between the bounds in [−1, 1]. Both `[components]`.
    ///
    /// # Errors
    /// `Shape` when a length differs.
    pub fn from_env(&self, action: &[f32], out: &mut [f32]) -> Result<()> {
        self.check("action", action.len())?;
        from_env_action(action, &self.low, &self.high, out).map_err(|_| self.wrong("out", out.len()))
    }

    fn check(&self, arg: &'static str, got: usize) -> Result<()> {
        if got == self.len() { Ok(()) } else { Err(self.wrong(arg, got)) }
    }

    fn wrong(&self, arg: &'static str, got: usize) -> Error {
        Error::Shape { op: "action_bounds", arg, shape: "[components]".into(), want: self.len(), got }
    }
}

/// N actions of one space, as environments take them.
#[derive(Debug, Clone, PartialEq)]
pub struct Actions {
    space: Space,
    /// Of a `Box`.
    bounds: Option<ActionBounds>,
    buffer: ActionBuffer,
    /// Elements per action.
    len: usize,
    /// One action in [−1, 1].
    unit: Vec<f32>,
}

impl Actions {
    /// `n` null actions.
    ///
    /// # Errors
    /// `Usage` for a space that no agent acts in: tuples, unbounded boxes.
    pub fn new(space: &Space, n: usize) -> Result<Self> {
        let bounds = if space.is_discrete() { None } else { Some(ActionBounds::new(space)?) };
        let (buffer, len) = (ActionBuffer::for_space(space, n), space.flat_len());
        Ok(Actions { space: space.clone(), bounds, buffer, len, unit: vec![0.0; len] })
    }

    /// All of them, flat.
    pub fn all(&self) -> ActionRef<'_> {
        self.buffer.view()
    }

    /// Action i.
    pub fn row(&self, i: usize) -> ActionRef<'_> {
        self.buffer.view().slice(i * self.len, self.len)
    }

    /// Elements of all actions.
    pub fn flat_len(&self) -> usize {
        self.buffer.view().len()
    }

    /// Action i becomes the joint action `index` of a discrete space; nothing happens in a `Box`.
    pub fn set_joint(&mut self, i: usize, index: usize) {
        if let ActionBuffer::Discrete(parts) = &mut self.buffer {
            split_action(&self.space, index, &mut parts[i * self.len..(i + 1) * self.len]);
        }
    }

    /// Action i becomes the one whose component k is `unit(k)` in [−1, 1]; nothing happens in a discrete space.
    ///
    /// # Errors
    /// None for actions that [`Actions::new`] made.
    pub fn set_unit(&mut self, i: usize, unit: impl FnMut(usize) -> f32) -> Result<()> {
        let (Some(bounds), ActionBuffer::Continuous(values)) = (&self.bounds, &mut self.buffer) else { return Ok(()) };
        self.unit.clear();
        self.unit.extend((0..self.len).map(unit));
        bounds.to_env(&self.unit, &mut values[i * self.len..(i + 1) * self.len])
    }

    /// Action i becomes the greedy one for a policy's row of numbers: the largest legal Q-value, or tanh of the mean.
    ///
    /// # Errors
    /// `Usage` when no action is legal.
    pub fn set_greedy(&mut self, i: usize, out: &[f32], legal: Option<&[bool]>) -> Result<()> {
        if self.bounds.is_some() {
            return self.set_unit(i, |k| out[k].tanh());
        }
        let best = legal_argmax(out, legal).ok_or_else(|| no_legal(i))?;
        self.set_joint(i, best);
        Ok(())
    }

    /// The elements as floats, which hold every one exactly. `[flat_len]`.
    pub fn write_floats(&self, out: &mut [f32]) {
        match &self.buffer {
            ActionBuffer::Discrete(v) => out.iter_mut().zip(v).for_each(|(o, &a)| *o = a as f32),
            ActionBuffer::Continuous(v) => out.copy_from_slice(v),
        }
    }

    /// Puts back parts of discrete actions, `[flat_len]`.
    pub(crate) fn read_parts(&mut self, from: &[i32]) {
        if let ActionBuffer::Discrete(v) = &mut self.buffer {
            v.copy_from_slice(from);
        }
    }

    /// Puts back what [`Actions::write_floats`] gave.
    pub fn read_floats(&mut self, from: &[f32]) {
        match &mut self.buffer {
            ActionBuffer::Discrete(v) => v.iter_mut().zip(from).for_each(|(a, &x)| *a = x as i32),
            ActionBuffer::Continuous(v) => v.copy_from_slice(from),
        }
    }
}

/// What an actor says of copy `i` when it may do nothing.
pub(crate) fn no_legal(i: usize) -> Error {
    Error::Usage(format!("the legal-action mask of environment copy {i} forbids every action"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_major_there_and_back() {
        let space = Space::MultiDiscrete(vec![3, 5]);
        let mut parts = [0; 2];
        split_action(&space, 7, &mut parts);
        assert_eq!(parts, [1, 2]);
        for i in 0..15 {
            split_action(&space, i, &mut parts);
            assert_eq!(join_action(&space, &parts).unwrap(), i);
        }
        assert!(join_action(&space, &[3, 0]).is_err());
        assert!(join_action(&Space::Discrete(4), &[4]).is_err());
        assert_eq!(join_action(&Space::Discrete(4), &[3]).unwrap(), 3);
    }

    #[test]
    fn bounds_are_reached_and_not_crossed() {
        let space = Space::box_f32(&[-2.0, 0.1], &[2.0, 0.7]);
        let mut actions = Actions::new(&space, 2).unwrap();
        actions.set_greedy(1, &[0.0, 50.0, 0.0, 0.0], None).unwrap();
        assert_eq!(actions.row(1), ActionRef::Continuous(&[0.0, 0.7]));
        assert_eq!(actions.row(0), ActionRef::Continuous(&[0.0, 0.0]));
        let mut floats = vec![0.0; actions.flat_len()];
        actions.write_floats(&mut floats);
        let mut again = Actions::new(&space, 2).unwrap();
        again.read_floats(&floats);
        assert_eq!(again, Actions { unit: again.unit.clone(), ..actions });
        for (low, high) in [(f32::NEG_INFINITY, 1.0), (0.0, f32::INFINITY), (1.0, 1.0), (f32::MIN, f32::MAX)] {
            let e = ActionBounds::new(&Space::box_f32(&[0.0, low], &[1.0, high])).unwrap_err().to_string();
            assert!(e.contains("component 1"), "{e}");
        }
        assert!(Actions::new(&Space::Tuple(vec![Space::Discrete(2)]), 1).is_err());
    }
}
