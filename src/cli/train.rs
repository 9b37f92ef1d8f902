//! `mamba-rl train`: config, run folder, signals; then the library's `train::run`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mamba_rl::Error;
use mamba_rl::config::{Config, Flags};
use mamba_rl::train::{self, Footprint, RunOptions, RunResult, Stopped};
use mamba_rl_envs::EnvSpec;

use super::{Outcome, memory, resume, run_dir, text};

/// Arguments of `train`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Task by id, name or alias (`mamba-rl envs` lists them) [config: env.id]
    #[arg(long, value_name = "ID")]
    pub env: Option<String>,
    /// Agent: auto, r2d2 or rsac [config: agent.name]
    #[arg(long, value_name = "A")]
    pub agent: Option<String>,
    /// Recurrent body: mamba, gru, lstm or mlp [config: backbone.name]
    #[arg(long, value_name = "B")]
    pub backbone: Option<String>,
    /// Settings to begin with: popgym (default), continuous (default for continuous actions) or r2d2-paper
    #[arg(long, value_name = "P")]
    pub preset: Option<String>,
    /// TOML file over the preset
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One setting over the file, such as learner.batch=16; may be repeated, the last one wins
    #[arg(long, value_name = "KEY.PATH=VALUE")]
    pub set: Vec<String>,
    /// Environment steps, all copies together [config: train.steps]
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = super::count)]
    pub steps: Option<u64>,
    /// Base seed [config: train.seed]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub seed: Option<u64>,
    /// sync [config: train.mode]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// cpu, auto, cuda or cuda:N [config: train.device]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// f32, bf16 or f16 [config: train.precision]
    #[arg(long, value_name = "TYPE")]
    pub precision: Option<String>,
    /// Folder of the run [default: runs/<env>__<agent>-<backbone>__s<seed>__<time>]
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Go on with the run in --run-dir
    #[arg(long)]
    pub resume: bool,
    /// Begin with the weights of this checkpoint or run
    #[arg(long, value_name = "CHECKPOINT")]
    pub init_from: Option<PathBuf>,
    /// Print settings and memory, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Print nothing but warnings and, at the end, the run folder
    #[arg(long)]
    pub quiet: bool,
    /// Stop and save when standard input closes: the process that holds the other end has ended
    #[arg(long, hide = true)]
    pub leash: bool,
}

impl Args {
    /// The shortcuts for config keys.
    pub fn flags(&self) -> Flags {
        Flags {
            env: self.env.clone(),
            agent: self.agent.clone(),
            backbone: self.backbone.clone(),
            steps: self.steps,
            seed: self.seed,
            mode: self.mode.clone(),
            device: self.device.clone(),
            precision: self.precision.clone(),
        }
    }
}

/// A run that is ready to start.
pub struct Plan {
    /// Resolved.
    pub config: Config,
    /// The task.
    pub spec: EnvSpec,
    /// What was filled in.
    pub suggested: Vec<String>,
}

impl Plan {
    /// Asks the task for its spec and fills in what depends on it.
    pub fn new(mut config: Config) -> mamba_rl::Result<Self> {
        let spec = mamba_rl_envs::make(&config.env.id, &config.env_args()?)?.spec().clone();
        let suggested = config.resolve(&spec)?;
        Ok(Plan { config, spec, suggested })
    }
}

/// Trains; see the module's first line.
pub fn run(args: &Args) -> Outcome {
    if args.resume {
        return resume::run(args);
    }
    let (preset, file, flags) = (args.preset.as_deref(), args.config.as_deref(), args.flags());
    let named = Config::load(preset, file, &args.set, &flags)?;
    let spec = mamba_rl_envs::make(&named.env.id, &named.env_args()?)?.spec().clone();
    let plan = Plan::new(Config::load_for(&spec.action_space, preset, file, &args.set, &flags)?)?;
    let footprint = train::footprint(&plan.config, &plan.spec)?;
    if args.dry_run {
        return dry_run(&plan, &footprint);
    }
    if let Some(path) = &args.init_from {
        train::initial_weights(&plan.config, &plan.spec, path)?;
    }
    let dir = run_dir::create(args.run_dir.as_deref(), &plan.spec.name, &plan.config)?;
    {
        // Two commands may name one folder at the same moment: the lock decides whose config stands there.
        let _lock = train::RunLock::take(&dir)?;
        run_dir::refuse_taken(&dir)?;
        run_dir::write_config(&dir, &plan.config)?;
    }
    start(args, &plan, &footprint, dir, false)
}

