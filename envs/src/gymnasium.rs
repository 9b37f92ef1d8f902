//! Bridge to the crate `gymnasium-rs` 0.1.1, both ways, for spaces that it knows: `Discrete` and one-dimensional `Box`.
//! Feature `gymnasium`, off by default: the crate links Python (3.8 to 3.12).
//!
//! | here | there |
//! |---|---|
//! | `Discrete` | `i32` |
//! | `Box` of one dimension | `Array1<f32>` |
//!
//! Its CartPole is registered as `gymnasium-rs:CartPole`. It has other physics than Gymnasium's (the total mass is 1.0
//! and not 1.1, no reward for the falling step) and no time limit; ours adds `TimeLimit` 500. Never compare the two.

use std::collections::HashMap;
use std::marker::PhantomData;

use gymnasium_rs::core as gym;
use ndarray::{Array1, Array3};
use serde_json::Value;

use crate::buffer::{ActionBuffer, ActionRef, ObsBuffer, ObsMut, ObsRef};
use crate::env::{BoxEnv, DynEnv, EnvSpec, Step};
use crate::error::{EnvError, Result};
use crate::registry::Entry;
use crate::space::Space;
use crate::wrapper::TimeLimit;

/// Id of the crate's own task.
pub const CART_POLE: &str = "gymnasium-rs:CartPole";
const LIMIT: usize = 500;

mod sealed {
    pub trait Sealed {}
    impl Sealed for i32 {}
    impl Sealed for ndarray::Array1<f32> {}
}

