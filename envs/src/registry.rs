//! Tasks by id, plain name or alias, exact first and then without regard to case. A `Registry` is a value: take
//! `Registry::bundled()`, add your own tasks with `register`, and make any of them with `make`. The free function
//! [`register`] adds a task for the whole process, so that everything that makes tasks by id knows it.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::env::{BoxEnv, EnvSpec};
use crate::error::{EnvError, Result};

/// Arguments of a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnvArgs {
    /// Old rules, as the published tables used them; tasks without a rule change play the same.
    pub legacy: bool,
    /// Arguments by name; each task lists its own.
    pub args: BTreeMap<String, Value>,
}

impl EnvArgs {
    /// A whole number in a range, or the default. Error: `BadArg` naming the argument.
    pub fn integer(
        &self,
        id: &str,
        arg: &str,
        default: usize,
        range: std::ops::RangeInclusive<usize>,
    ) -> Result<usize> {
        let Some(v) = self.args.get(arg) else { return Ok(default) };
        let number = v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| range.contains(n));
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        number.ok_or_else(|| bad_arg(id, arg, v, &expected()))
    }

    /// A flag, or the default. Error: `BadArg` naming the argument.
    pub fn flag(&self, id: &str, arg: &str, default: bool) -> Result<bool> {
        let Some(v) = self.args.get(arg) else { return Ok(default) };
        v.as_bool().ok_or_else(|| bad_arg(id, arg, v, "true or false"))
    }
}

fn bad_arg(id: &str, arg: &str, found: &Value, expected: &str) -> EnvError {
    EnvError::BadArg { id: id.to_owned(), arg: arg.to_owned(), found: found.to_string(), expected: expected.to_owned() }
}

/// An argument that a task takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgDoc {
    /// Name.
    pub name: &'static str,
    /// Meaning, unit and default.
    pub doc: &'static str,
}

type Make = Arc<dyn Fn(&EnvArgs) -> Result<BoxEnv> + Send + Sync>;

/// A registered task.
#[derive(Clone)]
pub struct Entry {
    /// The spec under default arguments.
    pub spec: EnvSpec,
    /// The arguments it takes.
    pub args: Vec<ArgDoc>,
    make: Make,
}

impl Entry {
    /// A task with its default spec, its arguments, and how to make it.
    pub fn new(
        spec: EnvSpec,
        args: Vec<ArgDoc>,
        make: impl Fn(&EnvArgs) -> Result<BoxEnv> + Send + Sync + 'static,
    ) -> Self {
        Entry { spec, args, make: Arc::new(make) }
    }

    /// Every id and name it answers to.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [&self.spec.id, &self.spec.name].into_iter().chain(&self.spec.aliases).map(String::as_str)
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("spec", &self.spec).field("args", &self.args).finish_non_exhaustive()
    }
}

/// Tasks in the order they were registered.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
}

impl Registry {
    /// No tasks.
    pub fn empty() -> Self {
        Registry::default()
    }

    /// The tasks of this package.
    pub fn bundled() -> Self {
        BUNDLED.clone()
    }

    /// Adds a task. Error: one of its names is taken.
    ///
    /// ```
    /// use mamba_rl_envs::{Entry, Env, EnvArgs, EnvSpec, Registry, Space, Step, Stream, check, erase};
    /// use rand::RngExt;
    ///
    /// /// Name the bit that is shown.
    /// struct ShownBit { spec: EnvSpec, stream: Stream, bit: u8, time: usize }
    ///
    /// impl ShownBit {
    ///     fn new() -> Self {
    ///         let spec = EnvSpec {
    ///             max_steps: Some(10),
    ///             return_range: (0.0, 10.0),
    ///             ..EnvSpec::new("ShownBit-v0", "ShownBit", Space::Discrete(2), Space::Discrete(2))
    ///         };
    ///         ShownBit { spec, stream: Stream::default(), bit: 0, time: 0 }
    ///     }
    /// }
    ///
    /// impl Env for ShownBit {
    ///     type Obs = u8;
    ///     type Act = i32;
    ///     fn spec(&self) -> &EnvSpec { &self.spec }
    ///     fn reset_into(&mut self, seed: Option<u64>, obs: &mut [u8]) {
    ///         self.bit = u8::from(self.stream.begin(seed).random::<bool>());
    ///         self.time = 0;
    ///         obs[0] = self.bit;
    ///     }
    ///     fn step_into(&mut self, action: &[i32], obs: &mut [u8]) -> Step {
    ///         let right = action[0] == i32::from(self.bit);
    ///         self.bit = u8::from(self.stream.rng().random::<bool>());
    ///         self.time += 1;
    ///         obs[0] = self.bit;
    ///         Step { reward: f64::from(u8::from(right)), terminated: self.time == 10, truncated: false }
    ///     }
    /// }
    ///
    /// let mut registry = Registry::bundled();
    /// registry.register(Entry::new(ShownBit::new().spec, vec![], |_| Ok(erase(ShownBit::new()))))?;
    /// check(&|| registry.make("ShownBit-v0", &EnvArgs::default()))?;
    /// # Ok::<(), mamba_rl_envs::EnvError>(())
    /// ```
    pub fn register(&mut self, entry: Entry) -> Result<()> {
        for name in entry.names() {
            let taken = self.entries.iter().find(|e| e.names().any(|n| n.eq_ignore_ascii_case(name)));
            if let Some(by) = taken {
                return Err(EnvError::Duplicate { name: name.to_owned(), by: by.spec.id.clone() });
            }
        }
        self.entries.push(entry);
        Ok(())
    }

