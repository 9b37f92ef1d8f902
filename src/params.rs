//! One flat buffer of parameters with names. Sorted into four groups so that AdamW, clipping, target sync and
//! checkpoint are each one pass: [backbone decayed | backbone not decayed | heads decayed | heads not decayed].

use std::collections::HashMap;
use std::sync::Arc;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::device::{Device, Kind, Slot, View, ViewMut};
use crate::error::{Error, Result};

/// Which learning rate and whether weight decay applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// Backbone matrices (input projection and conv1d weights too).
    BackboneDecayed,
    /// Backbone A_log, D, biases, norm scales.
    BackbonePlain,
    /// Head matrices.
    HeadsDecayed,
    /// Head biases and norm scales.
    HeadsPlain,
}

impl Group {
    /// All four, in buffer order.
    pub const ALL: [Group; 4] = [Group::BackboneDecayed, Group::BackbonePlain, Group::HeadsDecayed, Group::HeadsPlain];
}

/// How a parameter starts.
#[derive(Debug, Clone)]
pub enum Init {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Uniform in ±bound.
    Uniform(f32),
    /// Normal with this standard deviation.
    Normal(f32),
    /// Given numbers, row-major, one per element.
    Values(Vec<f32>),
    /// log-uniform Δ in [min, max], stored through the inverse softplus (Mamba's dt bias).
    InverseSoftplusLogUniform {
        /// Smallest Δ.
        min: f32,
        /// Largest Δ.
        max: f32,
    },
}

/// One parameter: name as in the checkpoint, shape row-major, group, start.
#[derive(Debug, Clone)]
pub struct ParamSpec {
    /// Checkpoint name, such as `backbone.layers.0.mixer.in_proj.weight`.
    pub name: String,
    /// Row-major shape (`[out, in]` for matrices).
    pub shape: Vec<usize>,
    /// Optimiser group.
    pub group: Group,
    /// Start.
    pub init: Init,
}

impl ParamSpec {
    /// A parameter.
    pub fn new(name: impl Into<String>, shape: &[usize], group: Group, init: Init) -> Self {
        ParamSpec { name: name.into(), shape: shape.to_vec(), group, init }
    }
}

/// A parameter in its place.
#[derive(Debug, Clone)]
pub struct ParamEntry {
    /// What it is.
    pub spec: ParamSpec,
    /// Where it is.
    pub slot: Slot,
}

/// Names, shapes and places of all parameters.
#[derive(Debug, Clone)]
pub struct ParamLayout {
    entries: Vec<ParamEntry>,
    by_name: HashMap<String, usize>,
    groups: [Slot; 4],
    len: usize,
}

impl ParamLayout {
    /// Sorts `specs` into the four groups, keeping their order inside a group.
    ///
    /// # Errors
    /// `Config` when a name occurs twice.
    pub fn new(specs: Vec<ParamSpec>) -> Result<Self> {
        let mut entries: Vec<ParamEntry> = Vec::with_capacity(specs.len());
        let mut groups = [Slot::default(); 4];
        let mut at = 0;
        for (g, group) in Group::ALL.into_iter().enumerate() {
            groups[g].at = at;
            for spec in specs.iter().filter(|s| s.group == group) {
                let slot = Slot { at, len: spec.shape.iter().product() };
                at += slot.len;
                entries.push(ParamEntry { spec: spec.clone(), slot });
            }
            groups[g].len = at - groups[g].at;
        }
        let mut by_name = HashMap::with_capacity(entries.len());
        for (i, e) in entries.iter().enumerate() {
            if by_name.insert(e.spec.name.clone(), i).is_some() {
                return Err(Error::config(&e.spec.name, "is the name of two parameters"));
            }
        }
        Ok(ParamLayout { entries, by_name, groups, len: at })
    }

    /// Elements in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is there no parameter?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All parameters in buffer order.
    pub fn entries(&self) -> &[ParamEntry] {
        &self.entries
    }

    /// The range of a group.
    pub fn group(&self, group: Group) -> Slot {
        self.groups[group as usize]
    }

