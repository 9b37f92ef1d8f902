//! Can a body hold what a memory task asks for, and learn to, when it is told every right answer?
//!
//!     cargo run --release --example memory_probe -- TASK UPDATES SEED [SEED ...] [--only BODY] [--batch N]
//!     cargo run --release --example memory_probe -- count 6000 1 2 3
//!
//! TASK: `count` (CountRecallEasy: how often was the asked colour shown), `first` (RepeatFirstMedium: the first of 415 suits),
//! `reverse` (AutoencodeEasy: recite 52 suits backwards). Fresh episodes at every update, cross-entropy at the steps that have an
//! answer, Adam 3e-3 (head 1e-3), gradient clipped at norm 1; one layer of width 64 (two for `reverse`) and a hidden layer of
//! 128, as preset `popgym` has them. No reinforcement: what is left is the body.
//!
//! Printed per run: updates until the accuracy, a mean over 50 updates before they are learnt from, is 0.9, 0.95 and 0.99; the
//! accuracy by thirds of the answers (counts) or of the episode; how far back the state reaches, 1 / (Δ |A|) in steps at Δ's
//! bias, as 10 %, 50 % and 90 % quantiles over all states, and the share of the gradient of the last answer that arrives in the
//! first tenth of the episode, each before and after.

use std::process::ExitCode;
use std::sync::Arc;

use mamba_rl::Result;
use mamba_rl::backbone::{
    self, Backbone, BackboneConfig, MambaConfig, Parts, RnnConfig, Rotate, SeqGrad, SeqGradOut, SeqShape, Sequence,
};
use mamba_rl::device::{Cpu, Slot, View, ViewMut};
use mamba_rl::ops::adamw::{AdamW, AdamWStep};
use mamba_rl::ops::elementwise::Elementwise;
use mamba_rl::ops::linear::{Linear, LinearGrad, LinearIn, LinearShape};
use mamba_rl::ops::reduce::Reduce;
use mamba_rl::params::{Group, Init, ParamLayout, ParamSpec, Params};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

const WIDTH: usize = 64;
const HIDDEN: usize = 128;
/// Updates over which accuracy is averaged.
const WINDOW: usize = 50;
const CLIP: f64 = 1.0;

/// What is asked.
#[derive(Clone, Copy, PartialEq)]
enum Task {
    Count,
    First,
    Reverse,
}

impl Task {
    fn of(word: &str) -> Option<Self> {
        match word {
            "count" => Some(Task::Count),
            "first" => Some(Task::First),
            "reverse" => Some(Task::Reverse),
            _ => None,
        }
    }

    /// Steps, inputs, classes, layers.
    fn sizes(self) -> (usize, usize, usize, usize) {
        match self {
            Task::Count => (51, 4, 27, 1),
            Task::First => (415, 4, 4, 1),
            Task::Reverse => (103, 6, 4, 2),
        }
    }

    /// One episode: the ones of the input of each step, and its answer.
    fn draw(self, rng: &mut ChaCha8Rng) -> Vec<(Vec<usize>, Option<usize>)> {
        let mut deck = |n: usize, of: usize| {
            let mut cards: Vec<usize> = (0..n).map(|card| card % of).collect();
            cards.shuffle(rng);
            cards
        };
        match self {
            Task::Count => {
                let (values, queries, mut seen) = (deck(52, 2), deck(52, 2), [0; 2]);
                let step = |(&v, &q): (&usize, &usize)| {
                    seen[v] += 1;
                    (vec![v, 2 + q], Some(seen[q]))
                };
                values.iter().zip(&queries).take(51).map(step).collect()
            }
            Task::First => {
                let cards = deck(416, 4);
                cards.iter().take(415).map(|&c| (vec![c], Some(cards[0]))).collect()
            }
            Task::Reverse => {
                let cards = deck(52, 4);
                let watch = cards[..51].iter().map(|&c| (vec![1, 2 + c], None));
                let recite =
                    cards.iter().rev().enumerate().map(|(i, &c)| (vec![0, 2 + if i == 0 { c } else { 0 }], Some(c)));
                watch.chain(recite).collect()
            }
        }
    }
}

