//! Backbones of your own by name, so that `backbone.name` in a config, a run and its checkpoints know them: once per
//! process, [`register`] the name and how such a body is made. Without that a checkpoint of it does not load, and says so.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::Backbone;
use crate::error::{Error, Result};
use crate::ops::Backend;

/// The bundled ones.
pub const BUNDLED: [&str; 4] = ["mamba", "gru", "lstm", "mlp"];

/// What a config says of a body that is not bundled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomConfig {
    /// The registered name.
    pub body: String,
    /// Features per step that go in.
    pub d_input: usize,
    /// `backbone.d_model`.
    pub d_model: usize,
    /// `backbone.n_layers`.
    pub n_layers: usize,
}

type Make<D> = Arc<dyn Fn(&CustomConfig) -> Result<Box<dyn Backbone<D>>> + Send + Sync>;

/// How each name is made; the value is a `Make<D>` for the device it was registered for.
static MAKERS: RwLock<BTreeMap<String, Box<dyn Any + Send + Sync>>> = RwLock::new(BTreeMap::new());

/// Makes `backbone.name = name` mean this body on device `D`, for the whole process.
///
/// # Errors
/// `Config` where the name is taken or is no word of letters, digits, `-` and `_`.
pub fn register<D: Backend>(
    name: &str,
    make: impl Fn(&CustomConfig) -> Result<Box<dyn Backbone<D>>> + Send + Sync + 'static,
) -> Result<()> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(word) {
        return Err(Error::config("backbone.name", format!("is `{name}`, expected letters, digits, - and _")));
    }
    let mut makers = MAKERS.write().unwrap_or_else(PoisonError::into_inner);
    if BUNDLED.contains(&name) || makers.contains_key(name) {
        return Err(Error::config("backbone.name", format!("`{name}` is taken")));
    }
    let make: Make<D> = Arc::new(make);
    makers.insert(name.into(), Box::new(make));
    Ok(())
}

/// Names that were registered, sorted.
pub fn registered() -> Vec<String> {
    MAKERS.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
}

/// A registered body.
pub(super) fn build<D: Backend>(config: &CustomConfig) -> Result<Box<dyn Backbone<D>>> {
    let name = &config.body;
    let make = {
        let makers = MAKERS.read().unwrap_or_else(PoisonError::into_inner);
        let Some(any) = makers.get(name) else {
            let known: Vec<&str> = BUNDLED.into_iter().chain(makers.keys().map(String::as_str)).collect();
            let problem = format!(
                "is `{name}`, expected {}; a body of your own is registered first (`backbone::register`)",
                known.join(", ")
            );
            return Err(Error::config("backbone.name", problem));
        };
        any.downcast_ref::<Make<D>>().cloned()
    };
    match make {
        Some(make) => make(config),
        None => Err(Error::config("backbone.name", format!("`{name}` is registered for another device"))),
    }
}
