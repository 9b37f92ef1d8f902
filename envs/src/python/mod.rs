//! Gymnasium environments of a Python on this machine, without linking it: `python:ID` starts a child process that has
//! `gymnasium` installed and talks to it over pipes (`serve.py`, embedded). All copies of one task share one child and
//! are stepped by one message; no build-time dependency.
//!
//! `ID` is what `gymnasium.make` takes, so `module:ID` imports the module that registers it. Arguments:
//!
//! | name | meaning |
//! |---|---|
//! | `python` | interpreter, default `python3` |
//! | `timeout` | seconds to wait for an answer before the child counts as hanging, default 60 |
//! | any other | passed on to `gymnasium.make` |
//!
//! Spaces `Discrete`, `MultiDiscrete`, `MultiBinary`, `Box`, `Tuple` and `Dict` (observations alone, in the order of
//! keys) have a counterpart; others are refused by name. Numbers travel as 32-bit floats or integers.

mod host;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::buffer::{ActionRef, ObsBuffer, ObsMut, ObsRef};
use crate::env::{BoxEnv, DynEnv, EnvSpec, Step};
use crate::error::{EnvError, Result};
use crate::registry::EnvArgs;
use crate::space::Space;
use host::{Answer, Host};

/// Prefix of the ids.
pub(crate) const PREFIX: &str = "python:";

/// What went wrong with the child process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PythonError {
    /// The interpreter could not be started.
    #[error("cannot start `{program}`: {reason}; name another with env.args.python")]
    Interpreter {
        /// The program.
        program: String,
        /// What the system said.
        reason: std::io::Error,
    },
    /// The interpreter has no `gymnasium`.
    #[error("`{program}` has no gymnasium ({text}); try `{program} -m pip install gymnasium`")]
    NoGymnasium {
        /// The program.
        program: String,
        /// What Python said.
        text: String,
    },
    /// `gymnasium.make` raised an exception.
    #[error("gymnasium.make raised {text}")]
    Make {
        /// Its type, message and place.
        text: String,
    },
    /// The environment raised an exception.
    #[error("raised {text}")]
    Exception {
        /// Its type, message and place.
        text: String,
    },
    /// The child speaks another version of the protocol.
    #[error("the child process speaks protocol {found}, expected {expected}")]
    Protocol {
        /// Its version.
        found: String,
        /// Ours.
        expected: u32,
    },
    /// The child process ended.
    #[error("the child process ended ({status}){}", if last.is_empty() { String::new() } else { format!(": {last}") })]
    Died {
        /// Exit status or signal.
        status: String,
        /// Last line that it wrote to standard error.
        last: String,
    },
    /// The child process gave no answer in time and was ended.
    #[error("no answer for {seconds} s, the child process was ended; a longer wait is env.args.timeout")]
    Hung {
        /// How long was waited.
        seconds: f64,
    },
    /// The child process answered something else.
    #[error("the child process answered {found}, expected {expected}")]
    Answer {
        /// What came, cut to 200 characters.
        found: String,
        /// What was to come.
        expected: &'static str,
    },
}

/// One copy of a Gymnasium environment in the child process.
struct PythonEnv {
    spec: EnvSpec,
    host: Arc<Host>,
    copy: u64,
    /// None before the first reset.
    over: Option<bool>,
    last: ObsBuffer,
}

/// Makes `python:ID`; `gym_id` is the part after the prefix.
///
/// # Errors
/// `Python` as described at [`PythonError`], `BadArg` for an unusable `python` or `timeout`, `Space` for a space
/// without a counterpart.
pub(crate) fn make(gym_id: &str, args: &EnvArgs) -> Result<BoxEnv> {
    let id = format!("{PREFIX}{gym_id}");
    let mut kwargs = args.args.clone();
    let program = match kwargs.remove("python") {
        None => "python3".to_owned(),
        Some(Value::String(s)) => s,
        Some(other) => return Err(bad_arg(&id, "python", &other, "the name or path of an interpreter")),
    };
    let timeout = match kwargs.remove("timeout") {
        None => 60.0,
        Some(v) => v
            .as_f64()
            .filter(|t| (0.001..=1e6).contains(t))
            .ok_or_else(|| bad_arg(&id, "timeout", &v, "seconds from 0.001 to 1e6"))?,
    };
    let host = Host::shared(&id, gym_id, &program, &kwargs, Duration::from_secs_f64(timeout))?;
    let about = host.about();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let spec = EnvSpec {
        max_steps: about.max_steps,
        hidden: "not declared".to_owned(),
        doc: format!("{gym_id} of gymnasium {} in a Python process.", about.gymnasium),
        legacy: args.legacy,
        ..EnvSpec::new(
            &id,
            &id.chars().map(plain).collect::<String>(),
            about.observation_space.clone(),
            about.action_space.clone(),
        )
    };
    usable(&spec)?;
    let last = ObsBuffer::for_space(&spec.observation_space, 1);
    Ok(Box::new(PythonEnv { copy: host.new_copy(), spec, host, over: None, last }))
}

