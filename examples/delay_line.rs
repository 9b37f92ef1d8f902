//! A delay line, learnt: at every step say which of four symbols was shown LAG steps before.
//!
//!     cargo run --release --example delay_line -- LAG UPDATES SEED [SEED ...] [--only BODY] [--d-state N]
//!     cargo run --release --example delay_line -- 31 1000 1 2 3
//!
//! Random symbols, fresh at every update; sequences of max(103, 2 LAG) steps, as many as make about 1,648 steps a batch (16 of
//! 103, 4 of 400); cross-entropy at the steps that have an answer; Adam 3e-3 without decay, gradient clipped at norm 1. One
//! layer of width 64, no reinforcement. Chance is 0.25. Accuracy is the mean over the last 32 updates, each measured before it
//! is learnt from; a run ends when that reaches 0.99. Bodies: Mamba-1, a rotating state with fixed and with learnt angles, a GRU.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use mamba_rl::Result;
use mamba_rl::backbone::{
    self, Backbone, BackboneConfig, MambaConfig, Parts, RnnConfig, Rotate, SeqGrad, SeqGradOut, SeqShape, Sequence,
};
use mamba_rl::device::{Cpu, Slot, View, ViewMut};
use mamba_rl::ops::adamw::{AdamW, AdamWStep};
use mamba_rl::ops::linear::{Linear, LinearGrad, LinearIn, LinearShape};
use mamba_rl::ops::reduce::Reduce;
use mamba_rl::params::{Group, Init, ParamLayout, ParamSpec, Params};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SYMBOLS: usize = 4;
const WIDTH: usize = 64;
/// Updates over which accuracy is averaged.
const WINDOW: usize = 32;
const LEARNING_RATE: f32 = 3e-3;
const CLIP: f64 = 1.0;

