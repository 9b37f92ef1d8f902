//! What a pass must compute, by op: floating-point operations of matrix products and scan, exponentials, and bytes of
//! pointwise traffic (each operand once; those of matrix products stay in the caches). For a token and layer, with
//! e = d_inner, m = d_model, r = dt_rank, n = d_state:
//!
//! | op | flops | exponentials | floats moved |
//! |---|---|---|---|
//! | in_proj | 4 m e | | |
//! | x_proj | 2 e (r + 2n) | | |
//! | dt_proj, softplus | 2 r e | e | 2 e |
//! | out_proj | 2 e m | | |
//! | conv, SiLU | 8 e | e | 2 e |
//! | scan | 6 e n | e n | 3 e + r + 2n |
//! | gate | | e | 3 e |
//! | norm, residual | | | 4 m |
//!
//! The backward of a product is two products; that of the scan recomputes every exponential and needs 15 e n flops. A
//! rotating scan has half the exponentials and turns pairs instead: 8.5 e n flops forward, 23 e n backward.

use super::Shape;
use super::machine::Ceilings;
use crate::backbone::Rotate;

/// States per channel.
pub(crate) const D_STATE: usize = 16;

/// Work of one op in one pass over the whole batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpCount {
    /// Op.
    pub op: &'static str,
    /// Additions and multiplications.
    pub flops: f64,
    /// Exponentials.
    pub exps: f64,
    /// Bytes of pointwise traffic.
    pub bytes: f64,
}

impl OpCount {
    /// Seconds that this machine needs at least.
    pub fn floor_s(&self, c: &Ceilings) -> f64 {
        self.flops / (c.gemm_gflops * 1e9) + self.exps / (c.exp_gops * 1e9) + self.bytes / (c.copy_gbs * 1e9)
    }
}

/// Seconds that a pass needs at least.
pub fn floor_s(ops: &[OpCount], c: &Ceilings) -> f64 {
    ops.iter().map(|o| o.floor_s(c)).sum()
}

/// Sizes of a block, as numbers to count with.
struct Sizes {
    m: f64,
    e: f64,
    r: f64,
    n: f64,
    /// Tokens times layers.
    blocks: f64,
    tokens: f64,
    input: f64,
    scan: Scan,
}

/// Work of a state and channel in the scan.
struct Scan {
    forward: f64,
    backward: f64,
    exps: f64,
}

impl Sizes {
    fn new(s: Shape, time: usize) -> Self {
        let tokens = (s.batch * time) as f64;
        let (m, r) = (s.d_model as f64, s.d_model.div_ceil(16) as f64);
        let (blocks, input) = (tokens * s.n_layers as f64, s.d_input as f64);
        let scan = match s.rotate {
            Rotate::Off => Scan { forward: 6.0, backward: 15.0, exps: 1.0 },
            Rotate::Fixed | Rotate::Learned => Scan { forward: 8.5, backward: 23.0, exps: 0.5 },
        };
        Sizes { m, e: 2.0 * m, r, n: D_STATE as f64, blocks, tokens, input, scan }
    }
}

/// The forward pass over `time` steps.
pub fn forward(s: Shape, time: usize) -> Vec<OpCount> {
    let k = Sizes::new(s, time);
    let (m, e, r, n) = (k.m, k.e, k.r, k.n);
    let block = |op, flops: f64, exps: f64, floats: f64| OpCount {
        op,
        flops: flops * k.blocks,
        exps: exps * k.blocks,
        bytes: 4.0 * floats * k.blocks,
    };
    vec![
        OpCount { op: "input_proj", flops: 2.0 * k.input * m * k.tokens, exps: 0.0, bytes: 0.0 },
        block("norm, residual", 0.0, 0.0, 4.0 * m),
        block("in_proj", 4.0 * m * e, 0.0, 0.0),
        block("conv, silu", 8.0 * e, e, 2.0 * e),
        block("x_proj", 2.0 * e * (r + 2.0 * n), 0.0, 0.0),
        block("dt_proj, softplus", 2.0 * r * e, e, 2.0 * e),
        block("scan", k.scan.forward * e * n, k.scan.exps * e * n, 3.0 * e + r + 2.0 * n),
        block("gate", 0.0, e, 3.0 * e),
        block("out_proj", 2.0 * e * m, 0.0, 0.0),
    ]
}

