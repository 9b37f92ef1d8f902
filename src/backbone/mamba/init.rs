//! Names, shapes, groups and starting values of the parameters, as in the official code: A = −1 .. −d_state in every row,
//! D = 1, dt_proj's weight uniform in ± dt_rank^−½, its bias softplus⁻¹(Δ) with Δ log-uniform in [dt_min, dt_max],
//! out_proj scaled by 1/√n_layers; everything else uniform in ± fan_in^−½ (PyTorch's default), projection biases 0.
//! With a rotating state A = −½ for every pair, and θ[m, e] = π (m + perm(e) / d_inner) / pairs: one band of (0, π) for each
//! pair, every channel another angle of it. perm is a permutation of the channels, another one in each layer, the same in
//! every run.
//! Source: `mamba_simple.py` and `mixer_seq_simple.py` of state-spaces/mamba.

use std::f64::consts::PI;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{MambaConfig, Rotate};
use crate::backbone::slots;
use crate::device::Slot;
use crate::error::Result;
use crate::params::{Group, Init, ParamLayout, ParamSpec};

const MATRIX: Group = Group::BackboneDecayed;
const PLAIN: Group = Group::BackbonePlain;
/// A of every pair at the start.
const ROTATING_A: f32 = -0.5;
/// Seed of the permutations of channels, one stream a layer.
const PERM_SEED: u64 = 0x7065_726d;

/// Uniform in ± fan_in^−½.
pub(crate) fn by_fan_in(fan_in: usize) -> Init {
    Init::Uniform((fan_in as f32).sqrt().recip())
}

/// All parameters.
pub(super) fn specs(c: &MambaConfig) -> Vec<ParamSpec> {
    let mut out = Vec::new();
    if c.input_proj {
        out.push(ParamSpec::new("input_proj.weight", &[c.d_model, c.d_input], MATRIX, by_fan_in(c.d_input)));
        out.push(ParamSpec::new("input_proj.bias", &[c.d_model], PLAIN, by_fan_in(c.d_input)));
    }
    (0..c.n_layers).for_each(|layer| block(c, layer, &mut out));
    out.push(ParamSpec::new("backbone.norm_f.weight", &[c.d_model], PLAIN, Init::Ones));
    out
}

/// Starting angles of a layer, [pairs, d_inner].
fn angles(c: &MambaConfig, layer: usize) -> Vec<f32> {
    let (e, pairs) = (c.d_inner(), c.d_state / 2);
    let mut rng = ChaCha8Rng::seed_from_u64(PERM_SEED);
    rng.set_stream(layer as u64);
    let mut perm: Vec<usize> = (0..e).collect();
    perm.shuffle(&mut rng);
    let angle = |m: usize, place: usize| PI * (m as f64 + place as f64 / e as f64) / pairs as f64;
    (0..pairs).flat_map(|m| perm.iter().map(move |&place| angle(m, place) as f32)).collect()
}

