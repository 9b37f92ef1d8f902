//! A task of your own: typed, checked, registered, trained. Remember the bit that was shown first.
//! `cargo run --release --example 04_custom_env -- FOLDER`

use mamba_rl::{config::Flags, train};
use mamba_rl_envs::{Entry, Env, EnvArgs, EnvSpec, Space, Step, Stream, check, erase, make, register};
use rand::RngExt;

struct FirstBit(EnvSpec, Stream, u8, usize); // spec, random numbers, the bit, steps so far

impl Env for FirstBit {
    type Obs = u8;
    type Act = i32;

    fn spec(&self) -> &EnvSpec {
        &self.0
    }

    fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
        (self.2, self.3) = (u8::from(self.1.begin(seed).random::<bool>()), 0);
        obs[0] = 1 + self.2;
    }

    fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
        (self.3, obs[0]) = (self.3 + 1, 0); // nothing to see any more
        let right = action[0] == i32::from(self.2);
        Step { reward: if right { 0.1 } else { -0.1 }, terminated: self.3 == 10, truncated: false }
    }
}

fn first_bit() -> FirstBit {
    let spec = EnvSpec::new("FirstBit-v0", "FirstBit", Space::Discrete(3), Space::Discrete(2));
    let (max_steps, return_range) = (Some(10), (-1.0, 1.0));
    FirstBit(EnvSpec { max_steps, return_range, unit_reward: 0.1, ..spec }, Stream::default(), 0, 0)
}

fn main() -> mamba_rl::Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "runs/example_env".into());
    register(Entry::new(first_bit().0, vec![], |_| Ok(erase(first_bit()))))?;
    check(&|| make("FirstBit-v0", &EnvArgs::default()))?; // the contract of a task, as one call
    let flags = Flags { env: Some("FirstBit-v0".into()), steps: Some(10_000), ..Flags::default() };
    let result = train::train(&train::plan(&[], &flags)?, dir.as_ref())?;
    println!("greedy return {:.3} after {} steps", result.eval_return_mean.unwrap_or(f64::NAN), result.steps);
    Ok(())
}
