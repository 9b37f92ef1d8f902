//! Right kernels give the right numbers, in every schedule.

use crate::rig::{close, config, context, launch, module, numbers, simulated};
use crate::{child, rig};
use cudarc::driver::{CudaContext, CudaModule, CudaStream, LaunchConfig};
use std::sync::Arc;

const SOURCE: &str = include_str!("right.cu");

fn device() -> (Arc<CudaContext>, Arc<CudaStream>, Arc<CudaModule>) {
    let ctx = context();
    let (stream, module) = (ctx.new_stream().unwrap(), module(&ctx, "right.cu", SOURCE));
    (ctx, stream, module)
}

#[test]
fn elementwise_with_a_tail() {
    let (_ctx, s, m) = device();
    for n in [1usize, 31, 33, 255, 257, 5000] {
        let x = numbers(n, 1);
        let (dx, mut y) = (s.clone_htod(&x).unwrap(), s.alloc_zeros::<f32>(n).unwrap());
        let f = m.load_function("silu_f32").unwrap();
        launch!(s, f, config((n as u32).div_ceil(256), 256, 0), &mut y, &dx, &(n as i32)).unwrap();
        close(&s.clone_dtoh(&y).unwrap(), &x.iter().map(|v| v / (1.0 + (-v).exp())).collect::<Vec<_>>(), 1e-6);
    }
}

#[test]
fn shared_memory_and_barriers() {
    let (_ctx, s, m) = device();
    let x = numbers(3000, 2);
    let (dx, mut out) = (s.clone_htod(&x).unwrap(), s.alloc_zeros::<f32>(4).unwrap());
    launch!(s, m.load_function("block_sum").unwrap(), config(4, 256, 0), &mut out, &dx, &3000i32).unwrap();
    let sum: f32 = s.clone_dtoh(&out).unwrap().iter().sum();
    close(&[sum], &[x.iter().map(|v| f64::from(*v)).sum::<f64>() as f32], 1e-5);
}

#[test]
fn dynamic_shared_memory_and_shuffles() {
    let (_ctx, s, m) = device();
    let (rows, d, eps) = (7usize, 320usize, 1e-5f32);
    let (x, w) = (numbers(rows * d, 3), numbers(d, 4));
    let (dx, dw, mut y) =
        (s.clone_htod(&x).unwrap(), s.clone_htod(&w).unwrap(), s.alloc_zeros::<f32>(rows * d).unwrap());
    let f = m.load_function("rms_norm").unwrap();
    launch!(s, f, config(rows as u32, 128, 16), &mut y, &dx, &dw, &(d as i32), &eps).unwrap();
    let mut expected = vec![0.0; rows * d];
    for (row, out) in x.chunks(d).zip(expected.chunks_mut(d)) {
        let r = 1.0 / (row.iter().map(|v| v * v).sum::<f32>() / d as f32 + eps).sqrt();
        row.iter().zip(&w).zip(out).for_each(|((v, g), o)| *o = v * r * g);
    }
    close(&s.clone_dtoh(&y).unwrap(), &expected, 1e-5);
}

#[test]
fn a_scan_with_resets() {
    let (_ctx, s, m) = device();
    let (rows, len, dim) = (3usize, 40usize, 24usize);
    let (x, b, c) = (numbers(rows * len * dim, 5), numbers(rows * len * 16, 6), numbers(rows * len * 16, 7));
    let dt: Vec<f32> = numbers(rows * len * dim, 8).iter().map(|v| 0.05 + 0.05 * v.abs()).collect();
    let a: Vec<f32> = numbers(dim * 16, 9).iter().map(|v| -0.5 - v.abs()).collect();
    let reset: Vec<u8> = (0..rows * len).map(|i| u8::from(i % 17 == 0)).collect();
    let mut expected = vec![0.0f32; rows * len * dim];
    for (row, ch) in (0..rows).flat_map(|r| (0..dim).map(move |c| (r, c))) {
        let mut h = [0.0f64; 16];
        for t in 0..len {
            let at = row * len + t;
            if reset[at] != 0 {
                h = [0.0; 16];
            }
            let (u, d) = (f64::from(x[at * dim + ch]), f64::from(dt[at * dim + ch]));
            let mut out = 0.0;
            for n in 0..16 {
                h[n] = (d * f64::from(a[ch * 16 + n])).exp() * h[n] + d * f64::from(b[at * 16 + n]) * u;
                out += f64::from(c[at * 16 + n]) * h[n];
            }
            expected[at * dim + ch] = out as f32;
        }
    }
    let up = |v: &[f32]| s.clone_htod(v).unwrap();
    let (dx, ddt, da, db, dc, dr) = (up(&x), up(&dt), up(&a), up(&b), up(&c), s.clone_htod(&reset).unwrap());
    let mut y = s.alloc_zeros::<f32>(rows * len * dim).unwrap();
    let (r, l, d) = (rows as i32, len as i32, dim as i32);
    let f = m.load_function("scan").unwrap();
    launch!(s, f, config(2, 64, 0), &mut y, &dx, &ddt, &da, &db, &dc, &dr, &r, &l, &d).unwrap();
    close(&s.clone_dtoh(&y).unwrap(), &expected, 1e-5);
}