    /// Place of a named parameter.
    ///
    /// # Errors
    /// `Config` naming the parameter when there is none of this name.
    pub fn slot(&self, name: &str) -> Result<Slot> {
        self.entry(name).map(|e| e.slot).ok_or_else(|| Error::config(name, "is not a parameter of this network"))
    }

    /// A named parameter.
    pub fn entry(&self, name: &str) -> Option<&ParamEntry> {
        self.by_name.get(name).map(|&i| &self.entries[i])
    }

    /// The parameters whose names begin with `prefix`, named without it, each in its place of the whole: for a part of a
    /// network that has several of its kind. `len` and the groups stay those of the whole.
    pub fn scoped(&self, prefix: &str) -> ParamLayout {
        let inside = |e: &ParamEntry| {
            let name = e.spec.name.strip_prefix(prefix)?.to_owned();
            Some(ParamEntry { spec: ParamSpec { name, ..e.spec.clone() }, slot: e.slot })
        };
        let entries: Vec<ParamEntry> = self.entries.iter().filter_map(inside).collect();
        let by_name = entries.iter().enumerate().map(|(i, e)| (e.spec.name.clone(), i)).collect();
        ParamLayout { entries, by_name, groups: self.groups, len: self.len }
    }

    /// Start values of all parameters, drawn in buffer order.
    pub fn initial(&self, rng: &mut ChaCha8Rng) -> Vec<f32> {
        let mut flat = vec![0.0; self.len];
        for e in &self.entries {
            e.spec.init.fill(&mut flat[e.slot.range()], rng);
        }
        flat
    }
}

impl Init {
    fn fill(&self, out: &mut [f32], rng: &mut ChaCha8Rng) {
        match self {
            Init::Zeros => out.fill(0.0),
            Init::Ones => out.fill(1.0),
            Init::Uniform(bound) => out.iter_mut().for_each(|x| *x = rng.random_range(-1.0f32..1.0) * bound),
            Init::Normal(std) => out.iter_mut().for_each(|x| {
                let z: f32 = StandardNormal.sample(rng);
                *x = z * std;
            }),
            Init::Values(v) => out.copy_from_slice(v),
            Init::InverseSoftplusLogUniform { min, max } => out.iter_mut().for_each(|x| {
                let (lo, hi) = (f64::from(*min).ln(), f64::from(*max).ln());
                let delta = (lo + rng.random_range(0.0f64..1.0) * (hi - lo)).exp();
                // softplus⁻¹(Δ) = Δ + ln(1 − e^{−Δ}), as in the official code
                *x = (delta + (-(-delta).exp_m1()).ln()) as f32;
            }),
        }
    }
}

/// Parameters of a network on a device.
pub struct Params<D: Device> {
    /// Names and places.
    pub layout: Arc<ParamLayout>,
    /// All numbers, `[layout.len()]`.
    pub flat: D::Tensor,
}

impl<D: Device> Params<D> {
    /// Parameters from host values, `[layout.len()]`.
    ///
    /// # Errors
    /// `Shape` when the length differs; device errors.
    pub fn new(dev: &D, layout: Arc<ParamLayout>, values: &[f32]) -> Result<Self> {
        if values.len() != layout.len() {
            let (want, got) = (layout.len(), values.len());
            return Err(Error::Shape { op: "params", arg: "values", shape: "[parameters]".into(), want, got });
        }
        let mut flat = dev.zeros(values.len(), Kind::Full)?;
        let len = values.len();
        dev.upload(values, ViewMut::new(&mut flat, 0, len))?;
        Ok(Params { layout, flat })
    }

    /// A parameter's range, read.
    pub fn view(&self, slot: Slot) -> View<'_, D::Tensor> {
        slot.of(&self.flat)
    }

    /// All values on the host.
    ///
    /// # Errors
    /// Device errors.
    pub fn to_host(&self, dev: &D) -> Result<Vec<f32>> {
        let mut out = vec![0.0; self.layout.len()];
        dev.download(View::new(&self.flat, 0, out.len()), &mut out)?;
        Ok(out)
    }
}
