//! Golden files: reading, comparing, and keeping account of what was read and compared.
//!
//! The format and the rules are those of `tests/golden/README.md`: err = max|a − b| / max|b| per tensor, or elementwise
//! where the file says {rtol, atol}; a tensor that nobody reads or compares is a failure.

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The number type that the case runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    F32,
    F64,
    /// f32 with operands of products and saved activations in 16 bits, range of f32: [`SMALL`].
    Bf16,
    /// Likewise, IEEE half.
    F16,
}

/// Tolerances of outputs and states, and of gradients, where activations are stored in 16 bits: of every tensor.
pub const SMALL: [(Precision, f64, f64); 2] = [(Precision::Bf16, 2e-2, 5e-2), (Precision::F16, 3e-3, 1e-2)];

#[derive(Debug)]
enum Data {
    F64(Vec<f64>),
    I64(Vec<i64>),
    U8(Vec<u8>),
}

#[derive(Debug)]
struct Tensor {
    shape: Vec<usize>,
    data: Data,
}

/// One golden file, run in one precision.
#[derive(Debug)]
pub struct Case {
    /// The file.
    pub path: PathBuf,
    /// Its kind.
    pub kind: String,
    /// Everything else that the file says about itself.
    pub meta: Value,
    /// The precision that comparisons allow for.
    pub precision: Precision,
    tensors: BTreeMap<String, Tensor>,
    touched: RefCell<BTreeSet<String>>,
    failures: RefCell<Vec<String>>,
    /// Largest error so far as a part of its tolerance, and whose; of tensors with one tolerance for all numbers.
    worst: RefCell<(f64, String)>,
}

/// Name prefixes that the format knows.
const KNOWN: [&str; 12] = [
    "param.",
    "param_target.",
    "input.",
    "state_in.",
    "loss.w",
    "loss.v",
    "out.",
    "state_out.",
    "state_k.",
    "state_at.",
    "step.",
    "grad.",
];

impl Case {
    /// Reads a file. Panics, naming it, if it is not of the format: such a file fails the test.
    pub fn load(path: &Path, precision: Precision) -> Case {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let meta = header.metadata().as_ref().and_then(|m| m.get("meta")).expect("a `meta` entry");
        let meta: Value = serde_json::from_str(meta).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(meta["format"], "mamba-rl-golden/1", "{}", path.display());
        let parsed = SafeTensors::deserialize(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut tensors = BTreeMap::new();
        let mut failures = Vec::new();
        for (name, view) in parsed.iter() {
            if name != "loss.value" && !KNOWN.iter().any(|p| name.starts_with(p)) {
                failures.push(format!("`{name}`: a name that the format does not know"));
            }
            let words = || view.data().chunks_exact(8).map(|b| <[u8; 8]>::try_from(b).expect("8 bytes"));
            let data = match view.dtype() {
                Dtype::F64 => Data::F64(words().map(f64::from_le_bytes).collect()),
                Dtype::I64 => Data::I64(words().map(i64::from_le_bytes).collect()),
                Dtype::U8 => Data::U8(view.data().to_vec()),
                other => panic!("{}: `{name}` is {other:?}", path.display()),
            };
            tensors.insert(name.to_owned(), Tensor { shape: view.shape().to_vec(), data });
        }
        let kind = meta["kind"].as_str().expect("a kind").to_owned();
        let (touched, failures) = (RefCell::default(), RefCell::new(failures));
        Case { path: path.to_owned(), kind, meta, precision, tensors, touched, failures, worst: RefCell::default() }
    }

    /// The largest error so far as a part of its tolerance, and the tensor.
    pub fn worst(&self) -> (f64, String) {
        self.worst.borrow().clone()
    }

    fn tensor(&self, name: &str) -> &Tensor {
        self.touched.borrow_mut().insert(name.to_owned());
        self.tensors.get(name).unwrap_or_else(|| panic!("{}: no tensor `{name}`", self.path.display()))
    }

    /// Whether the file has this tensor.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Names that begin with `prefix`, without it, in alphabetical order.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        self.tensors.keys().filter_map(|n| n.strip_prefix(prefix)).map(str::to_owned).collect()
    }