/// The bodies that are compared, each with its name; states per channel for those that have channels.
pub fn bodies(d_state: usize) -> [(&'static str, BackboneConfig); 4] {
    let config = MambaConfig { d_input: SYMBOLS, d_model: WIDTH, d_state, ..MambaConfig::default() };
    let mamba = |rotate| BackboneConfig::Mamba(MambaConfig { rotate, ..config.clone() });
    [
        ("mamba", mamba(Rotate::Off)),
        ("rotate-fixed", mamba(Rotate::Fixed)),
        ("rotate-learned", mamba(Rotate::Learned)),
        ("gru", BackboneConfig::Gru(RnnConfig { d_input: SYMBOLS, d_model: WIDTH, n_layers: 1 })),
    ]
}

/// Buffers of one batch.
struct Batch {
    /// [T][B].
    symbols: Vec<usize>,
    /// One-hot symbols, [T, B, 4].
    x: Vec<f32>,
    /// Features and their gradient, [T, B, 64].
    y: Vec<f32>,
    g_y: Vec<f32>,
    /// Logits, then their gradient, [T, B, 4].
    logits: Vec<f32>,
}

/// A body with a linear head, its optimiser and its task.
pub struct Delay {
    lag: usize,
    shape: SeqShape,
    dev: Cpu,
    body: Box<dyn Backbone<Cpu>>,
    params: Params<Cpu>,
    head: [Slot; 2],
    state: Parts<Cpu>,
    tape: Parts<Cpu>,
    scratch: Parts<Cpu>,
    batch: Batch,
    grads: Vec<f32>,
    moments: [Vec<f32>; 2],
    updates: u64,
    rng: ChaCha8Rng,
}

impl Delay {
    pub fn new(config: &BackboneConfig, lag: usize, seed: u64) -> Result<Self> {
        let time = 103.max(2 * lag);
        let shape = SeqShape { time, batch: (16 * 103 / time).max(1) };
        let (dev, mut rng) = (Cpu::new(), ChaCha8Rng::seed_from_u64(seed));
        let mut body = backbone::build::<Cpu>(config)?;
        let mut specs = body.parameters();
        let init = || Init::Uniform((WIDTH as f32).sqrt().recip());
        specs.push(ParamSpec::new("head.weight", &[SYMBOLS, WIDTH], Group::HeadsDecayed, init()));
        specs.push(ParamSpec::new("head.bias", &[SYMBOLS], Group::HeadsPlain, init()));
        let layout = Arc::new(ParamLayout::new(specs)?);
        body.bind(&layout)?;
        let params = Params::new(&dev, layout.clone(), &layout.initial(&mut rng))?;
        let (n, rows) = (layout.len(), shape.rows());
        Ok(Delay {
            lag,
            shape,
            dev,
            params,
            head: [layout.slot("head.weight")?, layout.slot("head.bias")?],
            state: Parts::zeros(&dev, body.state_layout(), shape.batch)?,
            tape: Parts::zeros(&dev, &body.tape_layout(shape), 1)?,
            scratch: Parts::zeros(&dev, &body.scratch_layout(shape, true), 1)?,
            batch: Batch {
                symbols: vec![0; rows],
                x: vec![0.0; rows * SYMBOLS],
                y: vec![0.0; rows * WIDTH],
                g_y: vec![0.0; rows * WIDTH],
                logits: vec![0.0; rows * SYMBOLS],
            },
            body,
            grads: vec![0.0; n],
            moments: [vec![0.0; n], vec![0.0; n]],
            updates: 0,
            rng,
        })
    }

    /// Accuracy on a fresh batch, which is then learnt from.
    pub fn update(&mut self) -> Result<f64> {
        let (rows, dev) = (self.shape.rows(), self.dev);
        let linear = LinearShape { rows, d_in: WIDTH, d_out: SYMBOLS };
        self.draw();
        // F1  features, from the zero state             [T,B,64]
        self.state.bufs.iter_mut().for_each(|part| part.fill(0.0));
        let Batch { symbols, x, y, g_y, logits } = &mut self.batch;
        let seq = Sequence::<Cpu> { shape: self.shape, x: View::new(x, 0, x.len()), reset: None, valid: None };
        let out = ViewMut::new(y, 0, rows * WIDTH);
        self.body.forward(&dev, &self.params, seq, &mut self.state, &mut self.scratch, out, Some(&mut self.tape))?;
        // F2  logits                                    [T,B,4]
        let [w, b] = self.head;
        let features = |b| LinearIn { x: View::new(y, 0, rows * WIDTH), w: self.params.view(w), b };
        let bias = Some(self.params.view(b));
        dev.linear(linear, features(bias), ViewMut::new(logits, 0, rows * SYMBOLS), false)?;
        // F3  softmax and cross-entropy, mean over the steps with an answer
        let accuracy = cross_entropy(symbols, logits, self.lag * self.shape.batch);
        // B2, B1
        self.grads.fill(0.0);
        let g = LinearGrad {
            g_y: View::new(logits, 0, rows * SYMBOLS),
            g_x: Some(ViewMut::new(g_y, 0, rows * WIDTH)),
            g_params: &mut self.grads,
            w,
            b: Some(b),
        };
        dev.linear_bwd(linear, features(None), g)?;
        let from = SeqGrad { g_y: View::new(g_y, 0, rows * WIDTH), g_state: None };
        let to = SeqGradOut { g_params: &mut self.grads, g_x: None, g_state: None };
        self.body.backward(&dev, &self.params, seq, &self.tape, &mut self.scratch, from, to)?;
        self.step()?;
        Ok(accuracy)
    }

    fn draw(&mut self) {
        self.batch.x.fill(0.0);
        for (row, symbol) in self.batch.symbols.iter_mut().enumerate() {
            *symbol = self.rng.random_range(0..SYMBOLS);
            self.batch.x[row * SYMBOLS + *symbol] = 1.0;
        }
    }

    /// Clip and Adam.
    fn step(&mut self) -> Result<()> {
        let n = self.grads.len();
        let norm = self.dev.sum_squares(View::new(&self.grads, 0, n))?.sqrt();
        self.updates += 1;
        let step = AdamWStep {
            lr: LEARNING_RATE,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            t: self.updates,
            grad_scale: (CLIP / norm.max(CLIP)) as f32,
        };
        let [m, v] = &mut self.moments;
        self.dev.adamw(step, Slot { at: 0, len: n }, &mut self.params.flat, &self.grads, m, v)
    }
}

/// Logits become the gradient of the mean cross-entropy over the rows from `behind` on, whose answers lie `behind` rows back;
/// the share of right answers.
fn cross_entropy(symbols: &[usize], logits: &mut [f32], behind: usize) -> f64 {
    let (answered, mut right) = (symbols.len() - behind, 0);
    for (row, z) in logits.chunks_exact_mut(SYMBOLS).enumerate() {
        let Some(&answer) = row.checked_sub(behind).map(|asked| &symbols[asked]) else {
            z.fill(0.0);
            continue;
        };
        let largest = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        right += usize::from(z[answer] == largest);
        z.iter_mut().for_each(|z| *z = (*z - largest).exp());
        let sum: f32 = z.iter().sum();
        z.iter_mut().for_each(|z| *z /= sum * answered as f32);
        z[answer] -= 1.0 / answered as f32;
    }
    right as f64 / answered as f64
}

/// How a run went.
pub struct Outcome {
    /// Updates until the mean accuracy was at least 0.9, 0.95, 0.99.
    pub reached: [Option<usize>; 3],
    /// Mean accuracy of the last window.
    pub accuracy: f64,
    pub updates: usize,
    pub seconds: f64,
}

/// Learns for at most `updates` updates.
pub fn learn(config: &BackboneConfig, lag: usize, updates: usize, seed: u64) -> Result<Outcome> {
    let (begun, mut delay) = (Instant::now(), Delay::new(config, lag, seed)?);
    let (mut all, mut out) = (Vec::new(), Outcome { reached: [None; 3], accuracy: 0.0, updates: 0, seconds: 0.0 });
    while out.updates < updates && out.reached[2].is_none() {
        all.push(delay.update()?);
        out.updates += 1;
        let window = &all[all.len().saturating_sub(WINDOW)..];
        out.accuracy = window.iter().sum::<f64>() / window.len() as f64;
        for (reached, threshold) in out.reached.iter_mut().zip([0.9, 0.95, 0.99]) {
            if window.len() == WINDOW && reached.is_none() && out.accuracy >= threshold {
                *reached = Some(out.updates);
            }
        }
    }
    out.seconds = begun.elapsed().as_secs_f64();
    Ok(out)
}

fn table(bodies: &[(&str, BackboneConfig)], lag: usize, updates: usize, seeds: &[u64]) -> Result<()> {
    println!("lag {lag}, at most {updates} updates\n");
    println!("| body | seed | updates to 0.9 | to 0.95 | to 0.99 | accuracy | at update | s |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, config) in bodies {
        for &seed in seeds {
            let o = learn(config, lag, updates, seed)?;
            let [a, b, c] = o.reached.map(|n| n.map_or_else(|| "-".to_owned(), |n| n.to_string()));
            let (accuracy, s) = (o.accuracy, o.seconds);
            println!("| {name} | {seed} | {a} | {b} | {c} | {accuracy:.3} | {} | {s:.1} |", o.updates);
        }
    }
    Ok(())
}

const USAGE: &str = "usage: delay_line LAG UPDATES SEED [SEED ...] [--only BODY] [--d-state N]
BODY is mamba, rotate-fixed, rotate-learned or gru; LAG 1 to 10000, N 1 to 1024 and even where the state rotates";

/// Takes `name VALUE` out of the words; an empty value where none follows.
fn option(words: &mut Vec<String>, name: &str) -> Option<String> {
    let at = words.iter().position(|w| w == name)?;
    words.remove(at);
    Some(if at < words.len() { words.remove(at) } else { String::new() })
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let only = option(&mut words, "--only");
    let d_state = option(&mut words, "--d-state").map_or(Ok(16), |n| n.parse::<usize>());
    let numbers: Option<Vec<u64>> = words.iter().map(|w| w.parse().ok()).collect();
    let (Ok(d_state), Some([lag @ 1..=10_000, updates, seeds @ ..])) = (d_state, numbers.as_deref()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut chosen = bodies(d_state).to_vec();
    chosen.retain(|(name, _)| only.as_ref().is_none_or(|only| only == name));
    if chosen.is_empty() || seeds.is_empty() {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    match table(&chosen, *lag as usize, *updates as usize, seeds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