/// Runs a plan in its folder and reports.
pub fn start(args: &Args, plan: &Plan, footprint: &Footprint, dir: PathBuf, resume: bool) -> Outcome {
    let stop = stop_on_signals()?;
    if args.leash {
        stop_with_stdin(stop.clone());
    }
    if !args.quiet {
        // nobody may be reading; the run goes on all the same
        let _ = greet(plan, footprint, &dir);
        warn_memory(footprint);
    }
    let options = RunOptions {
        run_dir: dir.clone(),
        resume,
        init_from: args.init_from.clone(),
        stop,
        quiet: args.quiet,
        preset: plan.config.preset.clone(),
    };
    let result = train::run(&plan.config, options)?;
    report(args, plan, &result, &dir)
}

/// Was the process told to outlive its terminal (`nohup`)? Then a hangup stays ignored.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    // bit 0 is signal 1, SIGHUP
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

/// The first SIGINT, SIGTERM or SIGHUP asks the run to stop and save; the second ends the process at once with 130.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = vec![signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    #[cfg(unix)]
    if !ignores_hangup() {
        signals.push(signal_hook::consts::signal::SIGHUP);
    }
    for signal in signals {
        // In this order: the second action looks at the flag before the first one sets it.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    // A file that may grow no further is an error to report, not a reason to be killed.
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::signal::SIGXFSZ, Arc::default())?;
    Ok(stop)
}