#[test]
fn warp_collectives() {
    let (_ctx, s, m) = device();
    let mut y = s.alloc_zeros::<i32>(352).unwrap();
    launch!(s, m.load_function("collectives").unwrap(), config(1, 32, 0), &mut y).unwrap();
    let got = s.clone_dtoh(&y).unwrap();
    let rows: Vec<Vec<i32>> = vec![
        vec![50; 32],
        (0..32).map(|l| if l < 3 { l } else { l - 3 }).collect(),
        (0..32).map(|l| if l % 8 + 3 < 8 { l + 3 } else { l }).collect(),
        (0..32).map(|l| l ^ 9).collect(),
        vec![(0..32).filter(|l| l % 3 == 0).map(|l| 1u32 << l).sum::<u32>() as i32; 32],
        vec![2; 32],
        vec![(0..32).sum(); 32],
        vec![-16; 32],
        vec![0; 32],
        (0..32).map(|l| i32::from(l < 16)).collect(),
        vec![15; 32],
    ];
    for (i, (got, expected)) in got.chunks(32).zip(&rows).enumerate() {
        assert_eq!(got, expected.as_slice(), "row {i}");
    }
}

#[test]
fn counting_barriers() {
    let (_ctx, s, m) = device();
    let mut y = s.alloc_zeros::<i32>(192).unwrap();
    launch!(s, m.load_function("barriers").unwrap(), config(1, 64, 0), &mut y).unwrap();
    let got = s.clone_dtoh(&y).unwrap();
    assert!(got[..64].iter().all(|v| *v == 40));
    assert!(got[64..128].iter().all(|v| *v == 0));
    assert!(got[128..].iter().all(|v| *v != 0));
}

#[test]
fn atomics_add_up() {
    let (_ctx, s, m) = device();
    let mut y = s.clone_htod(&[0u32, 0, 99, 0, 0xff, 0, 0]).unwrap();
    let (mut f, mut i) = (s.alloc_zeros::<f32>(1).unwrap(), s.alloc_zeros::<i32>(1).unwrap());
    launch!(s, m.load_function("atomics").unwrap(), config(3, 40, 0), &mut y, &mut f, &mut i).unwrap();
    assert_eq!(s.clone_dtoh(&y).unwrap(), [120, 39, 3, 0xff, 0, 120 % 10, 77]);
    assert_eq!((s.clone_dtoh(&f).unwrap()[0], s.clone_dtoh(&i).unwrap()[0]), (60.0, -240));
}

/// `__device__` variables outlive blocks and launches, and belong to one load of the module.
#[test]
fn variables_belong_to_a_module() {
    let (ctx, s, first) = device();
    let second = module(&ctx, "right.cu", SOURCE);
    let mut y = s.alloc_zeros::<i32>(5).unwrap();
    let mut run = |m: &Arc<CudaModule>| {
        launch!(s, m.load_function("variables").unwrap(), config(5, 8, 0), &mut y).unwrap();
        let mut got = s.clone_dtoh(&y).unwrap();
        got.iter_mut().enumerate().for_each(|(b, v)| *v -= (b as i32 % 4 + 1) * 100);
        got.sort_unstable();
        got
    };
    assert_eq!(run(&first), [0, 1, 2, 3, 4]);
    assert_eq!(run(&first), [5, 6, 7, 8, 9]);
    assert_eq!(run(&second), [0, 1, 2, 3, 4]);
}

