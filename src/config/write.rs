//! A config as TOML, its hash, and what may differ when a run goes on.

use toml::{Table, Value};

use super::Config;
use super::keys::{KEYS, SECTIONS};
use super::layers::FREE_KEYS;
use crate::error::{Error, Result};
use crate::young::YOUNG_KEYS;

/// A key on which a resumed run differs from the saved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Key path, such as `learner.gamma`.
    pub key: String,
    /// Value in the run folder.
    pub saved: String,
    /// Value asked for.
    pub now: String,
}

impl Config {
    pub(super) fn to_table(&self) -> Result<Table> {
        Table::try_from(self).map_err(|e| Error::config("config", format!("cannot be written as TOML: {e}")))
    }

    /// The whole tree as TOML with one comment line per section: enough to repeat the run.
    ///
    /// # Errors
    /// `Config` where a number is larger than TOML's (2^63 − 1).
    pub fn to_toml(&self) -> Result<String> {
        let mut out = format!("preset = {}\n", Value::String(self.preset.clone()));
        let table = self.to_table()?;
        for (section, comment) in SECTIONS {
            let Some(inner) = table.get(*section) else { continue };
            let one = Table::from_iter([((*section).to_owned(), inner.clone())]);
            let text = toml::to_string(&one).map_err(|e| Error::config(*section, e.to_string()))?;
            out.push_str(&format!("\n# {comment}\n{}", text.trim_start()));
        }
        Ok(out)
    }

    /// CRC-32 of the canonical TOML as 8 hex digits, without what does not change what is learnt: preset name, number of
    /// steps, device, threads and cadences. Equal settings have equal hashes; so do runs with different `train.steps`.
    ///
    /// # Errors
    /// As [`Config::to_toml`].
    pub fn config_hash(&self) -> Result<String> {
        let mut table = self.to_table()?;
        table.remove("preset");
        // where they are off, settings hash as they did before these keys were there
        for (section, name, off) in YOUNG_KEYS {
            if let Some(Value::Table(inner)) = table.get_mut(section)
                && inner.get(name) == Some(&off.into())
            {
                inner.remove(name);
            }
        }
        for (section, name) in FREE_KEYS.iter().filter(|(_, n)| *n != "precision") {
            if let Some(Value::Table(inner)) = table.get_mut(*section) {
                inner.remove(*name);
            }
        }
        // Sorted by hand: the order of the map is a feature of the TOML crate.
        let mut lines = Vec::new();
        flatten("", &Value::Table(table), &mut lines);
        lines.sort();
        Ok(format!("{:08x}", crc32fast::hash(lines.join("\n").as_bytes())))
    }

    /// The first key on which `now` may not differ from the `saved` config of a run that goes on. Only steps, device,
    /// precision, threads and the cadences of log, evaluation and checkpoints may.
    ///
    /// # Errors
    /// As [`Config::to_toml`].
    pub fn resume_difference(saved: &Config, now: &Config) -> Result<Option<Difference>> {
        let (a, b) = (saved.to_table()?, now.to_table()?);
        for key in KEYS.iter().filter(|k| !k.section.is_empty() && !FREE_KEYS.contains(&(k.section, k.name))) {
            let get = |t: &Table| t.get(key.section).and_then(|s| s.get(key.name)).cloned();
            let (x, y) = (get(&a), get(&b));
            if x != y {
                let show = |v: Option<Value>| v.map_or_else(|| "none".to_owned(), |v| v.to_string());
                return Ok(Some(Difference { key: key.path(), saved: show(x), now: show(y) }));
            }
        }
        Ok(None)
    }
}

fn flatten(path: &str, value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Table(t) => t.iter().for_each(|(k, v)| flatten(&format!("{path}.{k}"), v, out)),
        v => out.push(format!("{path}={v}")),
    }
}
