//! Temporary walk over the network kinds.
mod support {
    pub mod golden;
    pub mod golden_hf;
    pub mod golden_mamba;
    pub mod golden_rnn;
    pub mod net;
}
use support::golden::{Case, Precision};
#[test]
fn networks() {
    let mut n = 0;
    for e in std::fs::read_dir("/work/shared/golden").unwrap() {
        let p = e.unwrap().path();
        let name = p.file_name().unwrap().to_str().unwrap().to_string();
        let mamba = name.starts_with("mamba_");
        let rnn = name.starts_with("lstm") || name.starts_with("gru");
        let hf = name.starts_with("hf_");
        if !(mamba || rnn || hf) {
            continue;
        }
        eprintln!("{name}");
        let p = if hf { p.join("expected.safetensors") } else { p };
        for pr in [Precision::F64, Precision::F32] {
            let c = Case::open(&p);
            let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match (hf, rnn, pr) {
                (true, _, Precision::F64) => support::golden_hf::check::<f64>(&c, pr),
                (true, _, _) => support::golden_hf::check::<f32>(&c, pr),
                (_, true, Precision::F64) => support::golden_rnn::check::<f64>(&c, pr),
                (_, true, _) => support::golden_rnn::check::<f32>(&c, pr),
                (_, _, Precision::F64) => support::golden_mamba::check::<f64>(&c, pr),
                _ => support::golden_mamba::check::<f32>(&c, pr),
            }));
            if r.is_err() {
                n += 1;
                continue;
            }
            c.finish();
        }
    }
    assert_eq!(n, 0);
}
