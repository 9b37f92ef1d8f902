//! Wrappers of the observation: `NormalizeObservation`, `FlattenObservation`, `MaskObservation`.

use super::{Layer, Wrapper, misfit, unusable};
use crate::buffer::{ActionRef, ObsMut, ObsRef};
use crate::env::{BoxEnv, EnvSpec, Step};
use crate::error::Result;
use crate::space::{Element, Part, Space, write_features};

/// y = (x − mean) / √(variance + ε) with running moments per element (Welford, 1962), ε = 1e-8 as Gymnasium.
///
/// The moments outlive episodes, so an episode alone does not repeat from its seed while they are updated.
#[derive(Debug, Clone)]
pub struct NormalizeObservation {
    n: f64,
    mean: Vec<f64>,
    /// Sum of squared deviations.
    square: Vec<f64>,
    /// Whether observations still move the moments; switch off to evaluate.
    pub update: bool,
}

impl NormalizeObservation {
    /// Error: a space with discrete parts.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>) -> Result<Layer<Self>> {
        let env = env.into();
        let s = env.spec();
        if s.observation_space.parts().iter().any(|p| matches!(p, Part::Discrete(_))) {
            return Err(unusable("NormalizeObservation", &s.observation_space, "boxes only"));
        }
        let len = s.observation_space.flat_len();
        let open = Space::box_f32(&vec![f32::NEG_INFINITY; len], &vec![f32::INFINITY; len]);
        let spec = EnvSpec { observation_space: open, ..s.clone() };
        let wrapper = NormalizeObservation { n: 0.0, mean: vec![0.0; len], square: vec![0.0; len], update: true };
        Ok(Layer::new(env, spec, wrapper))
    }

    fn write(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        let ObsMut::F32(out) = out else { return Err(misfit(inner.len(), 0)) };
        if out.len() != inner.len() || out.len() != self.mean.len() {
            return Err(misfit(self.mean.len(), out.len()));
        }
        self.n += f64::from(u8::from(self.update));
        for (i, y) in out.iter_mut().enumerate() {
            let x = f64::from(inner.get(i));
            if self.update {
                let before = x - self.mean[i];
                self.mean[i] += before / self.n;
                self.square[i] += before * (x - self.mean[i]);
            }
            // Before the second observation there is no variance to divide by.
            let variance = if self.n > 1.0 { self.square[i] / self.n } else { 1.0 };
            *y = ((x - self.mean[i]) / (variance + 1e-8).sqrt()) as f32;
        }
        Ok(())
    }
}

impl Wrapper for NormalizeObservation {
    fn first(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        self.write(inner, out)
    }

    fn next(&mut self, _: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, _: &mut Step) -> Result<()> {
        self.write(inner, out)
    }
}

/// One flat float box: discrete parts one-hot, bytes divided by 255 (`write_features`).
#[derive(Debug, Clone)]
pub struct FlattenObservation {
    space: Space,
}

impl FlattenObservation {
    /// Works on every space.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>) -> Result<Layer<Self>> {
        let env = env.into();
        let space = env.spec().observation_space.clone();
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for part in space.parts() {
            match part {
                Part::Discrete(n) => {
                    low.extend(vec![0.0; n]);
                    high.extend(vec![1.0; n]);
                }
                Part::Box { low: l, high: h, element } => {
                    let scale = if element == Element::U8 { 1.0 / 255.0 } else { 1.0 };
                    low.extend(l.iter().map(|v| v * scale));
                    high.extend(h.iter().map(|v| v * scale));
                }
            }
        }
        let spec = EnvSpec { observation_space: Space::box_f32(&low, &high), ..env.spec().clone() };
        Ok(Layer::new(env, spec, FlattenObservation { space }))
    }

    fn write(&self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        let ObsMut::F32(out) = out else { return Err(misfit(self.space.onehot_len(), 0)) };
        write_features(&self.space, inner, out)
    }
}

impl Wrapper for FlattenObservation {
    fn first(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        self.write(inner, out)
    }

    fn next(&mut self, _: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, _: &mut Step) -> Result<()> {
        self.write(inner, out)
    }
}

