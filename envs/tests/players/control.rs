//! Players of the control tasks.

use mamba_rl_envs::{ActionRef, EnvSpec};

use super::{env, mean};

/// Memoryless: push right if a linear function of the two numbers shown is positive, all directions and offsets of a
/// fine fan. Knowing: the same of the four of the state.
pub fn cart_pole(spec: &EnvSpec) -> (f64, f64) {
    let mut memoryless = 0.0f64;
    for i in 0..48 {
        let (a, b) = (std::f32::consts::TAU * i as f32 / 48.0).sin_cos();
        for scale in [1.0, 5.0, 25.0] {
            let push = |x: f32, y: f32| i32::from(a * x + b * y * scale > 0.0);
            memoryless = memoryless.max(mean(spec, 12, |_, obs, _| vec![push(obs.view().get(0), obs.view().get(1))]));
        }
    }
    let knowing = mean(spec, 12, |env, _, _| {
        let s = env.state().unwrap();
        vec![i32::from(s[2] + 0.3 * s[3] + 0.02 * s[0] + 0.05 * s[1] > 0.0)]
    });
    assert_eq!((knowing * 1e9).round(), 1e9, "a standing pole");
    (memoryless, knowing)
}

fn swing(spec: &EnvSpec, episodes: u64, mut torque: impl FnMut(&[f64], f64, f64) -> f64) -> f64 {
    let (mut env, mut obs) = env(spec);
    let mut total = 0.0;
    for seed in 0..episodes {
        env.reset(Some(seed), obs.view_mut()).unwrap();
        loop {
            let (cos, sin) = (f64::from(obs.view().get(0)), f64::from(obs.view().get(1)));
            let u = torque(&env.state().unwrap(), cos, sin).clamp(-2.0, 2.0) as f32;
            let step = env.step(ActionRef::Continuous(&[u]), obs.view_mut()).unwrap();
            total += step.reward;
            if step.done() {
                break;
            }
        }
    }
    total / episodes as f64
}

/// Memoryless: torque a sin θ + b cos θ + c. Knowing: pump energy to the top's, then hold.
pub fn pendulum(spec: &EnvSpec) -> (f64, f64) {
    let mut memoryless = f64::NEG_INFINITY;
    let values = [-8.0, -2.0, -0.5, 0.0, 0.5, 2.0, 8.0];
    for a in values {
        for b in values {
            for c in [-2.0, 0.0, 2.0] {
                memoryless = memoryless.max(swing(spec, 30, |_, cos, sin| a * sin + b * cos + c));
            }
        }
    }
    let knowing = swing(spec, 30, |s, _, _| {
        let theta = (s[0] + std::f64::consts::PI).rem_euclid(std::f64::consts::TAU) - std::f64::consts::PI;
        let energy = s[1] * s[1] / 2.0 + 15.0 * theta.cos();
        if theta.abs() < 0.6 && (s[1] + 4.0 * theta).abs() < 2.5 {
            -(12.0 * theta + 3.0 * s[1])
        } else {
            (15.3 - energy) * s[1].signum()
        }
    });
    (memoryless, knowing)
}
