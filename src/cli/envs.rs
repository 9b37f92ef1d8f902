//! `mamba-rl envs`: the tasks, for people or as JSON.

use std::io::Write;

use mamba_rl_envs::EnvSpec;
use serde_json::{Value, json};

use super::Outcome;

/// Arguments of `envs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print a JSON list
    #[arg(long)]
    json: bool,
}

/// Lists the tasks.
pub fn run(args: &Args, out: &mut dyn Write) -> Outcome {
    let specs = mamba_rl_envs::list();
    if args.json {
        let list: Vec<Value> = specs.iter().map(to_json).collect();
        serde_json::to_writer_pretty(&mut *out, &list).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(0);
    }
    let width = |f: fn(&EnvSpec) -> String| specs.iter().map(|s| f(s).chars().count()).max().unwrap_or(0);
    let (id, obs, act) = (width(|s| s.id.clone()), width(observation), width(action));
    writeln!(out, "{:id$}  {:obs$}  {:act$}  {:>6}  HIDDEN", "ID", "OBSERVATION", "ACTION", "STEPS")?;
    for s in &specs {
        let steps = s.max_steps.map_or_else(|| "-".to_owned(), |n| n.to_string());
        writeln!(out, "{:id$}  {:obs$}  {:act$}  {steps:>6}  {}", s.id, observation(s), action(s), s.hidden)?;
    }
    writeln!(out, "\n{} tasks; short names work too: --env RepeatPreviousEasy", specs.len())?;
    Ok(0)
}

fn observation(s: &EnvSpec) -> String {
    short(&s.observation_space.to_string())
}

fn action(s: &EnvSpec) -> String {
    short(&s.action_space.to_string())
}

/// Long lists of components do not fit a table.
fn short(space: &str) -> String {
    if space.chars().count() <= 44 { space.to_owned() } else { space.chars().take(41).chain("...".chars()).collect() }
}

fn to_json(s: &EnvSpec) -> Value {
    json!({
        "id": s.id,
        "name": s.name,
        "aliases": s.aliases,
        "observation_space": s.observation_space.to_string(),
        "action_space": s.action_space.to_string(),
        "max_steps": s.max_steps,
        "hidden": s.hidden,
        "unit_reward": s.unit_reward,
        "prompt_rewards": s.prompt_rewards,
        "suggested_gamma": s.suggested_gamma,
        "suggested_d_conv": s.suggested_d_conv,
        "suggested_rotate": s.suggested_rotate,
        "suggested_batch": s.suggested_batch,
        "doc": s.doc,
    })
}
