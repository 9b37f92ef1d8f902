//! Suites by hand: what they expand to, and every way in which one can be wrong, with its line.

use super::*;

fn jobs(text: &str) -> Vec<Job> {
    parse(text, "s.toml", "s").unwrap_or_else(|e| panic!("{e}")).jobs
}

fn titles(text: &str) -> Vec<String> {
    jobs(text).iter().map(Job::title).collect()
}

/// The suite is refused with these words.
fn refused(text: &str, words: &[&str]) {
    let e = parse(text, "s.toml", "s").expect_err(text);
    assert!(e.is_usage(), "{text}: {e}");
    for word in words {
        assert!(e.to_string().contains(word), "`{word}` is not in: {e}\n{text}");
    }
}

const RUN: &str = "[[run]]\nenv = \"RepeatFirstEasy\"\nsteps = 6400\n";

#[test]
fn a_run_expands_to_tasks_seeds_and_backbones() {
    let text = "[defaults]\nbackbones = [\"mamba\", \"gru\"]\nseeds = \"1-2\"\nsteps = 12_800\n[[run]]\nlabel = \"first\"\n\
                env = [\"RepeatFirstEasy\", \"popgym-RepeatFirstMedium-v0\"]\n[[run]]\nenv = \"TMaze\"\nbackbones = [\"mlp\"]\nseeds = [7]\n";
    let want = [
        "first-RepeatFirstEasy/mamba/1",
        "first-RepeatFirstEasy/gru/1",
        "first-RepeatFirstEasy/mamba/2",
        "first-RepeatFirstEasy/gru/2",
        "first-RepeatFirstMedium/mamba/1",
        "first-RepeatFirstMedium/gru/1",
        "first-RepeatFirstMedium/mamba/2",
        "first-RepeatFirstMedium/gru/2",
        "TMaze/mlp/7",
    ];
    assert_eq!(titles(text), want);
    let first = &jobs(text)[3];
    assert_eq!(first.name(), "first-RepeatFirstEasy__gru__s2");
    assert_eq!((first.config.train.seed, first.config.train.steps, first.config.train.threads), (2, 12_800, 1));
    assert_eq!(first.spec.id, "popgym-RepeatFirstEasy-v0");
}

#[test]
fn nearer_settings_win_and_the_arguments_repeat_the_run() {
    let text = "[defaults]\nset = { \"eval.every\" = 640, learner.batch = 4, learner.lr_heads = 0.5 }\nsteps = 6400\nthreads = 2\n\
                [[run]]\nlabel = \"x\"\nenv = \"RepeatFirstEasy\"\nbackbones = [\"mamba\", \"gru\"]\nseeds = [3]\n\
                set = { learner.batch = 6, train.stop_return = 0.9, replay.layout = \"window\" }\n\
                only.mamba.set = { \"learner.batch\" = 7, backbone.d_conv = 2 }\nonly.gru = { seeds = [3, 4], target = 1, steps = 9600 }\n";
    let found = jobs(text);
    assert_eq!(found.iter().map(Job::title).collect::<Vec<_>>(), ["x/mamba/3", "x/gru/3", "x/gru/4"]);
    let (mamba, gru) = (&found[0], &found[1]);
    assert_eq!((mamba.config.batch(), gru.config.batch()), (7, 6));
    assert_eq!((mamba.config.d_conv(), mamba.config.eval.every, mamba.config.learner.lr_heads), (2, 640, 0.5));
    // the return at which a run stops counts as reached, unless told otherwise
    assert_eq!((mamba.target, gru.target), (Some(0.9), Some(1.0)));
    assert_eq!((mamba.config.train.steps, gru.config.train.steps), (6400, 9600));
    let args = mamba.arguments();
    let want = [
        "train",
        "--preset",
        "popgym",
        "--env",
        "popgym-RepeatFirstEasy-v0",
        "--backbone",
        "mamba",
        "--seed",
        "3",
        "--steps",
        "6400",
        "--set",
        "train.threads=2",
        "--set",
        "backbone.d_conv=2",
        "--set",
        "eval.every=640",
        "--set",
        "learner.batch=7",
        "--set",
        "learner.lr_heads=0.5",
        "--set",
        "replay.layout=\"window\"",
        "--set",
        "train.stop_return=0.9",
    ];
    assert_eq!(args, want);
    // what the arguments come to is what was checked
    let sets: Vec<String> = args.iter().skip(11).filter(|a| *a != "--set").cloned().collect();
    let flags = Flags {
        env: Some(mamba.spec.id.clone()),
        backbone: Some("mamba".into()),
        steps: Some(6400),
        seed: Some(3),
        ..Flags::default()
    };
    assert_eq!(resolve(Some("popgym"), &sets, &flags).unwrap().0, mamba.config);
}

#[test]
fn continuous_tasks_have_their_preset_and_arguments_of_tasks_pass() {
    let job = &jobs("[[run]]\nenv = \"Pendulum-v1\"\nsteps = 6400\n")[0];
    assert_eq!((job.config.preset.as_str(), job.config.agent.name.as_str()), ("continuous", "rsac"));
    let job = &jobs("[[run]]\nenv = \"TMaze\"\nsteps = 6400\nset.env.args.length = 7\n")[0];
    assert!(job.arguments().contains(&"env.args.length=7".to_owned()), "{:?}", job.arguments());
    assert_eq!(job.config.env.args["length"].as_integer(), Some(7));
}

