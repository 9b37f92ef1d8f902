//! Keys that came after the first run folders and checkpoints: what each was before it was there.

/// What a key does where it does nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Off {
    /// A word.
    Word(&'static str),
    /// A number.
    Number(f64),
    /// A switch.
    Switch(bool),
}

/// Section, key and the value at which a run is what it was before the key was there. Where a file lacks the key, this is
/// meant; where a key has this value, settings hash as they did without it.
pub(crate) const YOUNG_KEYS: [(&str, &str, Off); 4] = [
    ("backbone", "rotate", Off::Word("off")),
    ("learner", "lr_decay", Off::Number(0.0)),
    ("learner", "acting", Off::Word("online")),
    ("network", "shortcut", Off::Switch(false)),
];

macro_rules! into_value {
    ($value:ty) => {
        impl From<Off> for $value {
            fn from(off: Off) -> Self {
                match off {
                    Off::Word(word) => word.into(),
                    Off::Number(number) => number.into(),
                    Off::Switch(on) => on.into(),
                }
            }
        }
    };
}

into_value!(toml::Value);
into_value!(serde_json::Value);

#[cfg(test)]
mod tests {
    use super::YOUNG_KEYS;
    use crate::config::Config;

    /// A name that no config has, or a value of another kind, would leave a key's hash or an old file's meaning unmended.
    #[test]
    fn young_keys_are_keys_of_the_config() {
        let text = Config::default().to_toml().expect("a default config");
        let table: toml::Table = text.parse().expect("its own TOML");
        for (section, key, off) in YOUNG_KEYS {
            let value = &table[section][key];
            let off = toml::Value::from(off);
            assert!(value.same_type(&off), "{section}.{key}: {value} and {off}");
        }
    }
}
