//! The child process: started once per task and arguments, shared by all copies, one request and one answer at a time.
//!
//! Announced actions wait until the first `step` needs an answer; then all of them go in one message.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Kwargs, PythonError};
use crate::env::Step;
use crate::error::{EnvError, Result};
use crate::space::Space;

/// Version of the messages; `serve.py` has the same number.
const PROTOCOL: u32 = 1;
const SCRIPT: &str = include_str!("serve.py");

/// Observation and step of one copy.
#[derive(Debug)]
pub(super) struct Answer {
    pub obs: Vec<Option<f64>>,
    pub step: Step,
}

/// What the child says of the task.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct About {
    protocol: u32,
    pub gymnasium: String,
    pub observation_space: Space,
    pub action_space: Space,
    pub max_steps: Option<usize>,
}

#[derive(Deserialize)]
struct Reset {
    obs: Vec<Option<f64>>,
}

#[derive(Deserialize)]
struct Steps {
    steps: Vec<OneStep>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneStep {
    Done(Vec<Option<f64>>, f64, bool, bool),
    Failed { error: String },
}

/// A live child.
struct Process {
    child: Child,
    /// None once it is to end.
    input: Option<ChildStdin>,
    answers: Receiver<std::io::Result<String>>,
    /// Last lines of its standard error.
    said: Arc<Mutex<VecDeque<String>>>,
    /// Reads `said`; ends with the child.
    listener: Option<JoinHandle<()>>,
    timeout: Duration,
    /// Actions that wait to be sent.
    waiting: Vec<(u64, Vec<Value>)>,
    /// Answers that wait to be fetched.
    ready: BTreeMap<u64, std::result::Result<Answer, PythonError>>,
    copies: u64,
}

/// A child process with what it said of itself.
pub(super) struct Host {
    key: String,
    about: About,
    process: Mutex<Process>,
}

/// Hosts by task, program and arguments. A child serves every copy that asks for the same.
static HOSTS: Mutex<Vec<Weak<Host>>> = Mutex::new(Vec::new());

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

type Outcome<T> = std::result::Result<T, PythonError>;

impl Host {
    /// The child for this task, started if there is none that lives.
    pub fn shared(id: &str, gym_id: &str, program: &str, kwargs: &Kwargs, timeout: Duration) -> Result<Arc<Host>> {
        let key = json!([gym_id, program, kwargs, timeout.as_secs_f64()]).to_string();
        let mut hosts = lock(&HOSTS);
        hosts.retain(|h| h.strong_count() > 0);
        if let Some(host) = hosts.iter().filter_map(Weak::upgrade).find(|h| h.key == key && h.alive()) {
            return Ok(host);
        }
        let failed = |problem| EnvError::Python { env: id.to_owned(), problem };
        let mut process = Process::start(program, timeout).map_err(failed)?;
        let request = json!({"open": {"id": gym_id, "kwargs": kwargs, "protocol": PROTOCOL}});
        let answer = match process.ask(&request) {
            Ok(answer) => answer,
            Err(PythonError::Exception { text }) => return Err(failed(PythonError::Make { text })),
            Err(PythonError::NoGymnasium { text, .. }) => {
                return Err(failed(PythonError::NoGymnasium { program: program.to_owned(), text }));
            }
            Err(PythonError::Answer { found, expected: "a known space" }) => {
                let (what, expected) = (id.to_owned(), "Discrete, MultiDiscrete, MultiBinary, Box, Tuple or Dict");
                return Err(EnvError::Space { what, found, expected: expected.to_owned() });
            }
            Err(e) => return Err(failed(e)),
        };
        let about: About = read(&answer, "what the task is").map_err(failed)?;
        if about.protocol != PROTOCOL {
            let found = about.protocol.to_string();
            return Err(failed(PythonError::Protocol { found, expected: PROTOCOL }));
        }
        let host = Arc::new(Host { key, about, process: Mutex::new(process) });
        hosts.push(Arc::downgrade(&host));
        Ok(host)
    }

    pub fn about(&self) -> &About {
        &self.about
    }

    fn alive(&self) -> bool {
        let mut p = lock(&self.process);
        p.input.is_some() && matches!(p.child.try_wait(), Ok(None))
    }

    /// A number for one more copy.
    pub fn new_copy(&self) -> u64 {
        let mut p = lock(&self.process);
        p.copies += 1;
        p.copies - 1
    }

    pub fn reset(&self, copy: u64, seed: Option<u64>) -> Outcome<Vec<Option<f64>>> {
        let mut p = lock(&self.process);
        p.forget(copy);
        let answer = p.ask(&json!({"reset": {"copy": copy, "seed": seed}}))?;
        Ok(read::<Reset>(&answer, "an observation")?.obs)
    }

    pub fn announce(&self, copy: u64, action: Vec<Value>) {
        let mut p = lock(&self.process);
        p.forget(copy);
        p.waiting.push((copy, action));
    }

