//! Where along an episode the answers are right:
//! mamba-rl rollout --env popgym-AutoencodeEasy-v0 --policy RUN --episodes 200 --seed 1 --jsonl | cargo run --release --example answer_profile
//!
//! Reads recorded episodes, one JSON object a line, and prints for each stretch of rewarded steps the share of rewards
//! above zero: in the memory tasks, the share of right answers. `--parts N` cuts the episode into N stretches (default 13).

use std::io::BufRead;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let parts: usize = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => 13,
        [flag, n] if flag == "--parts" => n.parse()?,
        _ => return Err("usage: answer_profile [--parts N] < episodes.jsonl".into()),
    };
    // (right, asked) by step
    let mut steps: Vec<(u64, u64)> = Vec::new();
    let mut episodes = 0u64;
    for line in std::io::stdin().lock().lines() {
        let episode: serde_json::Value = serde_json::from_str(&line?)?;
        let rewards = episode["rewards"].as_array().ok_or("a line has no `rewards`")?;
        episodes += 1;
        steps.resize(steps.len().max(rewards.len()), (0, 0));
        for (step, reward) in steps.iter_mut().zip(rewards) {
            let reward = reward.as_f64().ok_or("a reward is not a number")?;
            step.0 += u64::from(reward > 0.0);
            step.1 += u64::from(reward != 0.0);
        }
    }
    let asked: Vec<usize> = (0..steps.len()).filter(|&t| steps[t].1 > 0).collect();
    println!("{episodes} episodes, {} rewarded steps each\n\n| steps | right |\n|---|---|", asked.len());
    for stretch in asked.chunks(asked.len().div_ceil(parts.max(1)).max(1)) {
        let (right, all) = stretch.iter().fold((0, 0), |(r, a), &t| (r + steps[t].0, a + steps[t].1));
        println!("| {} to {} | {:.2} |", stretch[0], stretch[stretch.len() - 1], right as f64 / all as f64);
    }
    Ok(())
}
