//! Runs with continuous actions through the command: train, evaluate, inspect, roll out, begin from weights, asynchronously.

#![cfg(all(feature = "cli", unix))]

#[path = "support/cases_run.rs"]
mod cases_run;

use cases_run::{CONTINUOUS, Runs, rows, train};
use serde_json::Value;

/// Finished by whatever learns something: 2,400 steps.
fn sets(more: &[&'static str]) -> Vec<&'static str> {
    [CONTINUOUS, &["train.steps=2400", "eval.every=0", "checkpoint.every=0"], more].concat()
}

#[test]
fn a_run_is_evaluated_inspected_and_played() {
    let runs = Runs::new();
    runs.whole("r", &sets(&[]));
    let result = runs.json("r/result.json");
    assert_eq!((&result["agent"], &result["preset"]), (&Value::from("rsac"), &Value::from("continuous")));
    assert!(result["updates"].as_u64().expect("updates") > 20);
    let last = rows(&runs.path("r")).pop().expect("a line");
    for tag in ["losses/policy_loss", "learner/entropy", "learner/temperature", "losses/td_loss", "losses/q_values"] {
        assert!(last[tag].as_f64().is_some_and(f64::is_finite), "{tag}: {last:?}");
    }
    assert!(!last.contains_key("charts/epsilon_mean"), "there is no ε");
    // evaluation repeats
    let eval = |seed: &str| -> Value {
        let d = runs.ok(&["eval", "r", "--episodes", "6", "--seed", seed, "--json"]);
        serde_json::from_str(&d.out).expect("JSON")
    };
    let (one, other) = (eval("3"), eval("4"));
    assert_eq!(one, eval("3"));
    assert_ne!(one["eval_return_mean"], other["eval_return_mean"]);
    // what a checkpoint says of itself
    let info = runs.ok(&["info", "r"]).out;
    for word in ["agent rsac", "critic.backbone.norm_f.weight", "head.critic.1.out.weight [1, 8]", "head.log_alpha [1]"]
    {
        assert!(info.contains(word), "`{word}` is not in: {info}");
    }
    // greedy episodes within the bounds, the same each time
    let play = || runs.ok(&["rollout", "--policy", "r", "--episodes", "2", "--seed", "5", "--jsonl"]).out;
    let text = play();
    assert_eq!(text, play());
    let mut largest: f64 = 0.0;
    for line in text.lines() {
        let episode: Value = serde_json::from_str(line).expect("an episode");
        let actions = episode["actions"].as_array().expect("actions");
        assert_eq!(actions.len(), 100);
        for a in actions {
            let a = a.as_f64().or_else(|| a[0].as_f64()).expect("a torque");
            assert!((-2.0..=2.0).contains(&a), "{a}");
            largest = largest.max(a.abs());
        }
    }
    assert!(largest > 0.01, "it moves: {largest}");
    let frames = runs.ok(&["eval", "r", "--episodes", "1", "--render"]).out;
    assert!(frames.contains("step 100"), "{frames}");
}

#[test]
fn weights_begin_another_run_where_they_fit() {
    let runs = Runs::new();
    runs.whole("a", &sets(&[]));
    let from_a =
        |dir: &'static str, more: &[&'static str]| [&train(dir, &sets(more))[..], &["--init-from", "a"]].concat();
    runs.ok(&from_a("b", &["train.seed=2", "train.steps=80"]));
    let model = |dir: &str, step: &str| {
        std::fs::read(runs.path(&format!("{dir}/checkpoints/step-{step}/model.safetensors"))).expect("weights")
    };
    // no update yet: the weights stand
    assert!(model("a", "2400") == model("b", "80"));
    runs.fails(&from_a("c", &["agent.shared_encoder=true"]), 2, &["shared_encoder", "true", "false"]);
    runs.fails(&from_a("c", &["env.id=popgym-CountRecallMedium-v0"]), 2, &["action_space"]);
    assert!(!runs.path("c").exists());
}

#[test]
fn one_shared_trunk_whole_episodes_and_actor_threads() {
    let runs = Runs::new();
    runs.whole("s", &sets(&["agent.shared_encoder=true", "replay.layout=episode", "env.id=Pendulum-v1"]));
    let info = runs.ok(&["info", "s"]).out;
    assert!(info.contains("shared_encoder true") && !info.contains("critic.backbone"), "{info}");
    let threads = ["train.mode=async", "actor.threads=2", "learner.start_after=400"];
    let d = runs.ok(&train("t", &sets(&threads)));
    assert!(d.err.contains("not reproducible"), "{}", d.err);
    assert!(runs.json("t/result.json")["updates"].as_u64().expect("updates") > 10);
    runs.ok(&["eval", "t", "--episodes", "2"]);
    // the footprint is printed before anything is made
    let dry = runs.ok(&[&train("u", &sets(&[]))[..], &["--dry-run"]].concat()).out;
    assert!(dry.contains("# parameters") && dry.contains("name = \"rsac\"") && !runs.path("u").exists(), "{dry}");
}