/// A body with a hidden layer and a linear one, its optimiser and its task.
struct Probe {
    task: Task,
    shape: SeqShape,
    dev: Cpu,
    body: Box<dyn Backbone<Cpu>>,
    params: Params<Cpu>,
    /// Weights and biases of the two layers of the head.
    head: [Slot; 4],
    state: Parts<Cpu>,
    tape: Parts<Cpu>,
    scratch: Parts<Cpu>,
    /// [T, B, inputs], [T, B, 64], [T, B, 128], [T, B, classes] and the gradients of the first three.
    x: Vec<f32>,
    y: Vec<f32>,
    hidden: Vec<f32>,
    logits: Vec<f32>,
    g_x: Vec<f32>,
    g_y: Vec<f32>,
    g_hidden: Vec<f32>,
    /// [T][B].
    answers: Vec<Option<usize>>,
    grads: Vec<f32>,
    moments: [Vec<f32>; 2],
    updates: u64,
    rng: ChaCha8Rng,
}

impl Probe {
    fn new(config: &BackboneConfig, task: Task, batch: usize, seed: u64) -> Result<Self> {
        let (time, inputs, classes, _) = task.sizes();
        let shape = SeqShape { time, batch };
        let (dev, mut rng) = (Cpu::new(), ChaCha8Rng::seed_from_u64(seed));
        let mut body = backbone::build::<Cpu>(config)?;
        let mut specs = body.parameters();
        for (name, d_out, d_in) in [("hidden", HIDDEN, WIDTH), ("out", classes, HIDDEN)] {
            let init = || Init::Uniform((d_in as f32).sqrt().recip());
            specs.push(ParamSpec::new(format!("head.{name}.weight"), &[d_out, d_in], Group::HeadsDecayed, init()));
            specs.push(ParamSpec::new(format!("head.{name}.bias"), &[d_out], Group::HeadsPlain, init()));
        }
        let layout = Arc::new(ParamLayout::new(specs)?);
        body.bind(&layout)?;
        let params = Params::new(&dev, layout.clone(), &layout.initial(&mut rng))?;
        let (n, rows) = (layout.len(), shape.rows());
        let slot = |name: &str| layout.slot(&format!("head.{name}"));
        Ok(Probe {
            task,
            shape,
            dev,
            params,
            head: [slot("hidden.weight")?, slot("hidden.bias")?, slot("out.weight")?, slot("out.bias")?],
            state: Parts::zeros(&dev, body.state_layout(), batch)?,
            tape: Parts::zeros(&dev, &body.tape_layout(shape), 1)?,
            scratch: Parts::zeros(&dev, &body.scratch_layout(shape, true), 1)?,
            x: vec![0.0; rows * inputs],
            y: vec![0.0; rows * WIDTH],
            hidden: vec![0.0; rows * HIDDEN],
            logits: vec![0.0; rows * classes],
            g_x: vec![0.0; rows * inputs],
            g_y: vec![0.0; rows * WIDTH],
            g_hidden: vec![0.0; rows * HIDDEN],
            answers: vec![None; rows],
            body,
            grads: vec![0.0; n],
            moments: [vec![0.0; n], vec![0.0; n]],
            updates: 0,
            rng,
        })
    }

    fn draw(&mut self) {
        let inputs = self.task.sizes().1;
        self.x.fill(0.0);
        for row in 0..self.shape.batch {
            for (t, (ones, answer)) in self.task.draw(&mut self.rng).into_iter().enumerate() {
                let at = t * self.shape.batch + row;
                ones.iter().for_each(|one| self.x[at * inputs + one] = 1.0);
                self.answers[at] = answer;
            }
        }
    }