/// An observation or action of `gymnasium-rs`: `i32` for `Discrete`, `Array1<f32>` for `Box`.
pub trait Point: sealed::Sealed + Clone + Send + 'static {
    /// The space that its values come from.
    const SPACE: &'static str;
    /// Does it belong to this space?
    fn fits(space: &Space) -> bool;
    /// From a flat row.
    fn read(row: ObsRef<'_>) -> Self;
    /// From a flat action.
    fn read_action(action: ActionRef<'_>) -> Self;
    /// Into a flat row; false where the length differs.
    fn write(&self, row: ObsMut<'_>) -> bool;
    /// As a flat action.
    fn action(&self) -> ActionBuffer;
}

impl Point for i32 {
    const SPACE: &'static str = "Discrete";
    fn fits(space: &Space) -> bool {
        matches!(space, Space::Discrete(_))
    }
    fn read(row: ObsRef<'_>) -> Self {
        row.get(0) as i32
    }
    fn read_action(action: ActionRef<'_>) -> Self {
        if let ActionRef::Discrete([a]) = action { *a } else { 0 }
    }
    fn write(&self, mut row: ObsMut<'_>) -> bool {
        row.set(0, *self as f32);
        row.view().len() == 1
    }
    fn action(&self) -> ActionBuffer {
        ActionBuffer::Discrete(vec![*self])
    }
}

impl Point for Array1<f32> {
    const SPACE: &'static str = "Box of one dimension";
    fn fits(space: &Space) -> bool {
        matches!(space, Space::Box { shape, .. } if shape.len() == 1)
    }
    fn read(row: ObsRef<'_>) -> Self {
        (0..row.len()).map(|i| row.get(i)).collect()
    }
    fn read_action(action: ActionRef<'_>) -> Self {
        if let ActionRef::Continuous(a) = action { a.iter().copied().collect() } else { Array1::zeros(0) }
    }
    fn write(&self, mut row: ObsMut<'_>) -> bool {
        self.iter().enumerate().for_each(|(i, v)| row.set(i, *v));
        self.len() == row.view().len()
    }
    fn action(&self) -> ActionBuffer {
        ActionBuffer::Continuous(self.to_vec())
    }
}

fn refuse(what: String, space: &Space, expected: &str) -> EnvError {
    EnvError::Space { what, found: space.to_string(), expected: expected.to_owned() }
}

fn check<T: Point>(what: String, space: &Space) -> Result<()> {
    if T::fits(space) { Ok(()) } else { Err(refuse(what, space, T::SPACE)) }
}

/// Their space as ours; the largest floats stand for unbounded there.
fn from_theirs(what: String, space: &gym::Space) -> Result<Space> {
    let bound = |b: &f32| if b.abs() >= f32::MAX { b.signum() * f32::INFINITY } else { *b };
    let space = match space {
        gym::Space::Discrete(n) => Space::Discrete(usize::try_from(*n).unwrap_or(0)),
        gym::Space::Box { low, high } => {
            Space::box_f32(&low.iter().map(bound).collect::<Vec<_>>(), &high.iter().map(bound).collect::<Vec<_>>())
        }
    };
    if space.flat_len() == 0 || matches!(space, Space::Discrete(0)) {
        return Err(refuse(what, &space, "at least one element"));
    }
    Ok(space)
}

fn to_theirs(space: &Space) -> gym::Space {
    match space {
        Space::Box { low, high, .. } => {
            gym::Space::Box { low: low.iter().copied().collect(), high: high.iter().copied().collect() }
        }
        other => gym::Space::Discrete(i32::try_from(other.n_actions().unwrap_or(0)).unwrap_or(i32::MAX)),
    }
}

/// An environment of theirs as one of ours.
struct Theirs<G, O, A> {
    env: G,
    spec: EnvSpec,
    over: Option<bool>,
    last: ObsBuffer,
    kinds: PhantomData<fn() -> (O, A)>,
}

/// Adapts an environment of `gymnasium-rs`; `spec_of` may complete the spec (limits, names, wider bounds).
///
/// # Errors
/// `Space` for a space that does not fit `O` or `A`, with its name.
pub fn from_gymnasium<G, O, A>(id: &str, env: G, spec_of: impl FnOnce(EnvSpec) -> EnvSpec) -> Result<BoxEnv>
where
    G: gym::Env<O, A> + Send + 'static,
    O: Point,
    A: Point,
{
    let name: String = id.chars().map(|c| if c == ':' || c == '/' { '-' } else { c }).collect();
    let observation = from_theirs(format!("{id}: observation space"), &env.observation_space())?;
    let action = from_theirs(format!("{id}: action space"), &env.action_space())?;
    let spec = spec_of(EnvSpec::new(id, &name, observation, action));
    check::<O>(format!("{id}: observation space"), &spec.observation_space)?;
    check::<A>(format!("{id}: action space"), &spec.action_space)?;
    let last = ObsBuffer::for_space(&spec.observation_space, 1);
    Ok(Box::new(Theirs { env, spec, over: None, last, kinds: PhantomData::<fn() -> (O, A)> }))
}

impl<G, O: Point, A: Point> Theirs<G, O, A> {
    fn write(&mut self, point: &O, obs: ObsMut<'_>) -> Result<()> {
        let mut obs = obs;
        if !point.write(obs.reborrow()) || !self.last.view_mut().copy_from(obs.view()) {
            let what = format!("{}: observation", self.spec.name);
            return Err(EnvError::Length { what, found: obs.view().len(), expected: self.last.len() });
        }
        Ok(())
    }
}

impl<G: gym::Env<O, A> + Send, O: Point, A: Point> DynEnv for Theirs<G, O, A> {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: Option<u64>, obs: ObsMut<'_>) -> Result<()> {
        // Their seeds have 31 bits.
        let seed = seed.map(|s| ((s ^ s >> 32) & 0x7fff_ffff) as i32);
        let (first, _) = self.env.reset(seed, HashMap::new());
        self.write(&first, obs)?;
        self.over = Some(false);
        Ok(())
    }

    fn step(&mut self, action: ActionRef<'_>, obs: ObsMut<'_>) -> Result<Step> {
        match self.over {
            Some(false) => self.spec.action_space.check_action(&self.spec.name, action)?,
            Some(true) => return Err(EnvError::EpisodeOver { env: self.spec.name.clone() }),
            None => return Err(EnvError::NotReset { env: self.spec.name.clone() }),
        }
        let (next, reward, terminated, truncated, _) = self.env.step(A::read_action(action));
        self.write(&next, obs)?;
        let step = Step { reward: f64::from(reward), terminated, truncated };
        self.over = Some(step.done());
        Ok(step)
    }

    fn render_text(&self) -> String {
        format!("{}\nobservation {:?}\n", self.spec.name, self.last.view())
    }
}

/// An environment of ours as one of theirs. Their trait knows no errors: an action outside the space ends the episode
/// (truncated) with the reason under `error` in the info.
pub struct ToGymnasium<O, A> {
    env: BoxEnv,
    obs: ObsBuffer,
    kinds: PhantomData<fn() -> (O, A)>,
}

impl<O: Point, A: Point> ToGymnasium<O, A> {
    /// Wraps it.
    ///
    /// # Errors
    /// `Space` for any other space than `Discrete` and one-dimensional `Box`, or one that does not fit `O` or `A`.
    pub fn new(env: BoxEnv) -> Result<Self> {
        let spec = env.spec();
        check::<O>(format!("{}: observation space", spec.name), &spec.observation_space)?;
        check::<A>(format!("{}: action space", spec.name), &spec.action_space)?;
        let obs = ObsBuffer::for_space(&spec.observation_space, 1);
        Ok(ToGymnasium { env, obs, kinds: PhantomData })
    }

    fn info(result: Result<()>) -> gym::Info {
        result.err().map(|e| ("error".to_owned(), Value::from(e.to_string()))).into_iter().collect()
    }
}

impl<O: Point, A: Point> gym::Env<O, A> for ToGymnasium<O, A> {
    fn observation_space(&self) -> gym::Space {
        to_theirs(&self.env.spec().observation_space)
    }

    fn action_space(&self) -> gym::Space {
        to_theirs(&self.env.spec().action_space)
    }

    fn reset(&mut self, seed: Option<i32>, _options: gym::Options) -> (O, gym::Info) {
        let seed = seed.map(|s| u64::from(s as u32));
        let result = self.env.reset(seed, self.obs.view_mut());
        (O::read(self.obs.view()), Self::info(result))
    }

    fn step(&mut self, action: A) -> (O, gym::Reward, bool, bool, gym::Info) {
        let step = self.env.step(action.action().view(), self.obs.view_mut());
        let (s, result) = match step {
            Ok(s) => (s, Ok(())),
            Err(e) => (Step { truncated: true, ..Step::default() }, Err(e)),
        };
        (O::read(self.obs.view()), s.reward as f32, s.terminated, s.truncated, Self::info(result))
    }

    fn render(&self) -> Option<Array3<u8>> {
        None
    }

    fn close(&mut self) {}
}

fn cart_pole() -> Result<BoxEnv> {
    let env = from_gymnasium(CART_POLE, gymnasium_rs::envs::cartpole::CartPole::new(), |spec| {
        // Their bound of the angle is the fall itself, which the last observation has passed.
        let (low, high) =
            ([-4.8, f32::NEG_INFINITY, -0.42, f32::NEG_INFINITY], [4.8, f32::INFINITY, 0.42, f32::INFINITY]);
        EnvSpec {
            observation_space: Space::box_f32(&low, &high),
            return_range: (0.0, LIMIT as f64),
            doc: "CartPole of gymnasium-rs: other physics than CartPole-v1.".to_owned(),
            ..spec
        }
    })?;
    Ok(TimeLimit::new(env, LIMIT)?.boxed())
}

/// The crate's own tasks.
pub(crate) fn entries() -> Vec<Entry> {
    // A CartPole of theirs always fits.
    cart_pole().map(|env| Entry::new(env.spec().clone(), Vec::new(), |_| cart_pole())).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{EnvArgs, Registry, make};
    use gymnasium_rs::core::Env as _;

    #[test]
    fn their_cart_pole_keeps_our_contract() {
        let report = crate::check(&|| make(CART_POLE, &EnvArgs::default())).unwrap();
        assert!(report.longest <= LIMIT && report.episodes == 8);
        assert!(Registry::bundled().find(CART_POLE).is_ok());
    }

    #[test]
    fn ours_there_and_back_again_are_the_same() {
        let ours = || make("CartPole-v1", &EnvArgs::default()).unwrap();
        let there = ToGymnasium::<Array1<f32>, i32>::new(ours()).unwrap();
        let mut back = from_gymnasium("back", there, |s| EnvSpec { max_steps: Some(500), ..s }).unwrap();
        let mut direct = ours();
        let (mut a, mut b) = ([0.0f32; 4], [0.0f32; 4]);
        back.reset(Some(7), ObsMut::F32(&mut a)).unwrap();
        direct.reset(Some(7), ObsMut::F32(&mut b)).unwrap();
        for t in 0.. {
            assert_eq!(a, b, "step {t}");
            let action = ActionRef::Discrete(if t % 3 == 0 { &[0] } else { &[1] });
            let one = back.step(action, ObsMut::F32(&mut a)).unwrap();
            let other = direct.step(action, ObsMut::F32(&mut b)).unwrap();
            assert_eq!(one, other);
            if one.done() {
                return;
            }
        }
    }

    #[test]
    fn an_illegal_action_ends_their_episode_with_the_reason() {
        let mut there =
            ToGymnasium::<Array1<f32>, i32>::new(make("CartPole-v1", &EnvArgs::default()).unwrap()).unwrap();
        there.reset_seed(1);
        let (_, _, terminated, truncated, info) = there.step(5);
        assert!(!terminated && truncated && info["error"].as_str().unwrap().contains("Discrete(2)"), "{info:?}");
    }

    #[test]
    fn other_spaces_are_refused_by_name() {
        let env = |id| make(id, &EnvArgs::default()).unwrap();
        let battleship = ToGymnasium::<i32, i32>::new(env("BattleshipEasy")).err().unwrap().to_string();
        assert!(battleship.contains("MultiDiscrete([8, 8])") && battleship.contains("Discrete"), "{battleship}");
        let maze = ToGymnasium::<i32, i32>::new(env("LabyrinthEscapeEasy")).err().unwrap().to_string();
        assert!(maze.contains("MultiDiscrete"), "{maze}");
        let wrong_kind = ToGymnasium::<i32, i32>::new(env("CartPole-v1")).err().unwrap().to_string();
        assert!(wrong_kind.contains("Box(["), "{wrong_kind}");
        let theirs = gymnasium_rs::envs::cartpole::CartPole::new();
        assert!(from_gymnasium::<_, Array1<f32>, i32>("fine", theirs, |s| s).is_ok());
    }
}
