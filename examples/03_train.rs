//! The library in place of the command: the same run, the same folder, the same files.
//! `cargo run --release --example 03_train -- /tmp/my_run`

use mamba_rl::config::Flags;
use mamba_rl::network::Session;
use mamba_rl::train;

fn main() -> mamba_rl::Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "runs/example_train".into());
    let flags =
        Flags { env: Some("RepeatPreviousEasy".into()), steps: Some(20_000), seed: Some(1), ..Flags::default() };
    let config = train::plan(&["backbone.d_model=32", "eval.episodes=20"], &flags)?; // preset < these < flags
    let result = train::train(&config, dir.as_ref())?;
    println!("greedy return {:?} after {} steps in {:.1} s", result.eval_return_mean, result.steps, result.wall_s);

    let report = train::evaluate(dir.as_ref(), 20, 1000)?; // fresh episodes
    println!("again: {:.3} ± {:.3}", report.eval_return_mean, report.eval_return_std);
    let _agent = Session::from_checkpoint(&dir)?; // and 09_serve plays it
    Ok(())
}
