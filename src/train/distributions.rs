//! What TensorBoard shows beside curves: at each evaluation, histograms of what the learner saw, and once the run's settings
//! on the HPARAMS page, with the metrics by which runs are compared. Neither is in `metrics.jsonl`.

use serde_json::Value;

use crate::config::Config;
use crate::error::Result;
use crate::learner::{Learner, Update};
use crate::logger::{HparamValue, Logger};
use crate::replay::SequenceBatch;

/// Gradient norms kept between two evaluations at most; further ones are left out of the histogram.
const NORMS: usize = 100_000;
/// Sections of the config that change what is learnt.
const SECTIONS: [&str; 10] =
    ["env", "agent", "backbone", "network", "input", "learner", "exploration", "replay", "train", "eval"];

/// Numbers since the last histograms.
#[derive(Debug, Default)]
pub(super) struct Distributions {
    grad_norms: Vec<f32>,
    /// Of the actions taken, and δ, at learnt steps of the last batch.
    q: Vec<f32>,
    td: Vec<f32>,
}

impl Distributions {
    pub fn update(&mut self, u: &Update) {
        if self.grad_norms.len() < NORMS {
            self.grad_norms.push(u.grad_norm as f32);
        }
    }

    /// Histograms at a step, where an evaluation gives the batch of the learner's last update.
    pub fn show(&mut self, logger: &mut Logger, step: u64, learner: &dyn Learner, batch: Option<&SequenceBatch>) {
        let Some(batch) = batch else { return };
        let (td, target) = learner.errors();
        let len = batch.slots - batch.burn_in;
        self.q.clear();
        self.td.clear();
        if td.len() == batch.batch * len {
            for (i, (&td, &target)) in td.iter().zip(&target).enumerate() {
                let at = batch.at(batch.burn_in + i % len.max(1), i / len.max(1));
                if batch.valid[at] != 0 && batch.learn[at] != 0 {
                    self.q.push(target - td);
                    self.td.push(td);
                }
            }
        }
        for (tag, values) in [
            ("distributions/q_values", &self.q),
            ("distributions/td_error", &self.td),
            ("distributions/grad_norm", &self.grad_norms),
        ] {
            if !values.is_empty() {
                logger.histogram(tag, step, values);
            }
        }
        self.grad_norms.clear();
    }
}

/// Describes the run: its config as a text, and its settings on the HPARAMS page.
pub(super) fn describe(logger: &mut Logger, config: &Config) -> Result<()> {
    logger.text("config", 0, &format!("```toml\n{}\n```", config.to_toml()?));
    let tree = serde_json::to_value(config).unwrap_or_default();
    let mut settings = Vec::new();
    for section in SECTIONS {
        for (key, value) in tree[section].as_object().into_iter().flatten() {
            let value = match value {
                Value::Number(n) => HparamValue::Number(n.as_f64().unwrap_or(f64::NAN)),
                Value::Bool(b) => HparamValue::Bool(*b),
                Value::String(s) => HparamValue::Text(s.clone()),
                _ => continue,
            };
            settings.push((format!("{section}.{key}"), value));
        }
    }
    let metrics = ["eval/return_mean", "eval/best_return", "train/mmer"].map(|tag| (tag, f64::NAN));
    logger.hparams(&settings, &metrics);
    Ok(())
}