fn block(c: &MambaConfig, layer: usize, out: &mut Vec<ParamSpec>) {
    let (d, e, n, r) = (c.d_model, c.d_inner(), c.d_state, c.rank());
    let prefix = format!("backbone.layers.{layer}.");
    let mut add = |name: &str, shape: &[usize], group, init| {
        out.push(ParamSpec::new(format!("{prefix}{name}"), shape, group, init));
    };
    add("norm.weight", &[d], PLAIN, Init::Ones);
    add("mixer.in_proj.weight", &[2 * e, d], MATRIX, by_fan_in(d));
    if c.proj_bias {
        add("mixer.in_proj.bias", &[2 * e], PLAIN, Init::Zeros);
    }
    add("mixer.conv1d.weight", &[e, 1, c.d_conv], MATRIX, by_fan_in(c.d_conv));
    if c.conv_bias {
        add("mixer.conv1d.bias", &[e], PLAIN, by_fan_in(c.d_conv));
    }
    add("mixer.x_proj.weight", &[r + 2 * n, e], MATRIX, by_fan_in(e));
    add("mixer.dt_proj.weight", &[e, r], MATRIX, by_fan_in(r));
    add("mixer.dt_proj.bias", &[e], PLAIN, Init::InverseSoftplusLogUniform { min: c.dt_min, max: c.dt_max });
    if c.rotates() {
        let a_log = vec![(-ROTATING_A).ln(); e * n / 2];
        add("mixer.A_log", &[e, n / 2], PLAIN, Init::Values(a_log));
        add("mixer.theta", &[n / 2, e], PLAIN, Init::Values(angles(c, layer)));
    } else {
        let row = (1..=n).map(|k| (k as f32).ln());
        add("mixer.A_log", &[e, n], PLAIN, Init::Values((0..e).flat_map(|_| row.clone()).collect()));
    }
    add("mixer.D", &[e], PLAIN, Init::Ones);
    let bound = ((e * c.n_layers) as f32).sqrt().recip();
    add("mixer.out_proj.weight", &[d, e], MATRIX, Init::Uniform(bound));
    if c.proj_bias {
        add("mixer.out_proj.bias", &[d], PLAIN, Init::Zeros);
    }
}

/// Places of a block's parameters in the flat buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockSlots {
    pub norm: Slot,
    pub in_w: Slot,
    pub in_b: Option<Slot>,
    pub conv_w: Slot,
    pub conv_b: Option<Slot>,
    pub x_w: Slot,
    pub dt_w: Slot,
    pub dt_b: Slot,
    pub a_log: Slot,
    /// Angles, where the state rotates.
    pub theta: Option<Slot>,
    pub learns_theta: bool,
    pub d_skip: Slot,
    pub out_w: Slot,
    pub out_b: Option<Slot>,
}

/// Places of all parameters.
#[derive(Debug, Clone)]
pub(super) struct MambaSlots {
    /// Weight and bias.
    pub input: Option<[Slot; 2]>,
    pub blocks: Vec<BlockSlots>,
    pub norm_f: Slot,
}

impl MambaSlots {
    /// # Errors
    /// `Config` naming a parameter that is not there.
    pub fn find(c: &MambaConfig, layout: &ParamLayout) -> Result<Self> {
        let input = c.input_proj.then(|| slots(layout, "input_proj.", ["weight", "bias"])).transpose()?;
        let blocks = (0..c.n_layers).map(|i| BlockSlots::find(c, layout, i)).collect::<Result<_>>()?;
        Ok(MambaSlots { input, blocks, norm_f: layout.slot("backbone.norm_f.weight")? })
    }
}

impl BlockSlots {
    fn find(c: &MambaConfig, layout: &ParamLayout, layer: usize) -> Result<Self> {
        let prefix = format!("backbone.layers.{layer}.");
        let mixer = format!("{prefix}mixer.");
        let some = |there: bool, name: &str| there.then(|| layout.slot(&format!("{mixer}{name}"))).transpose();
        let names = ["in_proj.weight", "conv1d.weight", "x_proj.weight", "dt_proj.weight", "dt_proj.bias"];
        let [in_w, conv_w, x_w, dt_w, dt_b] = slots(layout, &mixer, names)?;
        let [a_log, d_skip, out_w] = slots(layout, &mixer, ["A_log", "D", "out_proj.weight"])?;
        Ok(BlockSlots {
            norm: layout.slot(&format!("{prefix}norm.weight"))?,
            in_w,
            in_b: some(c.proj_bias, "in_proj.bias")?,
            conv_w,
            conv_b: some(c.conv_bias, "conv1d.bias")?,
            x_w,
            dt_w,
            dt_b,
            a_log,
            theta: some(c.rotates(), "theta")?,
            learns_theta: c.rotate == Rotate::Learned,
            d_skip,
            out_w,
            out_b: some(c.proj_bias, "out_proj.bias")?,
        })
    }
}