    /// The task of an id, name or alias. Error: none, with the nearest ids.
    pub fn find(&self, id: &str) -> Result<&Entry> {
        let exact = self.entries.iter().find(|e| e.names().any(|n| n == id));
        let relaxed = || self.entries.iter().find(|e| e.names().any(|n| n.eq_ignore_ascii_case(id)));
        exact.or_else(relaxed).ok_or_else(|| EnvError::UnknownEnv { id: id.to_owned(), nearest: self.nearest(id) })
    }

    /// Up to three ids whose id, name or alias is nearest, best first.
    fn nearest(&self, id: &str) -> Vec<String> {
        // names are short; a long one would only cost time
        let wanted: String = id.chars().take(64).collect::<String>().to_lowercase();
        let score = |e: &Entry| e.names().map(|n| strsim::jaro_winkler(&wanted, &n.to_lowercase())).fold(0.0, f64::max);
        let mut scored: Vec<(f64, &Entry)> = self.entries.iter().map(|e| (score(e), e)).collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored.into_iter().take(3).map(|(_, e)| e.spec.id.clone()).collect()
    }

    /// Makes an environment; `python:ID` starts Gymnasium's in a Python process. Errors: unknown id,
    /// unknown argument, unusable value, and what the Python process reports.
    pub fn make(&self, id: &str, args: &EnvArgs) -> Result<BoxEnv> {
        if let Some(gym_id) = id.strip_prefix(crate::python::PREFIX) {
            return crate::python::make(gym_id, args);
        }
        let entry = self.find(id)?;
        for arg in args.args.keys() {
            if !entry.args.iter().any(|a| a.name == arg) {
                let valid = entry.args.iter().map(|a| a.name.to_owned()).collect();
                return Err(EnvError::UnknownArg { id: entry.spec.id.clone(), arg: arg.clone(), valid });
            }
        }
        (entry.make)(args)
    }

    /// All tasks, in order.
    pub fn list(&self) -> &[Entry] {
        &self.entries
    }
}

static BUNDLED: LazyLock<Registry> = LazyLock::new(|| {
    let entries = [
        crate::popgym::entries(),
        crate::classic::entries(),
        crate::probe::entries(),
        #[cfg(feature = "gymnasium")]
        crate::gymnasium::entries(),
    ];
    Registry { entries: entries.into_iter().flatten().collect() }
});

/// The bundled tasks, with the arguments each takes.
pub fn bundled_registry() -> &'static Registry {
    &BUNDLED
}

/// Tasks of the process beside the bundled ones.
static OWN: RwLock<Registry> = RwLock::new(Registry { entries: Vec::new() });

/// Adds a task of your own for the whole process: [`make`] and [`list`] know it from now on. Error: one of its names is
/// taken.
pub fn register(entry: Entry) -> Result<()> {
    let taken = |name: &str| BUNDLED.entries.iter().find(|e| e.names().any(|n| n.eq_ignore_ascii_case(name)));
    if let Some((name, by)) = entry.names().find_map(|name| Some((name, taken(name)?))) {
        return Err(EnvError::Duplicate { name: name.to_owned(), by: by.spec.id.clone() });
    }
    OWN.write().unwrap_or_else(PoisonError::into_inner).register(entry)
}

