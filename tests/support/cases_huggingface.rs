//! Hugging Face Mamba folders: the golden ones, shards, 16-bit types, and refusals by name.

use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use mamba_rl::checkpoint::{HfConfig, huggingface_config, load_huggingface};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

fn config() -> HfConfig {
    HfConfig {
        d_model: 24,
        n_layers: 2,
        d_state: 3,
        d_conv: 4,
        expand: 2,
        dt_rank: 2,
        rms_eps: 1e-5,
        proj_bias: true,
        conv_bias: false,
    }
}

/// Numbers that every type here holds exactly.
fn value(tensor: usize, i: usize) -> f32 {
    ((tensor * 31 + i * 7) % 256) as f32 * 0.25 - 16.0
}

/// Writes some tensors: name, shape, type, numbered by their place in the model.
fn write(path: &Path, tensors: &[(String, Vec<usize>, Dtype, usize)]) {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, shape, dtype, k)| {
            let numbers = (0..shape.iter().product()).map(|i| value(*k, i));
            match dtype {
                Dtype::F16 => numbers.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
                Dtype::BF16 => numbers.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
                Dtype::F64 => numbers.flat_map(|x| f64::from(x).to_le_bytes()).collect(),
                _ => numbers.flat_map(f32::to_le_bytes).collect(),
            }
        })
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((n, s, d, _), b)| (n, TensorView::new(*d, s.clone(), b).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// All tensors of the model in one type, without the prefix where asked.
fn tensors(config: &HfConfig, dtype: Dtype, prefix: bool) -> Vec<(String, Vec<usize>, Dtype, usize)> {
    let name = |n: String| if prefix { n } else { n.replacen("backbone.", "", 1) };
    config.tensors().into_iter().enumerate().map(|(k, (n, s))| (name(n), s, dtype, k)).collect()
}

fn folder(config: &Value) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    dir
}

fn check(dir: &Path, config: &HfConfig) {
    let found = load_huggingface(dir).unwrap();
    assert_eq!(found.config, *config);
    let expected = config.tensors();
    assert_eq!(found.tensors.len(), expected.len());
    for (k, (name, shape)) in expected.iter().enumerate() {
        let want: Vec<f32> = (0..shape.iter().product()).map(|i| value(k, i)).collect();
        assert_eq!(found.tensors[name], want, "{name}");
    }
}

#[test]
fn types_prefixes_and_shards() {
    let config = config();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        for prefix in [false, true] {
            let dir = folder(&huggingface_config(&config));
            let mut all = tensors(&config, dtype, prefix);
            all.push(("lm_head.weight".into(), vec![1, 24], dtype, 0));
            all.push((
                if prefix { "backbone.embeddings.weight" } else { "embeddings.weight" }.into(),
                vec![1, 24],
                dtype,
                0,
            ));
            write(&dir.path().join("model.safetensors"), &all);
            check(dir.path(), &config);
            fs::remove_file(dir.path().join("model.safetensors")).unwrap();
            let (a, b) = all.split_at(7);
            let mut map = serde_json::Map::new();
            for (part, file) in [(a, "model-00001-of-00002.safetensors"), (b, "model-00002-of-00002.safetensors")] {
                write(&dir.path().join(file), part);
                map.extend(part.iter().map(|(n, ..)| (n.clone(), json!(file))));
            }
            let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
            fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
            check(dir.path(), &config);
        }
    }
}