fn bad_arg(id: &str, arg: &str, found: &Value, expected: &str) -> EnvError {
    EnvError::BadArg { id: id.to_owned(), arg: arg.to_owned(), found: found.to_string(), expected: expected.to_owned() }
}

fn usable(spec: &EnvSpec) -> Result<()> {
    let refused = |what: &str, space: &Space, expected: &str| {
        let what = format!("{}: {what}", spec.id);
        Err(EnvError::Space { what, found: space.to_string(), expected: expected.to_owned() })
    };
    if matches!(spec.action_space, Space::Tuple(_)) {
        return refused("action space", &spec.action_space, "Discrete, MultiDiscrete or Box");
    }
    for (what, space) in [("action space", &spec.action_space), ("observation space", &spec.observation_space)] {
        if space.flat_len() == 0 {
            return refused(what, space, "at least one element");
        }
    }
    Ok(())
}

impl PythonEnv {
    fn error(&self, problem: PythonError) -> EnvError {
        EnvError::Python { env: self.spec.id.clone(), problem }
    }

    fn check(&self, action: ActionRef<'_>) -> Result<()> {
        match self.over {
            Some(false) => self.spec.action_space.check_action(&self.spec.id, action),
            Some(true) => Err(EnvError::EpisodeOver { env: self.spec.id.clone() }),
            None => Err(EnvError::NotReset { env: self.spec.id.clone() }),
        }
    }

    /// Writes a row of numbers; null is not a number.
    fn write(&mut self, row: &[Option<f64>], mut obs: ObsMut<'_>) -> Result<()> {
        let expected = self.spec.observation_space.flat_len();
        for found in [row.len(), obs.view().len()] {
            if found != expected {
                return Err(EnvError::Length { what: format!("{}: observation", self.spec.id), found, expected });
            }
        }
        let dtype = self.spec.observation_space.dtype();
        if obs.dtype() != dtype {
            let what = format!("{}: observation buffer", self.spec.id);
            return Err(EnvError::Dtype { what, found: obs.dtype().to_string(), expected: dtype.to_string() });
        }
        match &mut obs {
            ObsMut::U8(to) => to.iter_mut().zip(row).for_each(|(to, v)| *to = v.unwrap_or(0.0) as u8),
            ObsMut::I32(to) => to.iter_mut().zip(row).for_each(|(to, v)| *to = v.unwrap_or(0.0) as i32),
            ObsMut::F32(to) => to.iter_mut().zip(row).for_each(|(to, v)| *to = v.map_or(f32::NAN, |v| v as f32)),
        }
        self.last.view_mut().copy_from(obs.view());
        Ok(())
    }
}

/// The action as flat numbers.
fn numbers(action: ActionRef<'_>) -> Vec<Value> {
    match action {
        ActionRef::Discrete(v) => v.iter().map(|a| Value::from(*a)).collect(),
        ActionRef::Continuous(v) => v.iter().map(|a| Value::from(f64::from(*a))).collect(),
    }
}

impl DynEnv for PythonEnv {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, seed: Option<u64>, obs: ObsMut<'_>) -> Result<()> {
        let row = self.host.reset(self.copy, seed).map_err(|e| self.error(e))?;
        self.write(&row, obs)?;
        self.over = Some(false);
        Ok(())
    }

    fn announces(&self) -> bool {
        true
    }

    fn announce(&mut self, action: ActionRef<'_>) -> Result<()> {
        self.check(action)?;
        self.host.announce(self.copy, numbers(action));
        Ok(())
    }

    fn step(&mut self, action: ActionRef<'_>, obs: ObsMut<'_>) -> Result<Step> {
        self.check(action)?;
        let Answer { obs: row, step } = self.host.step(self.copy, numbers(action)).map_err(|e| self.error(e))?;
        self.write(&row, obs)?;
        self.over = Some(step.done());
        Ok(step)
    }

    fn render_text(&self) -> String {
        let row: ObsRef<'_> = self.last.view();
        format!("{}\nobservation {row:?}\n", self.spec.name)
    }
}

impl Drop for PythonEnv {
    fn drop(&mut self) {
        self.host.close(self.copy);
    }
}

/// Arguments for `gymnasium.make`.
type Kwargs = BTreeMap<String, Value>;