    /// Forward, then the gradient of the mean cross-entropy over the answers from step `from` on; right and wrong answers as
    /// (answer, step, right).
    fn pass(&mut self, from: usize) -> Result<Vec<(usize, usize, bool)>> {
        let (rows, dev) = (self.shape.rows(), self.dev);
        let (_, inputs, classes, _) = self.task.sizes();
        self.state.bufs.iter_mut().for_each(|part| part.fill(0.0));
        let seq =
            Sequence::<Cpu> { shape: self.shape, x: View::new(&self.x, 0, self.x.len()), reset: None, valid: None };
        let out = ViewMut::new(&mut self.y, 0, rows * WIDTH);
        self.body.forward(&dev, &self.params, seq, &mut self.state, &mut self.scratch, out, Some(&mut self.tape))?;
        let [w1, b1, w2, b2] = self.head;
        let first = LinearShape { rows, d_in: WIDTH, d_out: HIDDEN };
        let second = LinearShape { rows, d_in: HIDDEN, d_out: classes };
        let view = |slot| self.params.view(slot);
        let features =
            |b: Option<Slot>| LinearIn { x: View::new(&self.y, 0, rows * WIDTH), w: view(w1), b: b.map(view) };
        dev.linear(first, features(Some(b1)), ViewMut::new(&mut self.hidden, 0, rows * HIDDEN), false)?;
        dev.relu(ViewMut::new(&mut self.hidden, 0, rows * HIDDEN))?;
        let units = View::new(&self.hidden, 0, rows * HIDDEN);
        let top = |b: Option<Slot>| LinearIn { x: units, w: view(w2), b: b.map(view) };
        dev.linear(second, top(Some(b2)), ViewMut::new(&mut self.logits, 0, rows * classes), false)?;
        let said = cross_entropy(&self.answers, &mut self.logits, classes, from * self.shape.batch, self.shape.batch);
        self.grads.fill(0.0);
        let g = LinearGrad {
            g_y: View::new(&self.logits, 0, rows * classes),
            g_x: Some(ViewMut::new(&mut self.g_hidden, 0, rows * HIDDEN)),
            g_params: &mut self.grads,
            w: w2,
            b: Some(b2),
        };
        dev.linear_bwd(second, top(None), g)?;
        dev.relu_bwd(units, ViewMut::new(&mut self.g_hidden, 0, rows * HIDDEN))?;
        let g = LinearGrad {
            g_y: View::new(&self.g_hidden, 0, rows * HIDDEN),
            g_x: Some(ViewMut::new(&mut self.g_y, 0, rows * WIDTH)),
            g_params: &mut self.grads,
            w: w1,
            b: Some(b1),
        };
        dev.linear_bwd(first, features(None), g)?;
        self.g_x.fill(0.0);
        let from = SeqGrad { g_y: View::new(&self.g_y, 0, rows * WIDTH), g_state: None };
        let g_x = Some(ViewMut::new(&mut self.g_x, 0, rows * inputs));
        let to = SeqGradOut { g_params: &mut self.grads, g_x, g_state: None };
        self.body.backward(&dev, &self.params, seq, &self.tape, &mut self.scratch, from, to)?;
        Ok(said)
    }

    /// What was said on a fresh batch, which is then learnt from.
    fn update(&mut self) -> Result<Vec<(usize, usize, bool)>> {
        self.draw();
        let said = self.pass(0)?;
        let norm = self.dev.sum_squares(View::new(&self.grads, 0, self.grads.len()))?.sqrt();
        self.updates += 1;
        let head = self.head[0].at;
        for (lr, slot) in [(3e-3, Slot { at: 0, len: head }), (1e-3, Slot { at: head, len: self.grads.len() - head })] {
            let step = AdamWStep {
                lr,
                beta1: 0.9,
                beta2: 0.999,
                eps: 1e-5,
                weight_decay: 0.0,
                t: self.updates,
                grad_scale: (CLIP / norm.max(CLIP)) as f32,
            };
            let [m, v] = &mut self.moments;
            self.dev.adamw(step, slot, &mut self.params.flat, &self.grads, m, v)?;
        }
        Ok(said)
    }

    /// Share of the gradient of the last answer that arrives in the first tenth of the inputs.
    fn early_gradient(&mut self) -> Result<f64> {
        self.draw();
        self.pass(self.shape.time - 1)?;
        let per = self.g_x.len() / self.shape.time;
        let size = |g: &[f32]| g.iter().map(|g| f64::from(*g).abs()).sum::<f64>();
        Ok(size(&self.g_x[..per * (self.shape.time / 10)]) / size(&self.g_x))
    }

    /// Quantiles over all states of 1 / (Δ |A|) at Δ's bias, in steps; nothing for a body without them.
    fn reach(&self) -> Option<[f64; 3]> {
        let layout = self.params.layout.clone();
        let mut all = Vec::new();
        for layer in 0..self.task.sizes().3 {
            let of = |name: &str| Some(layout.slot(&format!("backbone.layers.{layer}.mixer.{name}")).ok()?.range());
            let (bias, decays) = (of("dt_proj.bias")?, of("A_log")?);
            let (bias, decays) = (&self.params.flat[bias], &self.params.flat[decays]);
            for (channel, of_channel) in bias.iter().zip(decays.chunks_exact(decays.len() / bias.len())) {
                let dt = f64::from(*channel).exp().ln_1p();
                all.extend(of_channel.iter().map(|a| 1.0 / (dt * f64::from(*a).exp())));
            }
        }
        all.sort_by(f64::total_cmp);
        Some([0.1, 0.5, 0.9].map(|q| all[((all.len() - 1) as f64 * q) as usize]))
    }
}

