//! The wrong kernels of `wrong.cu`: each in a process of its own, each reported with its reason and its source line.

use crate::rig::{config, context, launch, module, simulated};
use crate::{child, rig};
use cudarc::driver::{CudaContext, LaunchConfig};

const SOURCE: &str = include_str!("wrong.cu");

/// Kernel, the driver's error, what the report must say beside the marked line.
const WRONG: &[(&str, &str, &str)] = &[
    ("write_past_the_end", "ILLEGAL_ADDRESS", "out of bounds write of 4 bytes"),
    ("read_past_the_end", "ILLEGAL_ADDRESS", "out of bounds read of 4 bytes"),
    ("host_pointer", "ILLEGAL_ADDRESS", "out of bounds read of 4 bytes"),
    ("null_pointer", "ILLEGAL_ADDRESS", "through a null pointer: read of 4 bytes"),
    ("straddling", "ILLEGAL_ADDRESS", "straddling the end of an allocation: write of 8 bytes"),
    ("misaligned", "", "misaligned"),
    ("missing_syncthreads", "LAUNCH_FAILED", "never written"),
    ("missing_second_syncthreads", "LAUNCH_FAILED", "data race (write after read) in shared memory"),
    ("missing_syncwarp", "LAUNCH_FAILED", "never written"),
    ("global_race_in_a_block", "LAUNCH_FAILED", "data race (read after write) in global memory"),
    ("global_race_between_blocks", "LAUNCH_FAILED", "with a thread of another block"),
    ("write_after_many_reads", "LAUNCH_FAILED", "data race (write after read) in global memory"),
    ("byte_race", "LAUNCH_FAILED", "data race (write after write) in global memory at byte offset 0"),
    ("atomic_and_plain", "LAUNCH_FAILED", "data race (write after write)"),
    ("divergent_barrier", "LAUNCH_FAILED", "divergent __syncthreads: threads 0 and 16"),
    ("barrier_after_return", "LAUNCH_FAILED", "reached after 8 threads of block (0,0,0) returned"),
    ("barrier_against_collective", "LAUNCH_TIMEOUT", "names lane 0, which waits elsewhere"),
    ("mask_names_absent_lanes", "", "names lane 16, which has returned"),
    ("caller_not_in_mask", "LAUNCH_FAILED", "the calling lane 16 is not in its mask 0x0000ffff"),
    ("reads_outside_the_mask", "LAUNCH_FAILED", "reads lane 20, which is not in the mask 0x0000ffff"),
    ("lanes_disagree", "LAUNCH_FAILED", "lanes of one warp disagree"),
    ("unwritten_shared", "LAUNCH_FAILED", "shared memory that was never written"),
    ("never_written_shared", "LAUNCH_FAILED", "shared memory that was never written"),
    ("beyond_dynamic_shared", "ILLEGAL_ADDRESS", "beyond the launch's dynamic shared memory: write of 4 bytes"),
    ("array_index", "ASSERT", "array index out of bounds"),
    ("index_overflow", "ASSERT", "signed integer overflow in multiplication"),
    ("shift_too_far", "ASSERT", "shift out of range"),
    ("failed_assert", "ASSERT", "assert(n < 0)"),
    ("stack_overflow", "ILLEGAL_ADDRESS", "stack overflow"),
    ("endless_with_memory", "LAUNCH_TIMEOUT", "endless?"),
    ("endless_on_the_stack", "LAUNCH_TIMEOUT", "endless?"),
    ("freed_memory", "ILLEGAL_ADDRESS", "out of bounds read of 4 bytes"),
    ("another_device", "ILLEGAL_ADDRESS", "another device's memory: read of 4 bytes"),
    ("number_for_a_pointer", "ILLEGAL_ADDRESS", "argument 0 (0x100) is not a device pointer"),
    ("too_many_threads", "LAUNCH_OUT_OF_RESOURCES", "256 threads exceed __launch_bounds__(128)"),
    ("too_much_dynamic_shared", "INVALID_VALUE", "49156 bytes of dynamic shared memory, 49152 are allowed"),
    ("grid_of_nothing", "INVALID_VALUE", "outside the device's limits"),
];
/// Right kernels that are close to wrong ones.
const CONTROLS: &[&str] =
    &["right_syncwarp", "right_narrow_syncwarp", "right_reader_writes", "right_bytes", "right_atomics"];

