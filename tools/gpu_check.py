"""One table from `mamba-rl bench --device cuda --json`, with PyTorch's LSTM and GRU of the same sizes beside it.

usage: gpu_check.py bench.json
"""

import json
import sys

# (input, width, layers, B, T), as `mamba_rl::bench::SHAPES` and `S3`
SHAPES = {
    "S1": (64, 128, 2, 32, 60),
    "S2": (64, 256, 4, 32, 120),
    "S3": (512, 512, 6, 64, 120),
}
PASSES = [
    ("forward", "forward"),
    ("forward_backward", "forward + backward"),
    ("learner_step", "learner step"),
    ("act_1", "act, 1 row"),
    ("act_64", "act, 64 rows"),
]
REPEATS = 20


def torch_times(name, shape, precision):
    """Milliseconds by pass of nn.LSTM or nn.GRU; empty where there is no PyTorch with a GPU."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    d_in, width, layers, batch, time = shape
    net = getattr(torch.nn, name)(d_in, width, layers).to("cuda", kind)

    def input_of(t, b):
        return torch.randn(t, b, d_in, device="cuda", dtype=kind)

    def timed(work):
        for _ in range(3):
            work()
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        for _ in range(REPEATS):
            work()
        ended.record()
        torch.cuda.synchronize()
        return begun.elapsed_time(ended) / REPEATS

    def forward(x):
        def work():
            with torch.no_grad():
                net(x)

        return work

    whole = input_of(time, batch)

    def both():
        net.zero_grad(set_to_none=True)
        net(whole)[0].sum().backward()

    return {
        "forward": timed(forward(whole)),
        "forward_backward": timed(both),
        "act_1": timed(forward(input_of(1, 1))),
        "act_64": timed(forward(input_of(1, 64))),
    }


def cell(x):
    return "" if x is None else f"{x:.3f}"


def main():
    report = json.load(open(sys.argv[1]))
    print(f"{report['device']}; milliseconds\n")
    print("| shape | precision | pass | mamba-rl | floor | ratio | LSTM | GRU |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for precision in ("f32", "bf16", "f16"):
        if precision not in report:
            continue
        for name, figures in report[precision]["shapes"].items():
            shape = SHAPES.get(name)
            others = [torch_times(net, shape, precision) if shape else {} for net in ("LSTM", "GRU")]
            for key, label in PASSES:
                ms, floor = figures[key]["ms"], figures[key]["floor_ms"]
                beside = " | ".join(cell(o.get(key)) for o in others)
                print(f"| {name} | {precision} | {label} | {ms:.3f} | {floor:.4f} | {ms / floor:.1f} | {beside} |")
    print()
    for precision in ("f32", "bf16", "f16"):
        if precision in report:
            c = report[precision]["ceiling"]
            print(f"{precision}: matrix product {c['gemm_gflops'] / 1e3:.1f} TFLOP/s, copy {c['copy_gbs']:.0f} GB/s")
            for name, figures in report[precision]["shapes"].items():
                one, all_bytes = figures["launches"], sum(m["bytes"] for m in figures["memory"])
                print(
                    f"  {name}: {one['plain']} launches before graphs, then {one['graphs']} graphs and {one['beside']} kernels;"
                    f" {all_bytes / 2**20:.0f} MiB"
                )


if __name__ == "__main__":
    main()