/// Logits become the gradient of the mean cross-entropy over the answered rows from `from` on.
fn cross_entropy(
    answers: &[Option<usize>],
    logits: &mut [f32],
    classes: usize,
    from: usize,
    batch: usize,
) -> Vec<(usize, usize, bool)> {
    let answered = answers[from..].iter().flatten().count() as f32;
    let mut said = Vec::new();
    for (row, z) in logits.chunks_exact_mut(classes).enumerate() {
        let Some(answer) = answers[row].filter(|_| row >= from) else {
            z.fill(0.0);
            continue;
        };
        let largest = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        said.push((answer, row / batch, z[answer] == largest));
        z.iter_mut().for_each(|z| *z = (*z - largest).exp());
        let sum: f32 = z.iter().sum();
        z.iter_mut().for_each(|z| *z /= sum * answered);
        z[answer] -= 1.0 / answered;
    }
    said
}

fn share(said: &[(usize, usize, bool)], which: impl Fn(usize, usize) -> bool) -> f64 {
    let of: Vec<bool> = said.iter().filter(|s| which(s.0, s.1)).map(|s| s.2).collect();
    of.iter().filter(|right| **right).count() as f64 / of.len() as f64
}

fn run(name: &str, config: &BackboneConfig, task: Task, batch: usize, updates: usize, seed: u64) -> Result<()> {
    let mut probe = Probe::new(config, task, batch, seed)?;
    let before = (probe.reach(), probe.early_gradient()?);
    let (mut means, mut last, mut reached) = (Vec::new(), Vec::new(), [None; 3]);
    while means.len() < updates && reached[2].is_none() {
        let said = probe.update()?;
        means.push(share(&said, |_, _| true));
        last.push(said);
        if last.len() > WINDOW {
            last.remove(0);
        }
        let mean = means[means.len().saturating_sub(WINDOW)..].iter().sum::<f64>() / WINDOW as f64;
        for (reached, goal) in reached.iter_mut().zip([0.9, 0.95, 0.99]) {
            if reached.is_none() && mean >= goal {
                *reached = Some(means.len());
            }
        }
    }
    let said = last.concat();
    let (time, _, classes, _) = task.sizes();
    let third = |third: usize| match task {
        Task::Count => share(&said, |answer, _| (answer * 3 / classes).min(2) == third),
        _ => share(&said, |_, t| (t * 3 / time).min(2) == third),
    };
    let show = |r: Option<[f64; 3]>| r.map_or("-".to_owned(), |r| r.map(|q| format!("{q:.0}")).join(" / "));
    let [a, b, c] = reached.map(|n| n.map_or("-".to_owned(), |n| n.to_string()));
    let (reach, early) = (probe.reach(), probe.early_gradient()?);
    println!(
        "| {name} | {seed} | {a} | {b} | {c} | {:.3} at {} | {:.2}, {:.2}, {:.2} | {} → {} | {:.4} → {:.4} |",
        share(&said, |_, _| true),
        means.len(),
        third(0),
        third(1),
        third(2),
        show(before.0),
        show(reach),
        before.1,
        early
    );
    Ok(())
}

const USAGE: &str = "usage: memory_probe TASK UPDATES SEED [SEED ...] [--only BODY] [--batch N]
TASK is count, first or reverse; BODY is mamba, rotate, gru or lstm";

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut option = |name: &str| {
        let at = words.iter().position(|w| w == name)?;
        words.remove(at);
        Some(if at < words.len() { words.remove(at) } else { String::new() })
    };
    let (only, batch) = (option("--only"), option("--batch").map_or(Ok(1), |n| n.parse::<usize>()));
    let task = words.first().and_then(|w| Task::of(w));
    let numbers: Option<Vec<u64>> = words.iter().skip(1).map(|w| w.parse().ok()).collect();
    let (Some(task), Ok(batch @ 1..=1024), Some([updates, seeds @ ..])) = (task, batch, numbers.as_deref()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (_, d_input, _, n_layers) = task.sizes();
    let mamba = |rotate| {
        BackboneConfig::Mamba(MambaConfig { d_input, d_model: WIDTH, n_layers, rotate, ..MambaConfig::default() })
    };
    let rnn = RnnConfig { d_input, d_model: WIDTH, n_layers };
    let bodies = [
        ("mamba", mamba(Rotate::Off)),
        ("rotate", mamba(Rotate::Learned)),
        ("gru", BackboneConfig::Gru(rnn.clone())),
        ("lstm", BackboneConfig::Lstm(rnn)),
    ];
    println!(
        "| body | seed | updates to 0.9 | 0.95 | 0.99 | accuracy | by thirds | reach before → after | early gradient |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, config) in bodies.iter().filter(|b| only.as_ref().is_none_or(|only| only == b.0)) {
        for &seed in seeds {
            if let Err(e) = run(name, config, task, batch, *updates as usize, seed) {
                eprintln!("error: {e}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
