//! What others have reached on these tasks: `docs/popgym-published.csv`. Published results are MMER of PPO after 15 million
//! frames, under the rules before release 1.0.7; random and reference play are mean returns.
//!
//! A row of ours against a published value P, by the interval of 95 % of our mean over seeds [low, high] and a margin of
//! 0.01: beaten where low − 0.01 > P, missed where high + 0.01 < P, tied in between.

use mamba_rl::{Error, Result};

const TABLE: &str = include_str!("../../../docs/popgym-published.csv");

/// How near counts as the same.
pub const MARGIN: f64 = 0.01;

/// One row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Plain name of the task.
    pub task: String,
    /// `mmer`, `random` or `reference`.
    pub kind: String,
    /// Who.
    pub model: String,
    /// Its return.
    pub value: f64,
    /// Where it stands.
    pub source: String,
}

/// Against a published value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Clearly above.
    Beaten,
    /// The same within the margin and our interval.
    Tied,
    /// Clearly below.
    Missed,
}

impl Verdict {
    /// Of our interval against a published value.
    pub fn of((low, high): (f64, f64), published: f64) -> Verdict {
        if low - MARGIN > published {
            Verdict::Beaten
        } else if high + MARGIN < published {
            Verdict::Missed
        } else {
            Verdict::Tied
        }
    }

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Beaten => "beaten",
            Verdict::Tied => "tied",
            Verdict::Missed => "missed",
        }
    }
}

/// All rows.
///
/// # Errors
/// `Config` naming a line that is none.
pub fn table() -> Result<Vec<Published>> {
    parse(TABLE)
}

fn parse(text: &str) -> Result<Vec<Published>> {
    let row = |(n, line): (usize, &str)| {
        // the source is the last column and may hold commas
        let columns: Vec<&str> = line.splitn(6, ',').collect();
        let bad = || Error::config("popgym-published.csv", format!("line {}: no row of the table: {line}", n + 1));
        let [task, kind, model, value, _, source] = columns[..] else { return Err(bad()) };
        let value = value.parse().map_err(|_| bad())?;
        let text = |t: &str| t.to_owned();
        Ok(Published { task: text(task), kind: text(kind), model: text(model), value, source: text(source) })
    };
    text.lines().enumerate().skip(1).map(row).collect()
}

/// The best value of a kind that a task has; of equals the first.
pub fn best<'a>(rows: &'a [Published], task: &str, kind: &str) -> Option<&'a Published> {
    let mut best: Option<&Published> = None;
    for row in rows.iter().filter(|r| r.task == task && r.kind == kind) {
        if best.is_none_or(|b| row.value > b.value) {
            best = Some(row);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole_and_names_our_tasks() {
        let rows = table().unwrap();
        let known: Vec<String> = mamba_rl_envs::list().into_iter().map(|s| s.name).collect();
        for row in &rows {
            assert!(known.contains(&row.task), "{row:?}");
            assert!(["mmer", "random", "reference"].contains(&row.kind.as_str()), "{row:?}");
            assert!(row.source.len() > 20 && (-1.0..=1.0).contains(&row.value), "{row:?}");
        }
        assert_eq!(
            best(&rows, "RepeatPreviousHard", "mmer").map(|r| (r.model.as_str(), r.value)),
            Some(("LMU", 0.191))
        );
        assert_eq!(best(&rows, "PositionOnlyCartPoleEasy", "mmer").map(|r| r.value), Some(1.0));
        assert_eq!(best(&rows, "MineSweeperEasy", "mmer"), None);
    }

    #[test]
    fn verdicts_by_hand() {
        assert_eq!(Verdict::of((0.52, 0.6), 0.5), Verdict::Beaten);
        assert_eq!(Verdict::of((0.505, 0.6), 0.5), Verdict::Tied);
        assert_eq!(Verdict::of((0.3, 0.7), 0.5), Verdict::Tied);
        assert_eq!(Verdict::of((0.3, 0.495), 0.5), Verdict::Tied);
        assert_eq!(Verdict::of((0.3, 0.48), 0.5), Verdict::Missed);
        assert!(parse("head\na,mmer,GRU,high,,x").is_err() && parse("head\na,b").is_err());
    }
}