#[test]
fn wrong_suites_are_refused_with_their_line() {
    refused("", &["s.toml", "[[run]]"]);
    refused("[[run]\n", &["line 1"]);
    refused("\n[[run]]\nenvs = 1\n", &["line 3", "envs", "env"]);
    refused("[defaults]\nstep = 1\n", &["line 2", "step"]);
    refused("[[run]]\nsteps = 640\n", &["line 1", "`env`"]);
    refused("\n[[run]]\nenv = \"RepeatFirstEasy\"\n", &["line 2", "`steps`"]);
    refused("[[run]]\nenv = 3\nsteps = 640\n", &["line 2", "`env`"]);
    refused("[[run]]\nenv = []\nsteps = 640\n", &["line 2", "`env`"]);
    refused("[[run]]\nenv = \"RepeatFirstEasy\"\nsteps = 0\n", &["line 3", "`steps` is 0"]);
    refused("[[run]]\nenv = \"RepeatFirstEasy\"\nsteps = 6.5\n", &["line 3", "6.5"]);
    refused(
        "[[run]]\nenv = \"RepeatFirstEasy\"\nsteps = 3\n",
        &["line 1", "RepeatFirstEasy", "train.steps", "num_envs"],
    );
    refused("[[run]]\nlabel = \"x\"\nenv = \"RepeatFirstEsy\"\nsteps = 640\n", &["line 1", "`x`", "RepeatFirstEsy"]);
    for seeds in ["[]", "[1, 1]", "[-1]", "3", "\"3-1\"", "\"1-2000\"", "[1.5]"] {
        refused(&format!("{RUN}seeds = {seeds}\n"), &["line 4", "`seeds`"]);
    }
    refused(&format!("{RUN}backbones = []\n"), &["`backbones`", "empty"]);
    refused(&format!("{RUN}backbones = [\"gru\", \"gru\"]\n"), &["\"gru\" twice"]);
    refused(&format!("{RUN}backbones = [\"gruu\"]\n"), &["line 1", "backbone.name", "gruu", "mamba"]);
    refused(&format!("{RUN}only.gru.seeds = [1]\n"), &["line 4", "only.gru", "mamba"]);
    refused(&format!("{RUN}only.mamba.backbones = [\"gru\"]\n"), &["line 4", "backbones"]);
    refused(&format!("{RUN}preset = \"popgim\"\n"), &["line 4", "popgim", "popgym"]);
    refused(&format!("{RUN}target = \"high\"\n"), &["line 4", "target"]);
    refused(&format!("{RUN}label = \"a b\"\n"), &["line 4", "a b"]);
    refused(&format!("{RUN}label = \"a__b\"\n"), &["line 4", "a__b"]);
    refused(&format!("{RUN}threads = -1\n"), &["line 4"]);
    refused(&format!("name = \"../x\"\n{RUN}"), &["`name`"]);
    assert!(parse("[[run]]\nenv = [\"RepeatFirstEasy\", \"RepeatFirstEasy\"]\nsteps = 640\n", "s", "s").is_err());
}

#[test]
fn wrong_settings_are_refused_with_the_line_of_their_table() {
    refused(
        &format!("{RUN}set = {{ learner.bach = 3 }}\n"),
        &["line 4", "RepeatFirstEasy", "learner.bach", "learner.batch"],
    );
    let told = "RepeatFirstEasy` with mamba: config: `learner.bach` is no key of section [learner]; nearest";
    refused(&format!("{RUN}set = {{ learner.bach = 3 }}\n"), &[told]);
    refused(&format!("{RUN}set = {{ \"learner.batch\" = \"x\" }}\n"), &["line 4", "learner.batch", "x"]);
    refused(
        &format!("{RUN}set = {{ \"learner.batch\" = 3, learner.batch = 3 }}\n"),
        &["line 4", "learner.batch", "twice"],
    );
    refused(
        &format!("{RUN}[run.only.mamba]\nset = {{ backbone.d_conv = 900 }}\n"),
        &["line 5", "backbone.d_conv", "900"],
    );
    refused(&format!("{RUN}set.env.args.lenth = 3\n"), &["line", "lenth"]);
    for (key, field) in OWN_FIELD {
        refused(&format!("{RUN}set = {{ \"{key}\" = 3 }}\n"), &["line 4", key, &format!("field `{field}`")]);
    }
}

#[test]
fn labels_do_not_clash() {
    let two = |a: &str, b: &str| format!("{RUN}{a}\n{RUN}{b}\n");
    refused(&two("", ""), &["line 5", "RepeatFirstEasy", "in line 1"]);
    refused(&two("", "seeds = [9]"), &["in line 1"]);
    assert_eq!(jobs(&two("", "backbones = [\"gru\"]")).len(), 6);
    assert_eq!(jobs(&two("", "label = \"other\"")).len(), 6);
    let other = "[[run]]\nenv = \"TMaze\"\nsteps = 640\nlabel = \"RepeatFirstEasy\"\nbackbones = [\"gru\"]\n";
    refused(&format!("{RUN}{other}"), &["line 4", "`RepeatFirstEasy`", "in line 1"]);
}