/// Shows some elements of the flat row only.
#[derive(Debug, Clone)]
pub struct MaskObservation {
    /// Indices of the elements shown.
    shown: Vec<usize>,
}

impl MaskObservation {
    /// `keep[i]` shows element i, `[flat_len]`. The new space is a `Box` or a `MultiDiscrete` where all kept elements
    /// are of that kind, else a `Tuple` of both. Errors: another length, nothing kept.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(env: impl Into<BoxEnv>, keep: &[bool]) -> Result<Layer<Self>> {
        let env = env.into();
        let s = env.spec();
        if keep.len() != s.observation_space.flat_len() || !keep.contains(&true) {
            let expected = format!("{} flags, at least one true", s.observation_space.flat_len());
            return Err(unusable("MaskObservation", format!("{keep:?}"), &expected));
        }
        let mut leaves = Vec::new();
        s.observation_space.visit(&mut |p| match p {
            Part::Discrete(n) => leaves.push(Space::Discrete(n)),
            Part::Box { low, high, element } => {
                for (l, h) in low.iter().zip(high) {
                    leaves.push(Space::Box { low: vec![*l], high: vec![*h], shape: vec![1], element });
                }
            }
        });
        let shown: Vec<usize> = (0..keep.len()).filter(|i| keep[*i]).collect();
        let space = join(shown.iter().map(|i| leaves[*i].clone()).collect());
        if space.dtype() != s.observation_space.dtype() {
            return Err(unusable("MaskObservation", space, "a kept element of each type"));
        }
        let masked: Vec<usize> = (0..keep.len()).filter(|i| !keep[*i]).collect();
        let also = format!("elements {masked:?} of the observation");
        let hidden = match (s.hidden.as_str(), masked.is_empty()) {
            (_, true) => s.hidden.clone(),
            ("nothing", _) => also,
            (before, _) => format!("{before}; {also}"),
        };
        let spec = EnvSpec { observation_space: space, hidden, ..s.clone() };
        Ok(Layer::new(env, spec, MaskObservation { shown }))
    }

    fn write(&self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        let found = out.view().len();
        if found != self.shown.len() {
            return Err(misfit(self.shown.len(), found));
        }
        match (inner, out) {
            (ObsRef::U8(from), ObsMut::U8(to)) => to.iter_mut().zip(&self.shown).for_each(|(y, i)| *y = from[*i]),
            (ObsRef::I32(from), ObsMut::I32(to)) => to.iter_mut().zip(&self.shown).for_each(|(y, i)| *y = from[*i]),
            (ObsRef::F32(from), ObsMut::F32(to)) => to.iter_mut().zip(&self.shown).for_each(|(y, i)| *y = from[*i]),
            _ => return Err(misfit(self.shown.len(), 0)),
        }
        Ok(())
    }
}

/// The plainest space of single elements.
fn join(leaves: Vec<Space>) -> Space {
    if let [only] = leaves.as_slice() {
        return only.clone();
    }
    let sizes: Vec<usize> = leaves.iter().filter_map(Space::n_actions).collect();
    if sizes.len() == leaves.len() {
        return Space::MultiDiscrete(sizes);
    }
    let (mut lows, mut highs, mut elements) = (Vec::new(), Vec::new(), Vec::new());
    for leaf in &leaves {
        if let Space::Box { low, high, element, .. } = leaf {
            lows.extend_from_slice(low);
            highs.extend_from_slice(high);
            elements.push(*element);
        }
    }
    let alike = elements.len() == leaves.len() && elements.windows(2).all(|w| w[0] == w[1]);
    match elements.first() {
        Some(&element) if alike => Space::Box { shape: vec![lows.len()], low: lows, high: highs, element },
        _ => Space::Tuple(leaves),
    }
}

impl Wrapper for MaskObservation {
    fn first(&mut self, inner: ObsRef<'_>, out: ObsMut<'_>) -> Result<()> {
        self.write(inner, out)
    }

    fn next(&mut self, _: ActionRef<'_>, inner: ObsRef<'_>, out: ObsMut<'_>, _: &mut Step) -> Result<()> {
        self.write(inner, out)
    }
}
