//! Draws every family of tasks in mid-episode into a folder: the pictures of the README, and beside each one a line of
//! Markdown that holds it as a data URI, which the task's rustdoc page includes (rustdoc copies no files).
//!
//! cargo run --release -p mamba-rl-envs --features render --example pictures -- envs/docs

use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use mamba_rl_envs::{EnvArgs, EnvError, EnvSpec, ObsBuffer, Result, list, make, random_action, render};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Random play up to a third of the longest episode, or to a few steps before its end.
fn mid_episode(spec: &EnvSpec, seed: u64) -> Result<render::Image> {
    let steps = spec.max_steps.unwrap_or(30) / 3;
    let mut best = None;
    for seed in seed..seed + 200 {
        let mut env = make(&spec.id, &EnvArgs::default())?;
        let (mut obs, mut rng) = (ObsBuffer::for_space(&spec.observation_space, 1), ChaCha8Rng::seed_from_u64(seed));
        env.reset(Some(seed), obs.view_mut())?;
        let mut step = 0;
        while step < steps {
            let action = random_action(&spec.action_space, None, &mut rng);
            if env.step(action.view(), obs.view_mut())?.done() {
                break;
            }
            step += 1;
            if best.as_ref().is_none_or(|(longest, _)| step > *longest) {
                best = Some((step, render::frame(env.as_ref(), &format!("{}  step {step}", spec.name))));
            }
        }
        if step == steps {
            break;
        }
    }
    Ok(best.map_or_else(|| render::draw(&mamba_rl_envs::Picture::lines(&spec.name), ""), |(_, image)| image))
}

fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "envs/docs".to_owned()));
    for spec in list().into_iter().filter(|s| !s.name.ends_with("Medium") && !s.name.ends_with("Hard")) {
        let name = spec.name.trim_end_matches("Easy");
        let file = folder.join(format!("{name}.png"));
        render::write_png(&file, &mid_episode(&spec, 1)?)?;
        let page = file.with_extension("md");
        let io = |file: &Path| {
            let file = file.display().to_string();
            move |source| EnvError::Io { file, source }
        };
        let bytes = STANDARD.encode(std::fs::read(&file).map_err(io(&file))?);
        let text = format!("\n![{name} in mid-episode, played at random](data:image/png;base64,{bytes})\n");
        std::fs::write(&page, text).map_err(io(&page))?;
        println!("{}", file.display());
    }
    Ok(())
}
