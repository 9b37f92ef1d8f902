//! One error type for environments, wrappers, the registry and recorded episodes.
//! Every variant names the environment or field, what was found and what was expected.

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // each message names its fields
pub enum EnvError {
    /// No task has this id, name or alias.
    #[error("unknown environment `{id}`; nearest: {}", nearest.join(", "))]
    UnknownEnv { id: String, nearest: Vec<String> },
    /// The task has no argument of this name.
    #[error("{id}: unknown argument `{arg}`; it takes: {}", if valid.is_empty() { "none".to_owned() } else { valid.join(", ") })]
    UnknownArg { id: String, arg: String, valid: Vec<String> },
    /// An argument's value cannot be used.
    #[error("{id}: argument `{arg}` is {found}, expected {expected}")]
    BadArg { id: String, arg: String, found: String, expected: String },
    /// Two tasks of one registry answer to the same name.
    #[error("`{name}` is already registered (by {by})")]
    Duplicate { name: String, by: String },
    /// An action outside the action space, of the wrong kind, or of the wrong length.
    #[error("{env}: action {found} is not in {space}")]
    Action { env: String, space: String, found: String },
    /// An action of the space that the current legal-action mask forbids.
    #[error("{env}: action {found} of {space} is not legal now")]
    IllegalNow { env: String, space: String, found: String },
    /// A step after the episode's end.
    #[error("{env}: the episode is over; call reset before step")]
    EpisodeOver { env: String },
    /// A step before the first reset.
    #[error("{env}: call reset before step")]
    NotReset { env: String },
    /// An observation that its space does not hold.
    #[error("observation: element {element} is {found}, expected {expected}")]
    Observation { element: usize, found: String, expected: String },
    /// A buffer, row or list of the wrong length.
    #[error("{what}: {found} elements, expected {expected}")]
    Length { what: String, found: usize, expected: usize },
    /// A buffer of the wrong element type.
    #[error("{what}: element type {found}, expected {expected}")]
    Dtype { what: String, found: String, expected: String },
    /// A space that a wrapper or buffer cannot handle.
    #[error("{what}: space {found}, expected {expected}")]
    Space { what: String, found: String, expected: String },
    /// A hidden state that does not fit the task.
    #[error("{env}: hidden state, field `{field}`: {found}, expected {expected}")]
    Hidden { env: String, field: String, found: String, expected: String },
    /// A saved state of another environment, size or seed.
    #[error("saved environments: `{field}` is {found}, expected {expected}")]
    State { field: &'static str, found: String, expected: String },
    /// An environment broke the contract.
    #[error("{env}: {rule}: {found}")]
    Contract { env: String, rule: &'static str, found: String },
    /// A recorded episode did not repeat.
    #[error("{env}, seed {seed}, step {step}: `{field}` is {found}, recorded {expected}")]
    Replay { env: String, seed: u64, step: usize, field: &'static str, found: String, expected: String },
    /// A file of recorded episodes cannot be read.
    #[error("{file}: {source}")]
    Io { file: String, source: std::io::Error },
    /// A line of recorded episodes cannot be parsed.
    #[error("{file}, line {line}: {source}")]
    Json { file: String, line: usize, source: serde_json::Error },
    /// An environment in a Python process failed.
    #[error("{env}: {problem}")]
    Python { env: String, problem: crate::python::PythonError },
    /// A picture or animation could not be written.
    #[error("writing {file}: {problem}")]
    Picture { file: String, problem: String },
    /// A user's own environment failed.
    #[error("{env}: {source}")]
    Other { env: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Result of this package.
pub type Result<T, E = EnvError> = std::result::Result<T, E>;
