//! Golden files: temporary reader.
#![allow(dead_code)]
use std::collections::HashMap;
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Precision {
    F32,
    F64,
}
pub struct Case {
    pub name: String,
    meta: serde_json::Value,
    t: HashMap<String, (String, Vec<u8>)>,
    seen: std::cell::RefCell<std::collections::HashSet<String>>,
    dir: std::path::PathBuf,
}
impl Case {
    pub fn open(path: &Path) -> Self {
        let b = std::fs::read(path).unwrap();
        let (_, m) = safetensors::SafeTensors::read_metadata(&b).unwrap();
        let meta = serde_json::from_str(&m.metadata().as_ref().unwrap()["meta"]).unwrap();
        let st = safetensors::SafeTensors::deserialize(&b).unwrap();
        let t = st.tensors().into_iter().map(|(n, v)| (n, (format!("{:?}", v.dtype()), v.data().to_vec()))).collect();
        Case { name: path.display().to_string(), meta, t, seen: Default::default(), dir: path.parent().unwrap().into() }
    }
    pub fn meta(&self) -> &serde_json::Value {
        &self.meta
    }
    pub fn kind(&self) -> &str {
        self.meta["kind"].as_str().unwrap()
    }
    pub fn usize(&self, k: &str) -> usize {
        self.meta[k].as_u64().unwrap() as usize
    }
    pub fn flag(&self, k: &str) -> bool {
        self.meta[k].as_bool().unwrap()
    }
    pub fn has(&self, n: &str) -> bool {
        self.t.contains_key(n)
    }
    pub fn f64(&self, n: &str) -> Vec<f64> {
        self.seen.borrow_mut().insert(n.into());
        self.t[n].1.chunks(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect()
    }
    pub fn u8(&self, n: &str) -> Vec<u8> {
        self.seen.borrow_mut().insert(n.into());
        self.t[n].1.clone()
    }
    pub fn model(&self) -> HashMap<String, Vec<f64>> {
        let b = std::fs::read(self.dir.join("model.safetensors")).unwrap();
        let st = safetensors::SafeTensors::deserialize(&b).unwrap();
        let f = |d: &[u8]| d.chunks(4).map(|c| f64::from(f32::from_le_bytes(c.try_into().unwrap()))).collect();
        st.tensors().into_iter().map(|(n, v)| (n, f(v.data()))).collect()
    }
    pub fn compare(&self, n: &str, got: &[f64], p: Precision) {
        let want = self.f64(n);
        if p == Precision::F32 && self.meta["f64_only"].as_array().unwrap().iter().any(|x| x == n) {
            return;
        }
        let t = &self.meta["tolerance"];
        let key = if p == Precision::F64 {
            "f64"
        } else if n.starts_with("grad") {
            "f32_grad"
        } else if n.starts_with("state") {
            "f32_state"
        } else {
            "f32_out"
        };
        super::net::close(&format!("{} {n} {p:?}", self.name), got, &want, t[key].as_f64().unwrap());
    }
    pub fn finish(&self) {
        for n in self.t.keys() {
            assert!(self.seen.borrow().contains(n), "{} {n} was not read", self.name);
        }
    }
}
