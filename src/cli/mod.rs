//! The command. One file per subcommand; this one has the arguments, the exit codes and the one line that an error is.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | damaged file, unwritable folder, failure while running |
//! | 2 | usage or config error; unknown environment, key, backbone or file; device or precision not available |
//! | 3 | interrupted, with everything saved |
//! | 130 | second signal |

mod bench;
mod bench_envs;
#[cfg(feature = "cuda")]
mod bench_gpu;
mod bench_shapes;
mod checkpoint;
mod devices;
mod envs;
mod eval;
mod forward;
mod info;
mod memory;
mod play;
mod plot;
mod report;
mod results;
mod resume;
mod rollout;
mod run_dir;
mod sweep;
mod text;
mod train;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use mamba_rl::Error;
use mamba_rl_envs::EnvError;

/// What a subcommand returns: an exit code, or an error that [`exit_code`] sorts.
type Outcome = anyhow::Result<u8>;

/// Recurrent off-policy reinforcement learning with a Mamba backbone.
#[derive(Debug, Parser)]
#[command(name = "mamba-rl", version, arg_required_else_help = true, args_override_self = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train an agent; without arguments: Mamba on RepeatPreviousEasy, minutes on a CPU
    Train(Box<train::Args>),
    /// Run what is missing of a suite of runs, several at a time, and gather their results
    Sweep(Box<sweep::Args>),
    /// Make tables and curves from what `sweep` gathered
    Report(report::Args),
    /// Play a trained agent greedily and report its returns
    Eval(eval::Args),
    /// List the tasks
    Envs(envs::Args),
    /// Play episodes with a random policy or a trained agent and print or record them
    Rollout(rollout::Args),
    /// Run the blocks and the final norm of a Mamba checkpoint, ours or Hugging Face's, on given inputs
    Forward(forward::Args),
    /// Say what a checkpoint or a run folder holds
    Info(info::Args),
    /// Draw learning curves of runs as SVG or PNG
    Plot(plot::Args),
    /// Measure this machine: ceilings, passes of the network, acting
    Bench(bench::Args),
    /// List the devices that can be trained on
    Devices,
}

/// Runs the command and never panics: an internal failure is one line and exit code 1.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line())).unwrap_or_default();
        let what = info.payload_as_str().unwrap_or("no message");
        complain(&format!("internal failure{place}: {what}; this is a bug, please report it"));
    }));
    let code = std::panic::catch_unwind(|| {
        let args = match Args::try_parse() {
            Ok(args) => args,
            Err(e) => return usage(&e),
        };
        match run(args.command) {
            Ok(code) => code,
            Err(e) => {
                let code = exit_code(&e);
                if code != 0 {
                    complain(&format!("{}{}", message(&e), hint(&e)));
                }
                code
            }
        }
    });
    ExitCode::from(code.unwrap_or(1))
}

fn run(command: Command) -> Outcome {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let code = match command {
        // These report as they go and hold no lock on the output meanwhile.
        Command::Train(args) => {
            drop(out);
            return train::run(&args);
        }
        Command::Sweep(args) => {
            drop(out);
            return sweep::run(&args);
        }
        Command::Report(args) => report::run(&args, &mut out)?,
        Command::Eval(args) => eval::run(&args, &mut out)?,
        Command::Envs(args) => envs::run(&args, &mut out)?,
        Command::Rollout(args) => rollout::run(&args, &mut out)?,
        Command::Forward(args) => forward::run(&args, &mut out)?,
        Command::Info(args) => info::run(&args, &mut out)?,
        Command::Plot(args) => plot::run(&args, &mut out)?,
        Command::Bench(args) => bench::run(&args, &mut out)?,
        Command::Devices => devices::run(&mut out)?,
    };
    out.flush()?;
    Ok(code)
}

/// One line on stderr; a closed stderr is no reason to fail.
fn complain(message: &str) {
    let line = message.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ");
    let _ = writeln!(std::io::stderr(), "error: {line}");
}

/// One warning on stderr; a closed stderr is no reason to fail.
fn warn(message: &str) {
    let _ = writeln!(std::io::stderr(), "warning: {message}");
}

/// Help and version as they are; a wrong argument as one line.
fn usage(e: &clap::Error) -> u8 {
    match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = e.print();
            0
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            2
        }
        _ => {
            let text = e.render().to_string();
            let wanted = |l: &&str| !l.is_empty() && !l.starts_with("Usage:") && !l.starts_with("For more information");
            let lines: Vec<&str> = text.lines().map(str::trim).filter(wanted).collect();
            let line = lines.join("; ");
            complain(&format!("{} (see --help)", line.strip_prefix("error: ").unwrap_or(&line)));
            2
        }
    }
}

/// The error and its causes, each said once: many of our messages hold their cause already.
fn message(e: &anyhow::Error) -> String {
    let mut out = String::new();
    for cause in e.chain().map(ToString::to_string) {
        if !out.contains(&cause) {
            out = if out.is_empty() { cause } else { format!("{out}: {cause}") };
        }
    }
    out
}

/// Whose is it to mend? A reader that closed the pipe is content: 0.
fn exit_code(e: &anyhow::Error) -> u8 {
    for cause in e.chain() {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return if io.kind() == std::io::ErrorKind::BrokenPipe { 0 } else { 1 };
        }
        if let Some(e) = cause.downcast_ref::<Error>() {
            return match e {
                Error::Env(e) => env_code(e),
                e if e.is_usage() => 2,
                _ => 1,
            };
        }
        if let Some(e) = cause.downcast_ref::<EnvError>() {
            return env_code(e);
        }
        if let Some(e) = cause.downcast_ref::<mamba_rl::plot::PlotError>() {
            use mamba_rl::plot::PlotError;
            return if matches!(e, PlotError::NoRuns | PlotError::NoRun { .. } | PlotError::Format { .. }) {
                2
            } else {
                1
            };
        }
    }
    1
}

/// How to mend what the library's message cannot know of.
fn hint(e: &anyhow::Error) -> &'static str {
    let unknown = |e: &EnvError| matches!(e, EnvError::UnknownEnv { .. });
    let known = e.chain().any(|c| {
        c.downcast_ref::<EnvError>().is_some_and(unknown)
            || matches!(c.downcast_ref::<Error>(), Some(Error::Env(inner)) if unknown(inner))
    });
    if known { "; `mamba-rl envs` lists all tasks" } else { "" }
}

fn env_code(e: &EnvError) -> u8 {
    use mamba_rl_envs::PythonError::{Interpreter, Make, NoGymnasium};
    match e {
        EnvError::UnknownEnv { .. } | EnvError::UnknownArg { .. } | EnvError::BadArg { .. } => 2,
        EnvError::Python { problem: Interpreter { .. } | Make { .. } | NoGymnasium { .. }, .. } => 2,
        _ => 1,
    }
}

/// Text that is no whole number.
#[derive(Debug, thiserror::Error)]
#[error("expected a whole number such as 30000 or 3e4")]
struct NotACount;

/// A whole number as people write it: `30000`, `30_000` or `3e4`.
fn count(text: &str) -> Result<u64, NotACount> {
    let plain = text.replace('_', "");
    if let Ok(n) = plain.parse::<u64>() {
        return Ok(n);
    }
    match plain.parse::<f64>() {
        Ok(f) if f >= 0.0 && f.fract() == 0.0 && f < 9e15 => Ok(f as u64),
        _ => Err(NotACount),
    }
}