/// The line of `wrong.cu` that carries this mark.
fn marked(name: &str) -> Option<usize> {
    let mark = format!("// here: {name}");
    SOURCE.lines().position(|l| l.ends_with(&mark)).map(|i| i + 1)
}

/// What is not as it should be with the report of this kernel; empty where all is well.
fn unreported(name: &str, code: &str, reason: &str, environment: &[(&str, &str)]) -> String {
    let seen = child::run("wrong::one_wrong_kernel", name, environment);
    let outcome = seen.stdout.lines().find_map(|l| l.split_once("outcome: ")).map_or("", |(_, o)| o);
    let report = seen.stderr.lines().find(|l| l.starts_with("cuda-sim: ")).unwrap_or_default();
    let kernel = if SOURCE.contains(&format!(" {name}(")) { name } else { "" };
    let mut missing: Vec<String> =
        ["CUDA_ERROR_", code].iter().filter(|c| !outcome.contains(*c)).map(|c| (*c).to_owned()).collect();
    missing.extend([reason, kernel].iter().filter(|w| !report.contains(*w)).map(|w| (*w).to_owned()));
    if let Some(line) = marked(name) {
        let forms = [format!("wrong.cu:{line}"), format!("line {line}"), format!("lines {line} ")];
        missing.extend((!forms.iter().any(|l| report.contains(l))).then(|| format!("line {line}")));
    }
    if missing.is_empty() { String::new() } else { format!("{name}: no {missing:?} in {outcome}: {report}\n") }
}