#[test]
fn arguments_of_every_size() {
    #[repr(C, align(16))]
    #[derive(Clone, Copy)]
    struct Pair {
        v: [f32; 4],
        n: i32,
    }
    // SAFETY: plain data with the layout of the kernel's struct.
    unsafe impl cudarc::driver::DeviceRepr for Pair {}
    let (_ctx, s, m) = device();
    let mut y = s.alloc_zeros::<f32>(4).unwrap();
    let pair = Pair { v: [1.0, 2.0, 3.0, 4.0], n: 7 };
    launch!(s, m.load_function("struct_argument").unwrap(), config(1, 1, 0), &mut y, &pair, &2.5f64, &9u8).unwrap();
    assert_eq!(s.clone_dtoh(&y).unwrap(), [10.0, 7.0, 2.5, 9.0]);
}

#[test]
fn three_dimensions() {
    let (_ctx, s, m) = device();
    let cfg = LaunchConfig { grid_dim: (2, 3, 2), block_dim: (4, 2, 3), shared_mem_bytes: 0 };
    let mut y = s.alloc_zeros::<i32>(12 * 24).unwrap();
    launch!(s, m.load_function("where").unwrap(), cfg, &mut y).unwrap();
    let expected: Vec<i32> = (0..12).flat_map(|b| (0..24).map(move |t| b * 1000 + t)).collect();
    assert_eq!(s.clone_dtoh(&y).unwrap(), expected);
}

/// All 65,536 values of either 16-bit type, through the toolkit's header names, and a sum by bits alone.
#[test]
fn sixteen_bit_types_are_exact() {
    if !simulated() {
        return println!("needs the toolkit's headers on hardware");
    }
    use half::{bf16, f16};
    let (ctx, s, m) = device();
    let halves = module(&ctx, "half.cu", include_str!("half.cu"));
    let (scale, n) = (0.37f32, 65536i32);
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let x = s.clone_htod(&all).unwrap();
    let mut y = s.alloc_zeros::<u16>(65536).unwrap();
    let mut check = |kernel: &str, expected: &dyn Fn(u16) -> (u16, bool)| {
        let f = halves.load_function(kernel).unwrap();
        launch!(s, f, config(256, 256, 0), &mut y, &x, &scale, &n).unwrap();
        for (i, got) in s.clone_dtoh(&y).unwrap().into_iter().enumerate() {
            let (bits, nan) = expected(i as u16);
            assert!(got == bits || nan && got & 0x7fff > 0x7c00, "{kernel} of {i:#x}: {got:#x}, expected {bits:#x}");
        }
    };
    check("half_scale", &|i| {
        let v = f16::from_f32(f16::from_bits(i).to_f32() * scale);
        (v.to_bits(), v.is_nan())
    });
    check("bf16_scale", &|i| {
        let v = bf16::from_f32(bf16::from_bits(i).to_f32() * scale);
        (v.to_bits(), v.is_nan())
    });
    let a: Vec<u16> = numbers(100, 10).iter().map(|v| bf16::from_f32(*v).to_bits()).collect();
    let b: Vec<u16> = numbers(100, 11).iter().map(|v| bf16::from_f32(*v).to_bits()).collect();
    let (da, db) = (s.clone_htod(&a).unwrap(), s.clone_htod(&b).unwrap());
    let mut c = s.alloc_zeros::<u16>(100).unwrap();
    launch!(s, m.load_function("add_bf16").unwrap(), config(1, 128, 0), &mut c, &da, &db, &100i32).unwrap();
    let sum = |(x, y): (&u16, &u16)| bf16::from_f32(bf16::from_bits(*x).to_f32() + bf16::from_bits(*y).to_f32());
    let expected: Vec<u16> = a.iter().zip(&b).map(sum).map(bf16::to_bits).collect();
    assert_eq!(s.clone_dtoh(&c).unwrap(), expected);
}

