//! Mamba checkpoints of the Hugging Face library: theirs into our blocks, and a `config.json` with which ours load there.
//! Their tensors are named like ours (`backbone.layers.{i}.mixer.*`, `backbone.norm_f.weight`); the bare model saves them
//! without the prefix. Embeddings and the language head have no counterpart here and are left out.
//! Source: `transformers` model type `mamba` (configuration of version 5.24), defaults as documented there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;
use serde_json::{Map, Value, json};

use super::tensors::TensorFile;
use super::{CONFIG_FILE, MODEL_FILE, state};
use crate::error::{Error, Result};

const INDEX_FILE: &str = "model.safetensors.index.json";
const TYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];

/// The sizes of a Mamba backbone under our names; theirs in brackets.
#[derive(Debug, Clone, PartialEq)]
pub struct HfConfig {
    /// Width of the residual stream (`hidden_size`).
    pub d_model: usize,
    /// Blocks (`num_hidden_layers`).
    pub n_layers: usize,
    /// SSM states per channel (`state_size`), 16 where absent.
    pub d_state: usize,
    /// Width of the convolution (`conv_kernel`), 4 where absent.
    pub d_conv: usize,
    /// d_inner / d_model (`expand`), 2 where absent.
    pub expand: usize,
    /// Rank of the Δ projection (`time_step_rank`), ⌈d_model / 16⌉ where absent or "auto".
    pub dt_rank: usize,
    /// ε of the norms (`layer_norm_epsilon`), 1e-5 where absent.
    pub rms_eps: f64,
    /// Bias of in_proj and out_proj (`use_bias`), false where absent.
    pub proj_bias: bool,
    /// Bias of the convolution (`use_conv_bias`), true where absent.
    pub conv_bias: bool,
}

/// A loaded backbone.
#[derive(Debug, Clone)]
pub struct HfMamba {
    /// Its sizes.
    pub config: HfConfig,
    /// Row-major values under our names, `backbone.layers.{i}.*` and `backbone.norm_f.weight`; shapes as
    /// [`HfConfig::tensors`].
    pub tensors: HashMap<String, Vec<f32>>,
}

impl HfConfig {
    /// Names (ours) and shapes of all tensors of such a backbone, in the order of computation.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (d, n, k, r) = (self.d_model, self.d_state, self.d_conv, self.dt_rank);
        let inner = self.expand * d;
        let mut all = Vec::new();
        for i in 0..self.n_layers {
            let mut add =
                |name: &str, shape: &[usize]| all.push((format!("backbone.layers.{i}.{name}"), shape.to_vec()));
            add("norm.weight", &[d]);
            add("mixer.in_proj.weight", &[2 * inner, d]);
            if self.proj_bias {
                add("mixer.in_proj.bias", &[2 * inner]);
            }
            add("mixer.conv1d.weight", &[inner, 1, k]);
            if self.conv_bias {
                add("mixer.conv1d.bias", &[inner]);
            }
            add("mixer.x_proj.weight", &[r + 2 * n, inner]);
            add("mixer.dt_proj.weight", &[inner, r]);
            add("mixer.dt_proj.bias", &[inner]);
            add("mixer.A_log", &[inner, n]);
            add("mixer.D", &[inner]);
            add("mixer.out_proj.weight", &[d, inner]);
            if self.proj_bias {
                add("mixer.out_proj.bias", &[d]);
            }
        }
        all.push(("backbone.norm_f.weight".into(), vec![d]));
        all
    }

    /// Reads their field names.
    fn from_json(path: &Path, json: &Value) -> Result<Self> {
        let fields = Fields { path, json };
        fields.must_be("model_type", "mamba")?;
        fields.must_be("hidden_act", "silu")?;
        let d_model = fields.size("hidden_size", None)?;
        let auto = d_model.div_ceil(16);
        let dt_rank = match json.get("time_step_rank") {
            Some(Value::String(s)) if s == "auto" => auto,
            _ => fields.size("time_step_rank", Some(auto))?,
        };
        let config = HfConfig {
            d_model,
            n_layers: fields.size("num_hidden_layers", None)?,
            d_state: fields.size("state_size", Some(16))?,
            d_conv: fields.size("conv_kernel", Some(4))?,
            expand: fields.size("expand", Some(2))?,
            dt_rank,
            rms_eps: fields.positive("layer_norm_epsilon", 1e-5)?,
            proj_bias: fields.flag("use_bias", false)?,
            conv_bias: fields.flag("use_conv_bias", true)?,
        };
        if config.n_layers > MOST_LAYERS {
            return Err(fields.bad("num_hidden_layers", format!("is above {MOST_LAYERS}, the most supported")));
        }
        let inner = config.expand * d_model;
        let found = fields.size("intermediate_size", Some(inner))?;
        if found != inner {
            return Err(fields.bad("intermediate_size", format!("is {found}, expected expand x hidden_size = {inner}")));
        }
        Ok(config)
    }
}

/// Largest size believed: far above any model, far below overflow of a product of two.
const LARGEST: u64 = 1 << 24;

/// Most layers believed: bounds the list of expected tensors before a file is opened.
const MOST_LAYERS: usize = 4096;

struct Fields<'a> {
    path: &'a Path,
    json: &'a Value,
}