#[test]
fn every_wrong_kernel_is_reported() {
    if !simulated() {
        return println!("the wrong kernels are for the test device");
    }
    let case =
        |(name, code, reason): &(&str, &str, &str)| unreported(name, code, reason, &[("CUDA_SIM_TIMEOUT", "0.5")]);
    let wrong: String = WRONG.iter().map(case).collect();
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_controls_are_not_reported() {
    if !simulated() {
        return println!("the controls are for the test device");
    }
    for schedule in ["0", "1", "7"] {
        for name in CONTROLS {
            let seen = child::run("wrong::one_wrong_kernel", name, &[("CUDA_SIM_SCHEDULE", schedule)]);
            assert!(seen.stdout.contains("outcome: success"), "{name}: {}\n{}", seen.stdout, seen.stderr);
        }
    }
}

/// Without instrumentation, guard pages and barriers still find the coarse ones.
#[test]
fn unchecked_mode_finds_the_coarse_ones() {
    if !simulated() {
        return println!("unchecked mode is the test device's");
    }
    for (name, reason) in [
        ("write_past_the_end", "memory fault at address"),
        ("null_pointer", "memory fault at address 0x0"),
        ("divergent_barrier", "divergent __syncthreads"),
        ("barrier_after_return", "threads of block (0,0,0) returned"),
        ("mask_names_absent_lanes", "names lane 16"),
        ("stack_overflow", "stack overflow"),
        ("endless_on_the_stack", "endless?"),
        ("endless_with_memory", "endless?"),
    ] {
        let environment = [("CUDA_SIM_CHECK", "0"), ("CUDA_SIM_TIMEOUT", "0.5")];
        let seen = child::run("wrong::one_wrong_kernel", name, &environment);
        assert!(seen.stdout.contains("outcome: CUDA_ERROR"), "{name}: {}", seen.stdout);
        assert!(seen.stderr.contains(reason), "{name}: {}", seen.stderr);
    }
}

#[test]
#[ignore = "a case of another test, which starts it in a process of its own"]
fn one_wrong_kernel() {
    let name = child::case();
    let ctx = context();
    let stream = ctx.new_stream().unwrap();
    let module = module(&ctx, "wrong.cu", SOURCE);
    let load = |k: &str| module.load_function(k).unwrap();
    let n = 256i32;
    let mut y = stream.alloc_zeros::<f32>(if name == "straddling" { 255 } else { 256 }).unwrap();
    let x = stream.clone_htod(&rig::numbers(256, 1)).unwrap();
    let mut bytes = stream.alloc_zeros::<u8>(64).unwrap();
    let mut words = stream.alloc_zeros::<u32>(4).unwrap();
    let host = [1.0f32; 4];
    let launched = match name.as_str() {
        "write_past_the_end" => launch!(stream, load(&name), config(2, 256, 0), &mut y, &n),
        "read_past_the_end" => launch!(stream, load(&name), config(1, 256, 0), &mut y, &x, &n),
        "host_pointer" => launch!(stream, load(&name), config(1, 1, 0), &mut y, &(host.as_ptr() as u64)),
        "null_pointer" => launch!(stream, load(&name), config(1, 1, 0), &mut y, &0u64),
        "misaligned" => launch!(stream, load(&name), config(1, 1, 0), &mut y, &x),
        "global_race_between_blocks" => launch!(stream, load(&name), config(4, 1, 0), &mut y),
        "byte_race" | "right_bytes" => launch!(stream, load(&name), config(1, 64, 0), &mut bytes),
        "atomic_and_plain" | "right_atomics" => launch!(stream, load(&name), config(2, 32, 0), &mut words),
        "right_reader_writes"
        | "missing_second_syncthreads"
        | "unwritten_shared"
        | "never_written_shared"
        | "array_index" => {
            launch!(stream, load(&name), config(1, 64, 0), &mut y)
        }
        "beyond_dynamic_shared" => launch!(stream, load(&name), config(1, 64, 128), &mut y),
        "index_overflow" | "failed_assert" => launch!(stream, load(&name), config(1, 1, 0), &mut y, &n),
        "stack_overflow" | "endless_on_the_stack" => launch!(stream, load(&name), config(1, 1, 0), &mut y, &3i32),
        "shift_too_far" => launch!(stream, load(&name), config(1, 1, 0), &mut y, &40i32),
        "straddling" | "endless_with_memory" => launch!(stream, load(&name), config(1, 1, 0), &mut y),
        "freed_memory" => {
            let gone = stream.alloc_zeros::<f32>(64).unwrap();
            let address = address(&gone, &stream);
            drop(gone);
            stream.synchronize().unwrap();
            launch!(stream, load("reads"), config(1, 1, 0), &mut y, &address)
        }
        "another_device" => {
            let other = CudaContext::new(1).unwrap();
            let there = other.default_stream().alloc_zeros::<f32>(64).unwrap();
            let address = address(&there, &other.default_stream());
            let launched = launch!(stream, load("reads"), config(1, 1, 0), &mut y, &address);
            stream.synchronize().ok();
            launched
        }
        "number_for_a_pointer" => launch!(stream, load("write_past_the_end"), config(1, 32, 0), &0x100u64, &n),
        "too_many_threads" => launch!(stream, load("bounded"), config(1, 256, 0), &mut y),
        "too_much_dynamic_shared" => {
            launch!(stream, load("beyond_dynamic_shared"), config(1, 64, 48 * 1024 + 4), &mut y)
        }
        "grid_of_nothing" => {
            let nothing = LaunchConfig { grid_dim: (1, 0, 1), ..config(1, 32, 0) };
            launch!(stream, load("bounded"), nothing, &mut y)
        }
        "missing_syncthreads" | "write_after_many_reads" => {
            let mut wide = stream.alloc_zeros::<f32>(512).unwrap();
            launch!(stream, load(&name), config(1, 256, 0), &mut wide)
        }
        _ => launch!(stream, load(&name), config(1, 32, 0), &mut y),
    };
    match launched.map(|_| ()).and_then(|()| stream.synchronize()) {
        Ok(()) => println!("\noutcome: success"),
        Err(e) => println!("\noutcome: {:?}", e.0),
    }
}

fn address(slice: &cudarc::driver::CudaSlice<f32>, stream: &std::sync::Arc<cudarc::driver::CudaStream>) -> u64 {
    use cudarc::driver::DevicePtr as _;
    slice.device_ptr(stream).0
}
