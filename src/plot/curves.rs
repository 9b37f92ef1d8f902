//! Gathers runs into curves: mean, lowest and highest run, interquartile mean, at the steps that all runs of the group cover.
//! A run's value between two of its points is interpolated linearly.

use super::{
    By, TAGS,
    runs::{Points, Run, Settings},
};
use std::collections::{BTreeMap, BTreeSet};

/// Points kept of one curve; more are finer than any picture.
const MAX_POINTS: usize = 1000;

/// Settings named in a label at most; where more differ, the folder's name says it shorter.
const MAX_NAMED: usize = 3;

/// From how many runs on the interquartile mean is drawn: below, it is the mean.
const IQM_FROM: usize = 4;

/// One curve of the picture. The vectors have one element per step of `steps`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Name in the legend.
    pub label: String,
    /// Environment of the panel; all of them where curves are environments.
    pub panel: String,
    /// Tag that was drawn; both where runs differ.
    pub tag: String,
    /// Environment steps that all runs cover; empty if they share none.
    pub steps: Vec<f64>,
    /// Mean over the runs.
    pub mean: Vec<f64>,
    /// Lowest run.
    pub min: Vec<f64>,
    /// Highest run.
    pub max: Vec<f64>,
    /// Interquartile mean; empty below four runs.
    pub iqm: Vec<f64>,
    /// Each run's own points (environment step, return).
    pub runs: Vec<Vec<(f64, f64)>>,
}

/// Curves that share axes.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub title: String,
    pub curves: Vec<Curve>,
}

/// Runs that share a curve: by label, then by settings where these matter.
type Groups<'a> = BTreeMap<(String, Option<&'a Settings>), Vec<&'a Run>>;

/// The panels in order of their titles, each curve in order of its label.
pub(super) fn panels(runs: &[Run], by: Option<By>) -> Vec<Panel> {
    let mut panels: BTreeMap<String, Groups<'_>> = BTreeMap::new();
    for run in runs {
        let (panel, label, settings) = match by {
            Some(By::Env) => ("all environments".to_owned(), run.env.clone(), None),
            Some(By::Backbone) => (run.env.clone(), run.backbone.clone(), None),
            Some(By::Agent) => (run.env.clone(), run.agent.clone(), None),
            None => (run.env.clone(), format!("{}-{}", run.agent, run.backbone), Some(&run.settings)),
        };
        panels.entry(panel).or_default().entry((label, settings)).or_default().push(run);
    }
    let panel = |(title, groups): (String, Groups<'_>)| {
        let mut curves: Vec<Curve> = groups
            .iter()
            .map(|((label, own), group)| curve(name(label, *own, group, &groups), &title, group))
            .collect();
        curves.sort_by(|a, b| a.label.cmp(&b.label));
        Panel { title, curves }
    };
    panels.into_iter().map(panel).collect()
}

/// The label, with the settings in which the group differs from others of that label.
fn name(label: &str, own: Option<&Settings>, group: &[&Run], groups: &Groups<'_>) -> String {
    let Some(own) = own else { return label.to_owned() };
    let others: Vec<&Settings> = groups.keys().filter(|key| key.0 == label).filter_map(|key| key.1).collect();
    let keys: BTreeSet<&String> = others.iter().flat_map(|other| other.keys()).collect();
    let differ: Vec<&String> =
        keys.into_iter().filter(|key| others.iter().any(|other| other.get(*key) != own.get(*key))).collect();
    let named: Vec<String> = differ.iter().filter_map(|key| Some(format!("{key} = {}", own.get(*key)?))).collect();
    match differ.len() {
        0 => label.to_owned(),
        1..=MAX_NAMED if named.is_empty() => label.to_owned(),
        1..=MAX_NAMED => format!("{label} ({})", named.join(", ")),
        _ => format!("{label} ({})", group[0].name),
    }
}

fn curve(label: String, panel: &str, group: &[&Run]) -> Curve {
    let runs: Vec<Points> = group.iter().map(|run| run.points.clone()).collect();
    let tag = if group.iter().all(|run| run.tag == group[0].tag) { group[0].tag.to_owned() } else { TAGS.join(" or ") };
    let steps = common_steps(&runs);
    let mut curve = Curve { label, panel: panel.to_owned(), tag, ..Curve::default() };
    for &step in &steps {
        let mut values: Vec<f64> = runs.iter().map(|points| at(points, step)).collect();
        values.sort_by(f64::total_cmp);
        curve.mean.push(mean(&values));
        curve.min.push(values[0]);
        curve.max.push(values[values.len() - 1]);
        if values.len() >= IQM_FROM {
            curve.iqm.push(interquartile_mean(&values));
        }
    }
    Curve { steps, runs, ..curve }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean of the middle half: floor(n/4) values are left out at either end. NaN for no values. `sorted` rises.
pub fn interquartile_mean(sorted: &[f64]) -> f64 {
    let cut = sorted.len() / 4;
    mean(&sorted[cut..sorted.len() - cut])
}

/// All steps between the latest begin and the earliest end, thinned to [`MAX_POINTS`] with the last one kept.
fn common_steps(runs: &[Points]) -> Vec<f64> {
    let ends = runs.iter().filter_map(|points| Some((points.first()?.0, points.last()?.0)));
    let (from, to) = ends.fold((f64::NEG_INFINITY, f64::INFINITY), |(a, b), (x, y)| (a.max(x), b.min(y)));
    let mut steps: Vec<f64> = runs.iter().flatten().map(|p| p.0).filter(|s| (from..=to).contains(s)).collect();
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    let stride = steps.len().div_ceil(MAX_POINTS).max(1);
    let last = steps.len().saturating_sub(1);
    steps.into_iter().enumerate().filter(|(i, _)| (last - i).is_multiple_of(stride)).map(|(_, s)| s).collect()
}

/// The run's value at `step`, which lies between its first and its last point.
fn at(points: &[(f64, f64)], step: f64) -> f64 {
    let next = points.partition_point(|p| p.0 < step).min(points.len() - 1);
    let (x1, y1) = points[next];
    let (x0, y0) = points[next.saturating_sub(1)];
    if x1 <= step || x1 <= x0 { y1 } else { y0 + (y1 - y0) * (step - x0) / (x1 - x0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interquartile_mean_by_hand() {
        assert_eq!(interquartile_mean(&[0.0, 1.0, 3.0, 100.0]), 2.0);
        assert_eq!(interquartile_mean(&[0.0, 1.0, 2.0, 3.0, 100.0]), 2.0);
        assert_eq!(interquartile_mean(&[1.0, 2.0, 6.0]), 3.0);
    }

    #[test]
    fn interpolation_and_common_steps_by_hand() {
        let a = vec![(0.0, 0.0), (10.0, 1.0), (30.0, 5.0)];
        let b = vec![(5.0, 2.0), (20.0, 2.0)];
        assert_eq!([0.0, 5.0, 10.0, 20.0, 30.0].map(|s| at(&a, s)), [0.0, 0.5, 1.0, 3.0, 5.0]);
        assert_eq!(common_steps(&[a.clone(), b]), [5.0, 10.0, 20.0]);
        assert!(common_steps(&[a, vec![(40.0, 1.0)]]).is_empty());
    }
}