    pub fn step(&self, copy: u64, action: Vec<Value>) -> Outcome<Answer> {
        let mut p = lock(&self.process);
        if let Some(answer) = p.ready.remove(&copy) {
            return answer;
        }
        if !p.waiting.iter().any(|w| w.0 == copy) {
            p.waiting.push((copy, action));
        }
        p.send_waiting()?;
        p.ready.remove(&copy).unwrap_or_else(|| {
            Err(PythonError::Answer { found: "nothing".to_owned(), expected: "a step for each action" })
        })
    }

    pub fn close(&self, copy: u64) {
        let mut p = lock(&self.process);
        p.forget(copy);
        // A child that is gone has closed it already.
        if p.input.is_some() {
            let _ = p.ask(&json!({"close": {"copy": copy}}));
        }
    }
}

impl Process {
    fn start(program: &str, timeout: Duration) -> Outcome<Process> {
        let mut command = Command::new(program);
        command.args(["-u", "-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let interpreter = |reason| PythonError::Interpreter { program: program.to_owned(), reason };
        let mut child = command.spawn().map_err(interpreter)?;
        let (send, answers) = channel();
        if let Some(out) = child.stdout.take() {
            // Ends with the pipe, that is, with the child.
            std::thread::spawn(move || BufReader::new(out).lines().try_for_each(|line| send.send(line)));
        }
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let listener = child.stderr.take().map(|err| {
            let said = said.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(err).lines().map_while(std::result::Result::ok) {
                    let mut said = lock(&said);
                    said.push_back(line);
                    if said.len() > 20 {
                        said.pop_front();
                    }
                }
            })
        });
        let input = child.stdin.take();
        let (waiting, ready) = (Vec::new(), BTreeMap::new());
        Ok(Process { child, input, answers, said, listener, timeout, waiting, ready, copies: 0 })
    }

    fn forget(&mut self, copy: u64) {
        self.waiting.retain(|w| w.0 != copy);
        self.ready.remove(&copy);
    }

    /// All waiting actions in one message.
    fn send_waiting(&mut self) -> Outcome<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let answer = self.ask(&json!({"step": waiting}))?;
        let steps = read::<Steps>(&answer, "steps")?.steps;
        for ((copy, _), step) in waiting.into_iter().zip(steps) {
            let answer = match step {
                OneStep::Done(obs, reward, terminated, truncated) => {
                    Ok(Answer { obs, step: Step { reward, terminated, truncated } })
                }
                OneStep::Failed { error } => Err(PythonError::Exception { text: error }),
            };
            self.ready.insert(copy, answer);
        }
        Ok(())
    }

    /// One request, one answer.
    fn ask(&mut self, request: &Value) -> Outcome<Value> {
        let Some(input) = &mut self.input else { return Err(self.died()) };
        let line = format!("{request}\n");
        // A child that ended before it read this may have said why: look for its answer first.
        let sent = input.write_all(line.as_bytes()).and_then(|()| input.flush());
        let line = match self.answers.recv_timeout(self.timeout) {
            Ok(Ok(line)) => line,
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
            Err(RecvTimeoutError::Timeout) if sent.is_err() => return Err(self.died()),
            Err(RecvTimeoutError::Timeout) => {
                self.end();
                return Err(PythonError::Hung { seconds: self.timeout.as_secs_f64() });
            }
        };
        let answer: Value = serde_json::from_str(&line).map_err(|_| unexpected(&line, "JSON"))?;
        let text = || answer.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
        match answer.get("error").and_then(Value::as_str) {
            None => Ok(answer),
            Some("no gymnasium") => Err(PythonError::NoGymnasium { program: String::new(), text: text() }),
            Some("protocol") => Err(PythonError::Protocol { found: text(), expected: PROTOCOL }),
            Some("space") => Err(PythonError::Answer { found: text(), expected: "a known space" }),
            Some(_) => Err(PythonError::Exception { text: text() }),
        }
    }

    /// Ends it if it lives; how it ended.
    fn died(&mut self) -> PythonError {
        let status = self.end();
        // Its last words may still be on their way; a process of its own that keeps the pipe open is not waited for.
        let begun = Instant::now();
        while self.listener.as_ref().is_some_and(|l| !l.is_finished()) && begun.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let last = lock(&self.said).iter().rev().find(|l| !l.trim().is_empty()).cloned().unwrap_or_default();
        PythonError::Died { status, last }
    }

    /// Closes its input, waits a moment, then kills it.
    fn end(&mut self) -> String {
        self.input = None;
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) if begun.elapsed() < Duration::from_millis(500) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => break,
            }
        }
        let _ = self.child.kill();
        self.child.wait().map_or_else(|e| e.to_string(), |status| status.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn read<T: for<'a> Deserialize<'a>>(answer: &Value, expected: &'static str) -> Outcome<T> {
    T::deserialize(answer).map_err(|_| unexpected(&answer.to_string(), expected))
}

fn unexpected(found: &str, expected: &'static str) -> PythonError {
    PythonError::Answer { found: found.chars().take(200).collect(), expected }
}