    /// Shape of a tensor; does not count as reading it.
    pub fn shape(&self, name: &str) -> &[usize] {
        &self.tensors.get(name).unwrap_or_else(|| panic!("{}: no tensor `{name}`", self.path.display())).shape
    }

    /// Reads numbers.
    pub fn f64s(&self, name: &str) -> Vec<f64> {
        match &self.tensor(name).data {
            Data::F64(v) => v.clone(),
            other => panic!("{}: `{name}` is {other:?}", self.path.display()),
        }
    }

    /// Reads integers.
    pub fn i64s(&self, name: &str) -> Vec<i64> {
        match &self.tensor(name).data {
            Data::I64(v) => v.clone(),
            other => panic!("{}: `{name}` is {other:?}", self.path.display()),
        }
    }

    /// Reads indices or counts.
    pub fn indices(&self, name: &str) -> Vec<usize> {
        self.i64s(name).into_iter().map(|i| usize::try_from(i).expect("an index")).collect()
    }

    /// Reads a mask.
    pub fn mask(&self, name: &str) -> Vec<bool> {
        match &self.tensor(name).data {
            Data::U8(v) => v.iter().map(|&b| b != 0).collect(),
            other => panic!("{}: `{name}` is {other:?}", self.path.display()),
        }
    }

    /// A number of the metadata; `key` may be a path such as `dims.d_model`.
    pub fn number(&self, key: &str) -> f64 {
        self.entry(key).as_f64().unwrap_or_else(|| panic!("{}: meta `{key}` is no number", self.path.display()))
    }

    /// A count of the metadata.
    pub fn count(&self, key: &str) -> usize {
        let n = self.entry(key).as_u64().unwrap_or_else(|| panic!("{}: meta `{key}`", self.path.display()));
        usize::try_from(n).expect("a count")
    }

    /// A flag of the metadata.
    pub fn flag(&self, key: &str) -> bool {
        self.entry(key).as_bool().unwrap_or_else(|| panic!("{}: meta `{key}` is no flag", self.path.display()))
    }

    fn entry(&self, key: &str) -> &Value {
        key.split('.').fold(&self.meta, |value, part| &value[part])
    }

    fn listed(&self, list: &str, name: &str) -> bool {
        self.meta[list].as_array().is_some_and(|names| names.iter().any(|n| n == name))
    }

    /// Tolerance of a tensor in this precision, as the file has it: a number or {rtol, atol}.
    fn tolerance(&self, name: &str) -> Value {
        let t = &self.meta["tolerance"];
        if self.listed("f32_only", name) {
            return t["f32_out"].clone();
        }
        if self.precision == Precision::F64 {
            let own = name.strip_prefix("out.").map_or(&Value::Null, |n| &t[format!("f64_{n}")]);
            return if own.is_null() { t["f64"].clone() } else { own.clone() };
        }
        if let Some((_, out, grad)) = SMALL.iter().find(|row| row.0 == self.precision) {
            return Value::from(if name.starts_with("grad.") { *grad } else { *out });
        }
        let by_prefix = match name {
            n if n.starts_with("grad.") => "f32_grad",
            n if n.starts_with("state_") => "f32_state",
            n if n.starts_with("out.param.") => "f32_param",
            n if n.starts_with("step.") => "f32_step",
            _ => "f32_out",
        };
        [&t["f32_tensors"][name], &t["f32"], &t[by_prefix]]
            .into_iter()
            .find(|v| !v.is_null())
            .cloned()
            .unwrap_or_default()
    }

    /// Compares a tensor with what an implementation got, by the file's own tolerance. Integers and masks are compared
    /// exactly, given as numbers. `f64_only` tensors are skipped in f32.
    pub fn compare(&self, name: &str, got: &[f64]) {
        let tensor = self.tensor(name);
        let want: Vec<f64> = match &tensor.data {
            Data::F64(v) => v.clone(),
            Data::I64(v) => v.iter().map(|&x| x as f64).collect(),
            Data::U8(v) => v.iter().map(|&x| f64::from(x)).collect(),
        };
        let exact = !matches!(tensor.data, Data::F64(_));
        self.compare_numbers(name, &want, got, exact);
    }