/// The end of standard input asks the run to stop and save: `sweep` holds the other end, and lets go of it also when it is
/// killed.
fn stop_with_stdin(stop: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        // whatever comes is of no interest, an error is an end too
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Resolved settings and memory on stdout; `Usage` where it does not fit.
pub fn dry_run(plan: &Plan, f: &Footprint) -> Outcome {
    let mut out = std::io::stdout().lock();
    write!(out, "{}", plan.config.to_toml()?)?;
    writeln!(out)?;
    for line in &plan.suggested {
        writeln!(out, "# {line}")?;
    }
    writeln!(out, "# parameters {}", f.parameters)?;
    let parts = [
        ("replay", f.replay_bytes),
        ("tape", f.tape_bytes),
        ("scratch", f.scratch_bytes),
        ("state per sequence", f.state_bytes_per_sequence),
        ("all together", memory::needed(f)),
    ];
    for (name, bytes) in parts {
        writeln!(out, "# {name} {bytes} bytes ({})", text::bytes(bytes))?;
    }
    out.flush()?;
    match memory::available() {
        Some(free) if memory::needed(f) > free => Err(Error::Usage(too_large(f, free)).into()),
        _ => Ok(0),
    }
}

fn too_large(f: &Footprint, free: u64) -> String {
    format!(
        "the run needs {} of memory when its replay is full ({} of it replay), but {} are free; lower replay.capacity, \
         learner.batch or replay.max_episode",
        text::bytes(memory::needed(f)),
        text::bytes(f.replay_bytes),
        text::bytes(free)
    )
}

fn warn_memory(f: &Footprint) {
    if let Some(free) = memory::available().filter(|free| memory::needed(f) > *free) {
        let _ = writeln!(std::io::stderr(), "warning: {}", too_large(f, free));
    }
}

/// What is about to happen, for people.
fn greet(plan: &Plan, f: &Footprint, dir: &Path) -> std::io::Result<()> {
    let (c, spec) = (&plan.config, &plan.spec);
    let mut out = std::io::stdout().lock();
    let mut line = |name: &str, value: &str| writeln!(out, "  {name:<10}{value}");
    line("task", &format!("{} ({})", spec.name, spec.id))?;
    let steps = spec.max_steps.map_or_else(String::new, |n| format!(", at most {n} steps"));
    line("", &format!("observes {}, acts in {}{steps}", spec.observation_space, spec.action_space))?;
    line("", &format!("hidden: {}", spec.hidden))?;
    let layers = if c.backbone.n_layers == 1 { "layer" } else { "layers" };
    let body = format!("{} {layers} of width {}", c.backbone.n_layers, c.backbone.d_model);
    let parameters = text::thousands(f.parameters as u64);
    let rotates = c.backbone.name == "mamba" && c.backbone.rotate.turns();
    let name = format!("{}{}", if rotates { "rotating " } else { "" }, c.backbone.name);
    line("agent", &format!("{} with a {name} backbone, {body}, {parameters} parameters", c.agent.name))?;
    for (i, suggested) in plan.suggested.iter().enumerate() {
        line(if i == 0 { "settings" } else { "" }, suggested)?;
    }
    let what = format!(
        "{} steps in {} copies, seed {}, {} {}, preset {}",
        text::thousands(c.train.steps),
        c.env.num_envs,
        c.train.seed,
        c.train.device,
        c.train.precision,
        c.preset
    );
    line("training", &what)?;
    line("folder", &dir.display().to_string())?;
    writeln!(out)?;
    out.flush()
}

/// What came out, and where to look; exit code 3 for an interrupted run.
fn report(args: &Args, plan: &Plan, r: &RunResult, dir: &Path) -> Outcome {
    // a reader that has gone away changes nothing about the run
    let _ = describe(args, plan, r, dir);
    Ok(if r.stopped == Stopped::Interrupted { 3 } else { 0 })
}

fn describe(args: &Args, plan: &Plan, r: &RunResult, dir: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let (program, shown) = (text::program(), text::shell(dir));
    if r.stopped == Stopped::Interrupted {
        if args.quiet {
            writeln!(out, "{}", dir.display())?;
        } else {
            writeln!(out, "interrupted at step {}, everything is saved; go on with", text::thousands(r.steps))?;
            writeln!(out, "  {program} train --resume --run-dir {shown}")?;
        }
        return out.flush();
    }
    if args.quiet {
        writeln!(out, "{}", dir.display())?;
        return out.flush();
    }
    let end = if r.stopped == Stopped::StopReturn { ", as train.stop_return was reached" } else { "" };
    let (steps, episodes) = (text::thousands(r.steps), text::thousands(r.episodes));
    let time = text::duration(r.wall_s);
    writeln!(
        out,
        "done: {steps} environment steps, {episodes} episodes, {} updates in {time}{end}",
        text::thousands(r.updates)
    )?;
    writeln!(out)?;
    if let Some(mean) = r.eval_return_mean {
        let spread = r.eval_return_std.map_or_else(String::new, |s| format!(" ± {}", text::number(s)));
        let (low, high) = plan.spec.return_range;
        let range = if low.is_finite() && high.is_finite() {
            format!("; returns lie between {} and {}", text::number(low), text::number(high))
        } else {
            String::new()
        };
        let mean = text::number(mean);
        writeln!(
            out,
            "  greedy return  {mean}{spread} over {} episodes (greedy play, new seeds{range})",
            r.eval_episodes
        )?;
    }
    writeln!(out, "  run folder     {}", dir.display())?;
    writeln!(out)?;
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(dir);
    writeln!(out, "  watch curves   tensorboard --logdir {}", text::shell(parent))?;
    writeln!(out, "  draw curves    {program} plot {shown} -o curves.svg")?;
    writeln!(out, "  play it        {program} eval {shown} --render --episodes 1")?;
    writeln!(
        out,
        "  train on       {program} train --resume --run-dir {shown} --steps {}",
        2 * plan.config.train.steps
    )?;
    out.flush()
}
