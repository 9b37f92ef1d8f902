//! A trained agent inside somebody's loop (a robot, a game): one `Session`, `observe` → action. No thread, no allocation
//! per step, `Send`. `cargo run --release --example 09_serve -- RUN_DIR`

use std::time::Instant;

use mamba_rl::network::Session;
use mamba_rl::train::make_env;
use mamba_rl_envs::ObsBuffer;

fn main() -> mamba_rl::Result<()> {
    let Some(run) = std::env::args().nth(1) else {
        return Err(mamba_rl::Error::Usage("usage: 09_serve RUN_DIR|CHECKPOINT".into()));
    };
    let mut agent = Session::from_checkpoint(&run)?;
    let d = agent.description();
    let mut world = make_env(&d.env, d.legacy, &d.env_args)?; // stands for your sensors and motors
    let mut obs = ObsBuffer::for_space(&world.spec().observation_space, 1);
    world.reset(Some(7), obs.view_mut())?;
    let (mut reward, mut first, mut total, mut steps, mut busy) = (0.0, true, 0.0, 0, 0.0);
    loop {
        let begun = Instant::now();
        let action = agent.observe(obs.view(), None, reward, first)?; // its memory moves on
        busy += begun.elapsed().as_secs_f64();
        let step = world.step(action, obs.view_mut())?;
        (reward, first, total, steps) = (step.reward as f32, false, total + step.reward, steps + 1);
        if step.done() {
            break;
        }
    }
    println!("return {total:.3} in {steps} steps, {:.1} µs a decision", 1e6 * busy / f64::from(steps));
    Ok(())
}
