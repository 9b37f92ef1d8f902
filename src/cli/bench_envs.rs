//! The part `envs` of `mamba-rl bench`: steps per second of every bundled task by number of copies, one thread.

use std::io::Write;
use std::time::Duration;

use mamba_rl_envs::throughput::all_rates;
use serde_json::{Map, Value, json};

const COPIES: [usize; 2] = [1, 64];
/// For each task and number of copies.
const BUDGET: Duration = Duration::from_millis(60);

/// What gets each rate as it comes: id, copies, steps per second.
pub type Each<'a> = dyn FnMut(&str, usize, f64) -> std::io::Result<()> + 'a;

/// `{id: {copies: steps per second}}`.
pub fn measure(each: &mut Each<'_>) -> anyhow::Result<Value> {
    let mut envs = Map::new();
    let mut written = Ok(());
    all_rates(&COPIES, BUDGET, &mut |id, copies, rate| {
        let rates = envs.entry(id).or_insert_with(|| json!({}));
        rates[copies.to_string()] = json!(rate.round());
        if written.is_ok() {
            written = each(id, copies, rate);
        }
    })?;
    written?;
    Ok(Value::Object(envs))
}

/// The table for people.
pub fn print(out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "\n{:42} {:>10} {:>10}   million environment steps/s, one thread", "TASK", "1 COPY", "64 COPIES")?;
    let mut first = 0.0;
    measure(&mut |id, copies, rate| {
        if copies == COPIES[0] {
            first = rate;
            return Ok(());
        }
        writeln!(out, "{id:42} {:>10.1} {:>10.1}", first / 1e6, rate / 1e6)?;
        out.flush()
    })?;
    Ok(())
}
