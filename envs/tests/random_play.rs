//! Random play returns what it does in POPGym 1.0.7: a check of the distributions (shuffles, boards, mines, mazes,
//! starts) that recorded episodes with their hidden state given cannot make.
//!
//! Reference: exact by arithmetic where actions are answers (−0.5, or 2 / (number of actions) − 1, or 0); else measured
//! on the package, mean and standard error as given in the table.

use mamba_rl_envs::{ActionBuffer, Autoreset, EnvArgs, VecEnv, make, random_action};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Mean return of random play and its standard error.
fn random_play(name: &str, episodes: usize) -> (f64, f64) {
    let mut envs = VecEnv::new(&|_| make(name, &EnvArgs::default()), 20, 11, Autoreset::SameStep).unwrap();
    let space = envs.spec().action_space.clone();
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    envs.reset().unwrap();
    // The same number of episodes of each copy: the first to finish must not be favoured.
    let mut returns: Vec<Vec<f64>> = vec![Vec::new(); 20];
    while returns.iter().any(|r| r.len() < episodes / 20) {
        let mut actions = ActionBuffer::for_space(&space, 0);
        (0..20).for_each(|_| assert!(actions.extend(random_action(&space, None, &mut rng).view())));
        let b = envs.step(actions.view()).unwrap();
        for (i, r) in returns.iter_mut().enumerate() {
            if (b.terminated[i] || b.truncated[i]) && r.len() < episodes / 20 {
                r.push(b.episode_return[i]);
            }
        }
    }
    let all: Vec<f64> = returns.concat();
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    let variance = all.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

#[test]
fn random_returns_are_those_of_the_package() {
    compare(None);
}

#[test]
#[ignore = "ten thousand episodes of 48 tasks take about a minute"]
fn random_returns_of_ten_thousand_episodes_are_those_of_the_package() {
    compare(Some(10_000));
}

/// `all` episodes of every task, or the table's number.
fn compare(all: Option<usize>) {
    // Family; reference mean at Easy, Medium, Hard; standard error of the reference (rounding included); episodes here.
    let table: [(&str, [f64; 3], f64, usize); 16] = [
        ("RepeatFirst", [-0.5; 3], 0.0, 400),
        ("RepeatPrevious", [-0.5; 3], 0.0, 1_000),
        ("Autoencode", [-0.5; 3], 0.0, 1_000),
        ("CountRecall", [2.0 / 27.0 - 1.0, 2.0 / 27.0 - 1.0, 2.0 / 17.0 - 1.0], 0.0, 1_000),
        ("HigherLower", [0.0; 3], 0.0, 2_000),
        ("MultiarmedBandit", [0.0; 3], 0.0, 1_000),
        ("Battleship", [-0.452, -0.415, -0.399], 0.002, 4_000),
        ("MineSweeper", [-0.229, -0.398, -0.431], 0.005, 4_000),
        ("Concentration", [-0.19, -0.18, -0.83], 0.006, 1_000),
        ("PositionOnlyCartPole", [0.11, 0.06, 0.04], 0.005, 2_000),
        ("NoisyPositionOnlyCartPole", [0.11; 3], 0.005, 2_000),
        ("VelocityOnlyCartPole", [0.11, 0.06, 0.04], 0.005, 2_000),
        ("PositionOnlyPendulum", [0.24, 0.25, 0.24], 0.008, 1_000),
        ("NoisyPositionOnlyPendulum", [0.24; 3], 0.008, 1_000),
        ("LabyrinthEscape", [-0.41, -0.83, -0.97], 0.03, 400),
        ("LabyrinthExplore", [-0.34, -0.62, -0.75], 0.05, 200),
    ];
    let mut far = Vec::new();
    for (family, reference, reference_error, episodes) in table {
        for (level, reference) in ["Easy", "Medium", "Hard"].into_iter().zip(reference) {
            let (mean, error) = random_play(&format!("{family}{level}"), all.unwrap_or(episodes));
            let allowed = 4.0 * (error * error + reference_error * reference_error).sqrt();
            println!("{family}{level}: {mean:.4} ± {error:.4}, reference {reference:.4}");
            if (mean - reference).abs() > allowed {
                far.push(format!("{family}{level}: {mean} is not {reference} ± {allowed}"));
            }
        }
    }
    assert!(far.is_empty(), "{}", far.join("\n"));
}