/// The backward pass over `time` steps, without the gradient of the inputs.
pub fn backward(s: Shape, time: usize) -> Vec<OpCount> {
    let (m, e, n) = (s.d_model as f64, 2.0 * s.d_model as f64, D_STATE as f64);
    let k = Sizes::new(s, time);
    let mut ops = forward(s, time);
    for o in &mut ops {
        let floats = match o.op {
            "input_proj" => {
                o.bytes = 0.0; // one product: its inputs need no gradient
                continue;
            }
            "norm, residual" => 6.0 * m,
            "conv, silu" => 4.0 * e,
            "dt_proj, softplus" => 3.0 * e,
            "scan" => {
                o.flops = k.scan.backward * e * n * k.blocks;
                5.0 * e + 2.0 * (k.r + 2.0 * n)
            }
            "gate" => 6.0 * e,
            _ => 0.0,
        };
        o.bytes = 4.0 * floats * k.blocks;
        if o.op != "scan" {
            o.flops *= 2.0;
        }
    }
    ops
}

/// Forward and backward together, by op.
pub fn forward_backward(s: Shape, time: usize) -> Vec<OpCount> {
    let mut ops = forward(s, time);
    for (o, back) in ops.iter_mut().zip(backward(s, time)) {
        o.flops += back.flops;
        o.exps += back.exps;
        o.bytes += back.bytes;
    }
    ops
}

/// A learner's step: the target over all T steps, burn-in of the online network over T/3, its forward and backward over
/// 2T/3. Heads, losses and the optimiser are small beside it and not counted.
pub fn learner_step(s: Shape) -> Vec<OpCount> {
    let burn_in = s.time / 3;
    let mut ops = forward(s, s.time);
    let rest = forward(s, burn_in).into_iter().zip(forward_backward(s, s.time - burn_in));
    for (o, (a, b)) in ops.iter_mut().zip(rest) {
        o.flops += a.flops + b.flops;
        o.exps += a.exps + b.exps;
        o.bytes += a.bytes + b.bytes;
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::SHAPES;

    #[test]
    fn products_of_s1_by_hand() {
        let s = SHAPES[2];
        let sum = |ops: &[OpCount]| ops.iter().filter(|o| o.op.contains("proj")).map(|o| o.flops).sum::<f64>();
        // 1,920 tokens: 2·64·128 once; per layer 2·128·512 + 2·256·40 + 2·8·256 + 2·256·128
        let by_hand = 1_920.0 * (16_384.0 + 2.0 * (131_072.0 + 20_480.0 + 4_096.0 + 65_536.0));
        assert_eq!(sum(&forward(s, s.time)), by_hand);
        assert_eq!(sum(&backward(s, s.time)), 2.0 * by_hand - 1_920.0 * 16_384.0);
        let scan = forward(s, s.time).into_iter().find(|o| o.op == "scan").unwrap();
        assert_eq!(scan.exps, 1_920.0 * 2.0 * 256.0 * 16.0);
        let turned = forward(SHAPES[3], s.time).into_iter().find(|o| o.op == "scan").unwrap();
        assert_eq!((turned.exps, turned.flops), (scan.exps / 2.0, scan.flops / 6.0 * 8.5));
    }

    #[test]
    fn a_step_is_its_parts() {
        let (s, c) = (SHAPES[0], Ceilings { gemm_gflops: 100.0, exp_gops: 5.0, copy_gbs: 10.0, scan_gops: 2.0 });
        let whole = floor_s(&learner_step(s), &c);
        let parts = floor_s(&forward(s, 40), &c) + floor_s(&forward(s, 13), &c) + floor_s(&forward_backward(s, 27), &c);
        assert!((whole - parts).abs() < 1e-12);
    }
}