#[test]
fn fields_have_their_documented_defaults() {
    let want = HfConfig { d_model: 40, d_state: 16, dt_rank: 3, proj_bias: false, conv_bias: true, ..config() };
    for rank in [json!("auto"), Value::Null, json!(3)] {
        let dir = folder(&json!({"hidden_size": 40, "num_hidden_layers": 2, "time_step_rank": rank}));
        write(&dir.path().join("model.safetensors"), &tensors(&want, Dtype::F32, true));
        check(dir.path(), &want);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let config = config();
    let good = huggingface_config(&config);
    let fields = [
        ("hidden_size", json!("x"), "`hidden_size` is \"x\""),
        ("hidden_size", json!(0), "`hidden_size` is 0"),
        ("hidden_size", Value::Null, "`hidden_size` is missing"),
        ("num_hidden_layers", json!(1 << 23), "`num_hidden_layers` is above"),
        ("state_size", json!(1e30), "`state_size` is 1e+30"),
        ("expand", json!(1.5), "`expand` is 1.5"),
        ("intermediate_size", json!(7), "`intermediate_size` is 7, expected expand x hidden_size = 48"),
        ("model_type", json!("mamba2"), "`model_type` is \"mamba2\", expected \"mamba\""),
        ("layer_norm_epsilon", json!(-1), "`layer_norm_epsilon` is -1"),
        ("use_bias", json!("no"), "`use_bias` is \"no\", expected true or false"),
        ("state_size", json!(4), "x_proj.weight` has shape [8, 48], expected [10, 48]"),
        ("use_bias", json!(false), "in_proj.bias` is not part of this model"),
        ("use_conv_bias", json!(true), "conv1d.bias` is missing, expected shape [48]"),
        ("num_hidden_layers", json!(3), "`backbone.layers.2."),
    ];
    for (key, value, expected) in fields {
        let mut json = good.clone();
        json[key] = value;
        let dir = folder(&json);
        let mut all = tensors(&config, Dtype::F32, true);
        // A_log has d_state too; without it the projection is what differs.
        all.retain(|(n, ..)| key != "state_size" || !n.ends_with("A_log"));
        write(&dir.path().join("model.safetensors"), &all);
        let message = load_huggingface(dir.path()).unwrap_err().to_string();
        assert!(message.contains(expected), "{key}: {message}");
    }
    let dir = folder(&good);
    let message = load_huggingface(dir.path()).unwrap_err().to_string();
    assert!(message.contains("holds neither"), "{message}");
    write(&dir.path().join("model.safetensors"), &tensors(&config, Dtype::F64, true));
    let message = load_huggingface(dir.path()).unwrap_err().to_string();
    assert!(message.contains("has type F64, expected F32 or F16 or BF16"), "{message}");
    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    let index = json!({"weight_map": {"norm_f.weight": "../../etc/x"}}).to_string();
    fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    let message = load_huggingface(dir.path()).unwrap_err().to_string();
    assert!(message.contains("`../../etc/x`"), "{message}");
}

fn goldens() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let more = std::env::var_os("MAMBA_RL_GOLDEN_DIR").map(PathBuf::from);
    let folders = [Some(own), more].into_iter().flatten().filter_map(|d| fs::read_dir(d).ok());
    let paths = folders.flatten().filter_map(|e| e.ok()).map(|e| e.path());
    paths.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("hf_mamba_"))).collect()
}

#[test]
fn golden_folders_load() {
    let folders = goldens();
    assert!(folders.len() >= 2, "{folders:?}");
    for dir in folders {
        let found = load_huggingface(&dir).unwrap();
        for (name, shape) in found.config.tensors() {
            assert_eq!(found.tensors[&name].len(), shape.iter().product::<usize>(), "{name}");
            assert!(found.tensors[&name].iter().all(|x| x.is_finite()), "{name}");
        }
        // Our description says what theirs says, wherever both speak of the backbone.
        let theirs: Value = serde_json::from_slice(&fs::read(dir.join("config.json")).unwrap()).unwrap();
        let ours = huggingface_config(&found.config);
        for (key, value) in ours.as_object().unwrap() {
            assert!(theirs.get(key).is_some(), "{key} is not one of their fields");
            if !["architectures", "vocab_size"].contains(&key.as_str()) {
                assert_eq!(value, &theirs[key], "{key}");
            }
        }
        // The reference wrote down the sizes that it ran with.
        let bytes = fs::read(dir.join("expected.safetensors")).unwrap();
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let meta: Value = serde_json::from_str(&header.metadata().as_ref().unwrap()["meta"]).unwrap();
        let c = &found.config;
        for (key, value) in [
            ("d_model", json!(c.d_model)),
            ("n_layers", json!(c.n_layers)),
            ("d_state", json!(c.d_state)),
            ("d_conv", json!(c.d_conv)),
            ("d_inner", json!(c.d_model * c.expand)),
            ("dt_rank", json!(c.dt_rank)),
            ("rms_eps", json!(c.rms_eps)),
            ("proj_bias", json!(c.proj_bias)),
            ("conv_bias", json!(c.conv_bias)),
        ] {
            assert_eq!(meta["dims"][key], value, "{key}");
        }
    }
}