    /// As [`Self::compare`], without index 0 of the last axis: for conv windows that keep only what matters.
    pub fn compare_tail(&self, name: &str, got: &[f64]) {
        let want = self.tail(name);
        self.compare_numbers(name, &want, got, false);
    }

    /// Reads numbers without index 0 of the last axis.
    pub fn tail(&self, name: &str) -> Vec<f64> {
        let last = *self.shape(name).last().expect("an axis");
        self.f64s(name).chunks_exact(last).flat_map(|row| row[1..].to_vec()).collect()
    }

    fn compare_numbers(&self, name: &str, want: &[f64], got: &[f64], exact: bool) {
        if self.precision != Precision::F64 && self.listed("f64_only", name) {
            return;
        }
        if want.len() != got.len() {
            return self.fail(format!("`{name}`: {} numbers, expected {}", got.len(), want.len()));
        }
        let tolerance = self.tolerance(name);
        let elementwise = exact || tolerance.is_object();
        let scale = want.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let (rtol, atol) = match (&tolerance, exact) {
            (_, true) => (0.0, 0.0),
            (Value::Object(t), _) => (t["rtol"].as_f64().expect("rtol"), t["atol"].as_f64().expect("atol")),
            (number, _) => (number.as_f64().unwrap_or_else(|| panic!("no tolerance for `{name}`")), 0.0),
        };
        for (i, (&w, &g)) in want.iter().zip(got).enumerate() {
            let allowed = atol + rtol * if elementwise { w.abs() } else { scale };
            // `<=` is false for NaN, which must fail.
            let close = g == w || (g - w).abs() <= allowed;
            if !close {
                return self.fail(format!("`{name}`[{i}]: {g:e}, expected {w:e} within {allowed:e}"));
            }
            let part = (g - w).abs() / allowed;
            if !elementwise && part > self.worst.borrow().0 {
                *self.worst.borrow_mut() = (part, name.to_owned());
            }
        }
    }

    /// Compares integers exactly.
    pub fn compare_counts(&self, name: &str, got: &[usize]) {
        self.compare(name, &got.iter().map(|&x| x as f64).collect::<Vec<_>>());
    }

    /// Compares a mask exactly.
    pub fn compare_mask(&self, name: &str, got: &[bool]) {
        self.compare(name, &got.iter().map(|&x| f64::from(u8::from(x))).collect::<Vec<_>>());
    }

    /// Counts a tensor as done that the format says need not be compared.
    pub fn leave_out(&self, name: &str) {
        self.tensor(name);
    }

    /// Notes a failure of a check that is no comparison of a tensor.
    pub fn fail(&self, what: String) {
        let file = self.path.file_name().map(|f| f.to_string_lossy().into_owned()).unwrap_or_default();
        self.failures.borrow_mut().push(format!("{file} ({:?}): {what}", self.precision));
    }

    /// All failures, tensors that nobody touched among them.
    pub fn finish(self) -> Vec<String> {
        for name in self.tensors.keys() {
            let exempt = self.precision != Precision::F64 && self.listed("f64_only", name);
            if !exempt && !self.touched.borrow().contains(name) {
                self.fail(format!("`{name}` was neither read nor compared"));
            }
        }
        self.failures.into_inner()
    }
}

/// All golden files in a folder: `*.safetensors`, and `expected.safetensors` in folders.
pub fn files_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder entry").path())
        .map(|path| if path.is_dir() { path.join("expected.safetensors") } else { path })
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    files.sort();
    files
}

/// The repository's folder, and the one named by `MAMBA_RL_GOLDEN_DIR`.
pub fn folders() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    std::iter::once(own).chain(std::env::var_os("MAMBA_RL_GOLDEN_DIR").map(PathBuf::from)).collect()
}
