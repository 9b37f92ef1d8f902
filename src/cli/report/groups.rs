//! Runs by row and backbone: a row is one setting of one task, its cells are the backbones, a cell holds the seeds.

use std::collections::BTreeMap;

use super::statistics::{deviation, interval, iqm, mean, median};
use crate::cli::results::Record;

/// The seeds of one backbone in one row.
#[derive(Debug)]
pub struct Cell<'a> {
    /// Recurrent body.
    pub backbone: String,
    /// By seed.
    pub runs: Vec<&'a Record>,
}

/// One setting of one task.
#[derive(Debug)]
pub struct Row<'a> {
    /// Plain name of the task.
    pub env: String,
    /// The setting's name.
    pub label: String,
    /// In the order of [`rank`].
    pub cells: Vec<Cell<'a>>,
}

/// A number over the seeds that have one.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// One for each seed.
    pub values: Vec<f64>,
}

impl Spread {
    fn of(values: impl Iterator<Item = Option<f64>>) -> Option<Spread> {
        let values: Vec<f64> = values.flatten().collect();
        (!values.is_empty()).then_some(Spread { values })
    }

    /// Mean over seeds.
    pub fn mean(&self) -> f64 {
        mean(&self.values)
    }

    /// Standard deviation over seeds; None for one.
    pub fn deviation(&self) -> Option<f64> {
        deviation(&self.values)
    }

    /// Worst seed.
    pub fn min(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Interquartile mean.
    pub fn iqm(&self) -> f64 {
        iqm(&self.values)
    }

    /// Interval of 95 % of the mean.
    pub fn mean_interval(&self) -> (f64, f64) {
        interval(std::slice::from_ref(&self.values), mean)
    }

    /// Interval of 95 % of the interquartile mean.
    pub fn iqm_interval(&self) -> (f64, f64) {
        interval(std::slice::from_ref(&self.values), iqm)
    }
}

/// Steps to the target over the seeds that reached it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reached {
    /// The return that counts.
    pub target: f64,
    /// Seeds that reached it, and all.
    pub seeds: (usize, usize),
    /// Median, least, most; None where no seed did.
    pub steps: Option<(f64, u64, u64)>,
}

impl Cell<'_> {
    /// Greedy return of the last evaluation.
    pub fn greedy(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|r| r.greedy_mean))
    }

    /// Largest mean training return over windows.
    pub fn mmer(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|r| r.mmer))
    }

    /// How far Q from stored states was from Q of whole episodes; None where a run kept no windows.
    pub fn delta_q(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|r| r.delta_q))
    }

    /// Steps to the target; None where there is none, or where seeds differ in it.
    pub fn reached(&self) -> Option<Reached> {
        let target = self.runs.first()?.target?;
        if self.runs.iter().any(|r| r.target != Some(target)) {
            return None;
        }
        let at: Vec<u64> = self.runs.iter().filter_map(|r| r.reached_at).collect();
        let as_floats: Vec<f64> = at.iter().map(|s| *s as f64).collect();
        let steps = at.iter().min().zip(at.iter().max()).map(|(a, b)| (median(&as_floats), *a, *b));
        Some(Reached { target, seeds: (at.len(), self.runs.len()), steps })
    }

    /// Mean over the seeds.
    pub fn mean_of(&self, value: impl Fn(&Record) -> f64) -> f64 {
        mean(&self.runs.iter().map(|r| value(r)).collect::<Vec<_>>())
    }
}

impl<'a> Row<'a> {
    /// Return to reach and environment steps to do it in; None where there is none, or where runs differ in them.
    pub fn target(&self) -> Option<(f64, u64)> {
        let mut runs = self.cells.iter().flat_map(|c| &c.runs);
        let of = |r: &Record| r.target.map(|t| (t, r.budget));
        let first = of(runs.next()?)?;
        runs.all(|r| of(r) == Some(first)).then_some(first)
    }

    /// The cell of a backbone.
    pub fn cell(&self, backbone: &str) -> Option<&Cell<'a>> {
        self.cells.iter().find(|c| c.backbone == backbone)
    }

    /// Who is first by greedy return: the highest mean and all within `margin` of it; among these, where all seeds of all of
    /// them reached the target, the one with the fewest steps to it by the median, and then `by_steps`. None for one backbone.
    pub fn first(&self, margin: f64) -> Option<First<'_>> {
        let means: Vec<(&Cell<'_>, f64)> =
            self.cells.iter().filter_map(|c| c.greedy().map(|g| (c, g.mean()))).collect();
        if means.len() < 2 {
            return None;
        }
        let best = means.iter().map(|m| m.1).fold(f64::NEG_INFINITY, f64::max);
        let near: Vec<&Cell<'_>> = means.iter().filter(|m| m.1 >= best - margin).map(|m| m.0).collect();
        let medians: Option<Vec<f64>> = near
            .iter()
            .map(|c| c.reached().filter(|r| r.seeds.0 == r.seeds.1).and_then(|r| r.steps).map(|s| s.0))
            .collect();
        let quick: Vec<&Cell<'_>> = match &medians {
            Some(medians) if near.len() > 1 => {
                let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
                near.iter().zip(medians).filter(|(_, m)| **m <= least).map(|(c, _)| *c).collect()
            }
            _ => near.clone(),
        };
        let by_steps = quick.len() < near.len();
        Some(First { backbones: quick.iter().map(|c| c.backbone.as_str()).collect(), by_steps })
    }
}

/// Who is first in a row.
#[derive(Debug, Clone, PartialEq)]
pub struct First<'a> {
    /// One, or several that cannot be told apart.
    pub backbones: Vec<&'a str>,
    /// Others have the same return, but needed more steps.
    pub by_steps: bool,
}

/// Backbones in the order in which they are shown.
fn rank(backbone: &str) -> (usize, String) {
    let known = ["mamba", "gru", "lstm", "mlp"];
    (known.iter().position(|k| *k == backbone).unwrap_or(known.len()), backbone.to_owned())
}

/// A task's family, and its level: Easy before Medium before Hard.
fn family(env: &str) -> (String, usize) {
    let levels = ["Easy", "Medium", "Hard"];
    let found = levels.iter().enumerate().find_map(|(i, l)| Some((env.strip_suffix(l)?.to_owned(), i)));
    found.unwrap_or((env.to_owned(), 0))
}

/// Rows by task and label, cells by backbone, runs by seed.
pub fn rows<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Row<'a>> {
    type Cells<'r> = BTreeMap<(usize, String), Vec<&'r Record>>;
    let mut rows: BTreeMap<((String, usize), String, String), Cells<'a>> = BTreeMap::new();
    for r in records {
        let cells = rows.entry((family(&r.env), r.label.clone(), r.env.clone())).or_default();
        cells.entry(rank(&r.backbone)).or_default().push(r);
    }
    let row = |((_, label, env), cells): ((_, String, String), Cells<'a>)| {
        let cell = |((_, backbone), mut runs): (_, Vec<&'a Record>)| {
            runs.sort_by_key(|r| r.seed);
            Cell { backbone, runs }
        };
        Row { env, label, cells: cells.into_iter().map(cell).collect() }
    };
    rows.into_iter().map(row).collect()
}

/// All backbones of all rows, in order.
pub fn backbones(rows: &[Row<'_>]) -> Vec<String> {
    let mut all: Vec<String> = rows.iter().flat_map(|r| r.cells.iter().map(|c| c.backbone.clone())).collect();
    all.sort_by_key(|b| rank(b));
    all.dedup();
    all
}