/// Makes a task by id, name or alias: a bundled one, or one that was registered.
///
/// ```
/// use mamba_rl_envs::{EnvArgs, make};
/// let env = make("popgym-RepeatPreviousEasy-v0", &EnvArgs::default())?;
/// assert_eq!(env.spec().action_space.to_string(), "Discrete(4)");
/// # Ok::<(), mamba_rl_envs::EnvError>(())
/// ```
pub fn make(id: &str, args: &EnvArgs) -> Result<BoxEnv> {
    let own = || OWN.read().unwrap_or_else(PoisonError::into_inner);
    if id.starts_with(crate::python::PREFIX) || own().list().is_empty() || BUNDLED.find(id).is_ok() {
        return BUNDLED.make(id, args);
    }
    // a copy: making a task may take long, or register another one
    let mut all = own().clone();
    all.entries.extend(BUNDLED.entries.iter().cloned());
    all.make(id, args)
}

/// Specs of the bundled tasks and of the registered ones under default arguments.
pub fn list() -> Vec<EnvSpec> {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    BUNDLED.list().iter().chain(own.list()).map(|e| e.spec.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_bundled_tasks_are_unique() {
        let mut registry = Registry::empty();
        for entry in Registry::bundled().list() {
            registry.register(entry.clone()).unwrap();
        }
    }

    #[test]
    fn finds_ids_names_and_near_misses() {
        let r = Registry::bundled();
        assert_eq!(r.find("popgym-RepeatPreviousEasy-v0").unwrap().spec.name, "RepeatPreviousEasy");
        for name in
            ["popgym-VelocityOnlyCartPoleHard-v0", "popgym-VelocityOnlyCartpoleHard-v0", "VelocityOnlyCartPoleHard"]
        {
            assert_eq!(r.find(name).unwrap().spec.id, "popgym-VelocityOnlyCartpoleHard-v0");
        }
        for (old, new) in [
            ("popgym-StatelessCartPoleEasy-v0", "PositionOnlyCartPoleEasy"),
            ("NoisyStatelessCartPoleMedium", "NoisyPositionOnlyCartPoleMedium"),
            ("popgym-StatelessPendulumHard-v0", "PositionOnlyPendulumHard"),
            ("NoisyStatelessPendulumEasy", "NoisyPositionOnlyPendulumEasy"),
        ] {
            assert_eq!(r.find(old).unwrap().spec.name, new);
        }
        assert_eq!(r.find("repeatpreviouseasy").unwrap().spec.id, "popgym-RepeatPreviousEasy-v0");
        match r.find("RepeatPreviosEasy") {
            Err(EnvError::UnknownEnv { id, nearest }) => {
                assert_eq!((id.as_str(), nearest[0].as_str()), ("RepeatPreviosEasy", "popgym-RepeatPreviousEasy-v0"));
            }
            other => panic!("expected an unknown id, got {other:?}"),
        }
    }

    #[test]
    fn a_task_of_the_process_is_made_by_id_and_its_names_are_taken() {
        let mut entry = Registry::bundled().find("TMaze-v0").unwrap().clone();
        assert!(matches!(register(entry.clone()), Err(EnvError::Duplicate { .. })));
        (entry.spec.id, entry.spec.name, entry.spec.aliases) = ("Mine-v0".into(), "Mine".into(), vec![]);
        assert!(matches!(make("Mine-v0", &EnvArgs::default()).map(|_| ()), Err(EnvError::UnknownEnv { .. })));
        register(entry.clone()).unwrap();
        assert!(make("mine", &EnvArgs::default()).is_ok());
        assert!(matches!(register(entry), Err(EnvError::Duplicate { name, .. }) if name == "Mine-v0"));
        match make("Mine-v1", &EnvArgs::default()).map(|_| ()) {
            Err(EnvError::UnknownEnv { nearest, .. }) => assert_eq!(nearest[0], "Mine-v0"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unknown_arguments_and_doubles_are_errors() {
        let mut r = Registry::bundled();
        let args = EnvArgs { args: BTreeMap::from([("lenght".to_owned(), Value::from(3))]), ..EnvArgs::default() };
        assert!(
            matches!(r.make("RepeatPreviousEasy", &args), Err(EnvError::UnknownArg { arg, .. }) if arg == "lenght")
        );
        let again = r.list()[0].clone();
        assert!(matches!(r.register(again), Err(EnvError::Duplicate { .. })));
    }
}
