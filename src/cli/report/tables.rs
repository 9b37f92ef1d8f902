//! The tables of a report, as Markdown: who is first, against published values, over all tasks, and every number in detail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::groups::{Cell, Row, Spread, backbones};
use super::published::{MARGIN, Published, Verdict, best};
use super::statistics::{interval, iqm};
use crate::cli::text::{number, thousands};

/// Below this many seeds a row says so.
const SEEDS: usize = 3;
/// The body that the library is about.
const OURS: &str = "mamba";

/// `0.987`, and no `-0.000`.
fn fixed(x: f64) -> String {
    let text = format!("{x:.3}");
    if text == "-0.000" { "0.000".to_owned() } else { text }
}

fn range((low, high): (f64, f64)) -> String {
    format!("{} to {}", fixed(low), fixed(high))
}

fn or_dash(x: Option<String>) -> String {
    x.unwrap_or_else(|| "-".to_owned())
}

fn count(x: f64) -> String {
    thousands(x.round() as u64)
}

/// Text in a cell of a table.
fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// One line of a table.
fn line(out: &mut String, cells: &[String]) {
    // a String takes everything
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn head(out: &mut String, names: &[String]) {
    line(out, names);
    let _ = writeln!(out, "|{}", "---|".repeat(names.len()));
}

fn words(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

/// Name of a row: the task, and the label where that says more.
fn title(row: &Row<'_>) -> String {
    if row.label == row.env { plain(&row.env) } else { format!("{} (`{}`)", plain(&row.env), plain(&row.label)) }
}

/// Who is first where: greedy return by backbone, seeds that reached the target, the published value and what became of it.
pub fn summary(rows: &[Row<'_>], published: &[Published]) -> String {
    let bodies = backbones(rows);
    let mut out = String::from(
        "## Summary\n\nGreedy return of the last evaluation, mean over seeds; in brackets the seeds that reached the target.\n\n",
    );
    let mut names = words(&["task"]);
    let targets = rows.iter().any(|r| r.target().is_some());
    names.extend(targets.then(|| "target".to_owned()));
    names.extend(bodies.iter().cloned());
    let main = main_body(&bodies);
    names.extend([
        "first".to_owned(),
        format!("MMER, {main}"),
        "published best (MMER)".to_owned(),
        format!("{main} by MMER"),
        "by greedy return".to_owned(),
    ]);
    head(&mut out, &names);
    let mut few = Vec::new();
    for row in rows {
        let first = row.first(MARGIN);
        let mut cells = vec![title(row)];
        if targets {
            cells.push(or_dash(row.target().map(|(t, n)| format!("{} in {}", number(t), thousands(n)))));
        }
        for body in &bodies {
            let wins = first.as_ref().is_some_and(|f| f.backbones == [body.as_str()]);
            cells.push(or_dash(row.cell(body).map(|c| short(c, wins))));
        }
        cells.push(or_dash(first.map(|f| {
            let by = if f.by_steps { " (fewer steps)" } else { "" };
            format!("{}{by}", f.backbones.join(" = "))
        })));
        let cell = row.cell(main);
        let theirs = best(published, &row.env, "mmer");
        let (mmer, greedy) = (cell.and_then(Cell::mmer), cell.and_then(Cell::greedy));
        cells.push(or_dash(mmer.as_ref().map(|m| fixed(m.mean()))));
        cells.push(or_dash(theirs.map(|p| format!("{} ({})", fixed(p.value), plain(&p.model)))));
        cells.push(or_dash(verdict(mmer.as_ref(), theirs).map(|v| v.word().to_owned())));
        cells.push(or_dash(verdict(greedy.as_ref(), theirs).map(|v| v.word().to_owned())));
        line(&mut out, &cells);
        few.extend(row.cells.iter().filter(|c| c.runs.len() < SEEDS).map(|c| format!("{} {}", title(row), c.backbone)));
    }
    out += "\n";
    out += &tally(rows, &bodies, published);
    if !few.is_empty() {
        let _ = writeln!(out, "\nFewer than {SEEDS} seeds, so hints and no results: {}.", few.join(", "));
    }
    out
}

/// The body whose numbers stand beside published ones.
fn main_body(bodies: &[String]) -> &str {
    bodies.iter().find(|b| *b == OURS).or(bodies.first()).map_or(OURS, String::as_str)
}

fn short(cell: &Cell<'_>, wins: bool) -> String {
    let mean = or_dash(cell.greedy().map(|g| fixed(g.mean())));
    let mean = if wins { format!("**{mean}**") } else { mean };
    match cell.reached() {
        Some(r) => format!("{mean} ({} of {})", r.seeds.0, r.seeds.1),
        None => mean,
    }
}

fn verdict(ours: Option<&Spread>, theirs: Option<&Published>) -> Option<Verdict> {
    Some(Verdict::of(ours?.mean_interval(), theirs?.value))
}

/// Rows won, and published rows beaten, in words.
fn tally(rows: &[Row<'_>], bodies: &[String], published: &[Published]) -> String {
    let mut out = String::new();
    let firsts: Vec<_> = rows.iter().filter_map(|r| r.first(MARGIN)).collect();
    if !firsts.is_empty() {
        let won = |b: &String| firsts.iter().filter(|f| f.backbones == [b.as_str()]).count();
        let list: Vec<String> = bodies.iter().map(|b| format!("{b} {}", won(b))).collect();
        let shared = firsts.iter().filter(|f| f.backbones.len() > 1).count();
        let _ = writeln!(
            out,
            "First in {} rows with more than one backbone: {}; shared {shared}. Returns within {MARGIN} of the best count as equal, \
             then the median of steps to the target decides where all seeds reached it.",
            firsts.len(),
            list.join(", ")
        );
    }
    let held = |b: &String| {
        let reached = |r: &&Row<'_>| {
            let mean = r.cell(b).and_then(Cell::greedy).map(|g| g.mean());
            r.target().zip(mean).is_some_and(|((target, _), mean)| mean >= target)
        };
        let asked = rows.iter().filter(|r| r.target().is_some() && r.cell(b).is_some());
        (asked.clone().filter(reached).count(), asked.count())
    };
    let list: Vec<String> =
        bodies.iter().map(|b| (b, held(b))).map(|(b, (n, of))| format!("{b} {n} of {of}")).collect();
    if rows.iter().any(|r| r.target().is_some()) {
        let _ = writeln!(out, "\nTargets reached by the mean over seeds: {}.", list.join(", "));
    }
    let main = main_body(bodies);
    type Ours = fn(&Cell<'_>) -> Option<Spread>;
    let by: [(&str, Ours); 2] = [("MMER", |c| c.mmer()), ("greedy return", |c| c.greedy())];
    let lines = by.map(|(name, ours)| {
        let verdicts: Vec<Verdict> = rows
            .iter()
            .filter_map(|r| verdict(ours(r.cell(main)?).as_ref(), best(published, &r.env, "mmer")))
            .collect();
        let n = |v: Verdict| verdicts.iter().filter(|w| **w == v).count();
        let counts = [Verdict::Beaten, Verdict::Tied, Verdict::Missed].map(|v| format!("{} {}", n(v), v.word()));
        (verdicts.len(), format!("by {name} {}", counts.join(", ")))
    });
    if lines[0].0 + lines[1].0 > 0 {
        let _ = writeln!(
            out,
            "\nPublished rows, {main}: {}; {}. Published values are MMER of PPO after 15 million frames under the rules before \
             1.0.7, training returns: MMER is the like measure, the greedy return stands beside it. Beaten or missed: the 95 % \
             interval of our mean lies above or below by more than {MARGIN}.",
            lines[0].1, lines[1].1
        );
    }
    out
}

/// What a run of each backbone costs: seconds on the wall and of the CPU, and steps per second of the CPU, which other work
/// on the machine leaves alone.
pub fn time(rows: &[Row<'_>]) -> String {
    let bodies = backbones(rows);
    let mut out = String::from(
        "\n## Time\n\nSeconds of a run, mean over seeds, evaluation included: on the wall, beside whatever else ran, / of the CPU; in brackets \
         environment steps per second of the CPU. Runs that stop at their target are shorter.\n\n",
    );
    let mut names = words(&["task"]);
    names.extend(bodies.iter().cloned());
    head(&mut out, &names);
    for row in rows {
        let mut cells = vec![title(row)];
        for body in &bodies {
            cells.push(or_dash(row.cell(body).map(|c| {
                let (wall, steps) = (c.mean_of(|r| r.wall_s), c.mean_of(|r| r.steps as f64));
                let cpu = c.mean_of(|r| r.cpu_s.unwrap_or(f64::NAN));
                let cpu = if cpu > 0.0 { format!("{cpu:.1} ({})", count(steps / cpu)) } else { "-".to_owned() };
                if wall > 0.0 { format!("{wall:.1} / {cpu}") } else { "-".to_owned() }
            })));
        }
        line(&mut out, &cells);
    }
    out
}

/// Every backbone against the published values, with random and reference play.
pub fn against(rows: &[Row<'_>], published: &[Published]) -> String {
    let known = |r: &&Row<'_>| published.iter().any(|p| p.task == r.env);
    let rows: Vec<&Row<'_>> = rows.iter().filter(known).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut out = String::from("\n## Beside published values\n\n");
    let names = [
        "task",
        "backbone",
        "seeds",
        "steps",
        "MMER [95 %]",
        "published best",
        "by MMER",
        "greedy [95 %]",
        "by greedy return",
        "random play",
        "reference play",
    ];
    head(&mut out, &words(&names));
    let mut sources: BTreeSet<&str> = BTreeSet::new();
    for row in rows {
        let [theirs, random, reference] = ["mmer", "random", "reference"].map(|k| best(published, &row.env, k));
        sources.extend([theirs, random, reference].into_iter().flatten().map(|p| p.source.as_str()));
        let named = |p: Option<&Published>| or_dash(p.map(|p| format!("{} ({})", fixed(p.value), plain(&p.model))));
        for cell in &row.cells {
            let (mmer, greedy) = (cell.mmer(), cell.greedy());
            let with = |s: &Option<Spread>| {
                or_dash(s.as_ref().map(|s| format!("{} [{}]", fixed(s.mean()), range(s.mean_interval()))))
            };
            let word = |s: &Option<Spread>| or_dash(verdict(s.as_ref(), theirs).map(|v| v.word().to_owned()));
            line(
                &mut out,
                &[
                    title(row),
                    cell.backbone.clone(),
                    cell.runs.len().to_string(),
                    count(cell.mean_of(|r| r.steps as f64)),
                    with(&mmer),
                    named(theirs),
                    word(&mmer),
                    with(&greedy),
                    word(&greedy),
                    or_dash(random.map(|p| fixed(p.value))),
                    named(reference),
                ],
            );
        }
    }
    out += "\nSources:\n\n";
    for source in sources {
        let _ = writeln!(out, "- {source}.");
    }
    out
}

/// Interquartile means over all rows that every backbone has, returns scaled to 0..1 by the task's range.
pub fn overall(rows: &[Row<'_>]) -> String {
    let bodies = backbones(rows);
    let scaled = |x: f64, range: Option<(f64, f64)>| range.filter(|(a, b)| b > a).map(|(a, b)| (x - a) / (b - a));
    let strata = |body: &String, of: fn(&crate::cli::results::Record) -> Option<f64>, row: &Row<'_>| {
        // Seeds that a backbone has alone would weigh its row heavier than the others' is weighed.
        let shared = |seed| bodies.iter().all(|b| row.cell(b).is_some_and(|c| c.runs.iter().any(|r| r.seed == seed)));
        let runs = row.cell(body)?.runs.iter().filter(|r| shared(r.seed));
        let values: Option<Vec<f64>> = runs.map(|r| scaled(of(r)?, r.return_range)).collect();
        values.filter(|v| !v.is_empty())
    };
    let full = |r: &&Row<'_>| bodies.iter().all(|b| strata(b, |r| r.greedy_mean, r).is_some());
    let shared: Vec<&Row<'_>> = rows.iter().filter(full).collect();
    if shared.len() < 2 || bodies.len() < 2 {
        return String::new();
    }
    let mut out = format!(
        "\n## Over {} rows\n\nInterquartile mean over the runs, row and seed, that every backbone has, returns scaled by the task's \
         range to 0..1; 95 % interval by a stratified bootstrap over seeds (Agarwal et al., 2021).\n\n",
        shared.len()
    );
    head(&mut out, &words(&["backbone", "runs", "greedy: IQM [95 %]", "MMER: IQM [95 %]"]));
    for body in &bodies {
        let cell = |of: fn(&crate::cli::results::Record) -> Option<f64>| {
            let all: Vec<Vec<f64>> = shared.iter().filter_map(|r| strata(body, of, r)).collect();
            let flat: Vec<f64> = all.iter().flatten().copied().collect();
            let text = format!("{} [{}]", fixed(iqm(&flat)), range(interval(&all, iqm)));
            (flat.len(), if all.len() == shared.len() { text } else { "-".to_owned() })
        };
        let (greedy, mmer) = (cell(|r| r.greedy_mean), cell(|r| r.mmer));
        line(&mut out, &[body.clone(), greedy.0.to_string(), greedy.1, mmer.1]);
    }
    out
}

/// Every number, task by task. `picture` gives the file of a task's curves.
pub fn details(rows: &[Row<'_>], picture: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::from(
        "\n## Details\n\nMean ± standard deviation over seeds. IQM: interquartile mean with its 95 % bootstrap interval. MMER: maximum \
         over windows of the mean training return. Frames: steps learnt from, all updates together. Steps, updates, frames and \
         seconds: means over seeds; steps to the target: an upper bound at the resolution of `eval.every`.\n",
    );
    let mut last = None;
    for (i, row) in rows.iter().enumerate() {
        if last != Some(&row.env) {
            last = Some(&row.env);
            let _ = writeln!(out, "\n### {}\n", plain(&row.env));
            if let Some(file) = picture(&row.env) {
                let _ = writeln!(out, "![Curves of {}]({file})\n", plain(&row.env));
            }
            head(
                &mut out,
                &words(&[
                    "setting",
                    "backbone",
                    "seeds",
                    "greedy",
                    "worst",
                    "IQM [95 %]",
                    "MMER",
                    "ΔQ",
                    "reached",
                    "steps to it: median; range",
                    "steps",
                    "updates",
                    "frames",
                    "wall s",
                    "CPU s",
                ]),
            );
        }
        row.cells.iter().for_each(|cell| line(&mut out, &detail(row, cell)));
        if rows.get(i + 1).is_none_or(|next| next.env != row.env) {
            out += "\n";
            rows.iter().filter(|r| r.env == row.env).for_each(|r| out += &settings(r));
        }
    }
    out
}

fn detail(row: &Row<'_>, cell: &Cell<'_>) -> Vec<String> {
    let spread = |s: &Spread| {
        let deviation = s.deviation().map_or_else(String::new, |d| format!(" ± {}", fixed(d)));
        format!("{}{deviation}", fixed(s.mean()))
    };
    let (greedy, mmer, reached) = (cell.greedy(), cell.mmer(), cell.reached());
    let broken = cell.runs.iter().filter(|r| r.stopped == mamba_rl::train::Stopped::Interrupted).count();
    let note = if broken > 0 { format!(" ({broken} interrupted)") } else { String::new() };
    let cpu = cell.runs.iter().all(|r| r.cpu_s.is_some());
    let steps = reached.as_ref().and_then(|r| r.steps);
    vec![
        format!("`{}`", plain(&row.label)),
        cell.backbone.clone(),
        format!("{}{note}", cell.runs.len()),
        or_dash(greedy.as_ref().map(spread)),
        or_dash(greedy.as_ref().map(|g| fixed(g.min()))),
        or_dash(greedy.as_ref().map(|g| format!("{} [{}]", fixed(g.iqm()), range(g.iqm_interval())))),
        or_dash(mmer.as_ref().map(spread)),
        or_dash(cell.delta_q().as_ref().map(spread)),
        or_dash(reached.map(|r| format!("{}: {} of {}", number(r.target), r.seeds.0, r.seeds.1))),
        or_dash(steps.map(|(m, a, b)| format!("{}; {} to {}", count(m), thousands(a), thousands(b)))),
        count(cell.mean_of(|r| r.steps as f64)),
        count(cell.mean_of(|r| r.updates as f64)),
        count(cell.mean_of(|r| r.frames as f64)),
        count(cell.mean_of(|r| r.wall_s)),
        or_dash(cpu.then(|| count(cell.mean_of(|r| r.cpu_s.unwrap_or(f64::NAN))))),
    ]
}

/// What a row's runs were set to, once for backbones that agree.
fn settings(row: &Row<'_>) -> String {
    let mut said: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for cell in &row.cells {
        for r in &cell.runs {
            let mut parts = vec![format!("preset {}", r.preset), format!("at most {} steps", thousands(r.budget))];
            parts.extend(r.set.iter().map(|(k, v)| format!("{k} = {v}")));
            parts.push(format!("version {}", r.version));
            let bodies = said.entry(parts.join(", ")).or_default();
            if !bodies.contains(&cell.backbone.as_str()) {
                bodies.push(&cell.backbone);
            }
        }
    }
    let one = said.len() == 1;
    let say = |(text, bodies): (String, Vec<&str>)| {
        let who = if one { String::new() } else { format!(", {}", bodies.join(", ")) };
        format!("`{}`{who}: {}.  \n", plain(&row.label), plain(&text))
    };
    said.into_iter().map(say).collect()
}