impl Fields<'_> {
    fn bad(&self, key: &str, problem: String) -> Error {
        Error::checkpoint(self.path, format!("`{key}` {problem}"))
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.json.get(key).filter(|v| !v.is_null())
    }

    fn must_be(&self, key: &str, want: &str) -> Result<()> {
        match self.get(key) {
            Some(found) if found != want => Err(self.bad(key, format!("is {found}, expected \"{want}\""))),
            _ => Ok(()),
        }
    }

    fn size(&self, key: &str, default: Option<usize>) -> Result<usize> {
        let Some(found) = self.get(key) else {
            return default.ok_or_else(|| self.bad(key, "is missing, expected a whole number".into()));
        };
        let whole = found.as_f64().filter(|x| x.fract() == 0.0 && (1.0..=LARGEST as f64).contains(x));
        let problem = || self.bad(key, format!("is {found}, expected a whole number from 1 to {LARGEST}"));
        whole.map(|x| x as usize).ok_or_else(problem)
    }

    fn positive(&self, key: &str, default: f64) -> Result<f64> {
        let Some(found) = self.get(key) else { return Ok(default) };
        let problem = || self.bad(key, format!("is {found}, expected a number above 0"));
        found.as_f64().filter(|x| *x > 0.0).ok_or_else(problem)
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        let Some(found) = self.get(key) else { return Ok(default) };
        found.as_bool().ok_or_else(|| self.bad(key, format!("is {found}, expected true or false")))
    }
}

/// The `config.json` with which `transformers` builds the same backbone. Its vocabulary has one word, because we have no
/// embeddings; it is to be fed with `inputs_embeds`. Our own description may be added under a key of its own.
pub fn huggingface_config(config: &HfConfig) -> Value {
    json!({
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "dtype": "float32",
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "state_size": config.d_state,
        "conv_kernel": config.d_conv,
        "expand": config.expand,
        "intermediate_size": config.expand * config.d_model,
        "time_step_rank": config.dt_rank,
        "layer_norm_epsilon": config.rms_eps,
        "use_bias": config.proj_bias,
        "use_conv_bias": config.conv_bias,
        "hidden_act": "silu",
        "residual_in_fp32": true,
        "tie_word_embeddings": true,
        "vocab_size": 1,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    })
}

/// Loads a Hugging Face Mamba checkpoint: `config.json` with `model.safetensors`, or with the shards that
/// `model.safetensors.index.json` names. F16 and BF16 become f32.
///
/// # Errors
/// `Checkpoint` with the file and the field or tensor, found and expected; `Io` where the system refuses a read.
pub fn load_huggingface(dir: &Path) -> Result<HfMamba> {
    let config_path = dir.join(CONFIG_FILE);
    let config = HfConfig::from_json(&config_path, &read_json(&config_path)?)?;
    let shards = shards(dir)?;
    let mut missing: BTreeMap<String, Vec<usize>> = config.tensors().into_iter().collect();
    let mut tensors = HashMap::with_capacity(missing.len());
    for path in &shards {
        let len = fs::metadata(path).map_err(|e| Error::io("reading", path, e))?.len();
        let source = File::open(path).map_err(|e| Error::io("opening", path, e))?;
        let mut file = TensorFile::open(path, source, len)?;
        for theirs in file.names() {
            let ours = if theirs.starts_with("backbone.") { theirs.clone() } else { format!("backbone.{theirs}") };
            if left_out(&theirs) {
                continue;
            }
            let Some(shape) = missing.remove(&ours) else {
                let why = if tensors.contains_key(&ours) { "is there twice" } else { "is not part of this model" };
                return Err(Error::checkpoint(path, format!("tensor `{theirs}` {why}, see {CONFIG_FILE}")));
            };
            let values = file.read(&theirs, &shape, &TYPES)?;
            tensors.insert(ours, values);
        }
    }
    if let Some((name, shape)) = missing.first_key_value() {
        let path = shards.first().filter(|_| shards.len() == 1).map_or(dir, PathBuf::as_path);
        return Err(Error::checkpoint(path, format!("tensor `{name}` is missing, expected shape {shape:?}")));
    }
    Ok(HfMamba { config, tensors })
}

/// Embeddings and the language head, in the spellings of both libraries.
fn left_out(name: &str) -> bool {
    let bare = name.strip_prefix("backbone.").unwrap_or(name);
    ["embeddings.weight", "embedding.weight", "lm_head.weight"].contains(&bare)
}

/// The files that hold the tensors, each once, sorted.
fn shards(dir: &Path) -> Result<Vec<PathBuf>> {
    let single = dir.join(MODEL_FILE);
    if single.is_file() {
        return Ok(vec![single]);
    }
    let path = dir.join(INDEX_FILE);
    if !path.is_file() {
        return Err(Error::checkpoint(dir, format!("holds neither {MODEL_FILE} nor {INDEX_FILE}")));
    }
    let index = read_json(&path)?;
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        return Err(Error::checkpoint(path, "`weight_map` is missing, expected tensor names and their files"));
    };
    let mut names = BTreeSet::new();
    for (tensor, file) in map {
        let Some(file) = file.as_str() else {
            return Err(Error::checkpoint(path, format!("`weight_map.{tensor}` is {file}, expected a file name")));
        };
        state::check_name(&path, file)?;
        names.insert(file);
    }
    Ok(names.into_iter().map(|n| dir.join(n)).collect())
}

fn read_json(path: &Path) -> Result<Value> {
    let text = fs::read(path).map_err(|e| Error::io("reading", path, e))?;
    let fields: Map<String, Value> =
        serde_json::from_slice(&text).map_err(|e| Error::checkpoint(path, format!("JSON: {e}")))?;
    Ok(Value::Object(fields))
}