/// What a function says of itself, and dynamic shared memory over 48 KiB once it is asked for.
#[test]
fn attributes_of_a_function() {
    let (ctx, s, m) = device();
    let bounded = m.load_function("block_sum").unwrap();
    assert_eq!(bounded.max_threads_per_block().unwrap(), 256);
    assert!(bounded.shared_size_bytes().unwrap() >= 1024 && bounded.num_regs().unwrap() > 0);
    let active = bounded.occupancy_max_active_blocks_per_multiprocessor(256, 0, None).unwrap();
    assert!((1..=8).contains(&active), "{active}");
    let large = ctx.load_module(
        cudarc::nvrtc::compile_ptx(
            "extern __shared__ float s[]; extern \"C\" __global__ void k(float* y, int n) { for (int i = threadIdx.x; i < n; \
             i += blockDim.x) s[i] = 1.0f; __syncthreads(); y[threadIdx.x] = s[n - 1 - threadIdx.x]; }",
        )
        .unwrap(),
    );
    let f = large.unwrap().load_function("k").unwrap();
    let mut y = s.alloc_zeros::<f32>(32).unwrap();
    let (bytes, n) = (96 * 1024u32, 24 * 1024i32);
    assert!(launch!(s, f, config(1, 32, bytes), &mut y, &n).is_err());
    let most = cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    f.set_attribute(most, bytes as i32).unwrap();
    launch!(s, f, config(1, 32, bytes), &mut y, &n).unwrap();
    assert_eq!(s.clone_dtoh(&y).unwrap(), [1.0; 32]);
}

/// A module that is dropped while its kernel is queued is waited for; a graph keeps the one that it needs.
#[test]
fn modules_may_go_first() {
    let (ctx, s, m) = device();
    let (x, mut y) = (s.clone_htod(&numbers(32, 1)).unwrap(), s.alloc_zeros::<f32>(32).unwrap());
    launch!(s, m.load_function("silu_f32").unwrap(), config(1, 32, 0), &mut y, &x, &32i32).unwrap();
    drop(m);
    let first = s.clone_dtoh(&y).unwrap();
    let again = module(&ctx, "right.cu", SOURCE);
    launch!(s, again.load_function("silu_f32").unwrap(), config(1, 32, 0), &mut y, &x, &32i32).unwrap();
    assert_eq!(s.clone_dtoh(&y).unwrap(), first);
}

/// Threads of one process compile, launch and read back at the same time.
#[test]
fn many_threads_at_once() {
    context();
    let run = |t: usize| {
        let (_ctx, s, m) = device();
        let x = vec![t as f32; 640];
        let (dx, mut y) = (s.clone_htod(&x).unwrap(), s.alloc_zeros::<f32>(640).unwrap());
        for _ in 0..20 {
            launch!(s, m.load_function("silu_f32").unwrap(), config(5, 128, 0), &mut y, &dx, &640i32).unwrap();
        }
        close(&s.clone_dtoh(&y).unwrap(), &vec![t as f32 / (1.0 + (-(t as f32)).exp()); 640], 1e-6);
    };
    std::thread::scope(|scope| {
        (0..6).for_each(|t| drop(scope.spawn(move || run(t))));
    });
}

/// The right kernels again in other schedules, lazy, without pools and unchecked: the numbers may not change.
#[test]
fn every_schedule_gives_the_same() {
    if !simulated() {
        return println!("schedules are the test device's");
    }
    let variants: [&[(&str, &str)]; 4] = [
        &[("CUDA_SIM_SCHEDULE", "1")],
        &[("CUDA_SIM_SCHEDULE", "5"), ("CUDA_SIM_POOLS", "0")],
        &[("CUDA_SIM_SCHEDULE", "11"), ("CUDA_SIM_LAZY", "1")],
        &[("CUDA_SIM_CHECK", "0"), ("CUDA_SIM_SCHEDULE", "1")],
    ];
    for variant in variants {
        child::run("kernels::all_right_kernels", "all", variant);
    }
}

#[test]
#[ignore = "a case of another test, which starts it in a process of its own"]
fn all_right_kernels() {
    assert_eq!(child::case(), "all");
    assert!(rig::simulated());
    elementwise_with_a_tail();
    shared_memory_and_barriers();
    dynamic_shared_memory_and_shuffles();
    a_scan_with_resets();
    warp_collectives();
    counting_barriers();
    atomics_add_up();
    variables_belong_to_a_module();
    arguments_of_every_size();
    attributes_of_a_function();
    modules_may_go_first();
    three_dimensions();
    sixteen_bit_types_are_exact();
    many_threads_at_once();
}
