#!/usr/bin/env python3
"""Times PyTorch's recurrent layers at the shapes of `mamba-rl bench`, where torch is installed.

    python benches/peers/torch_peers.py [--shapes S0,S1] [--threads 1,2] [--models lstm,gru,mamba,mamba-compiled]
                                        [--seconds 2]

Input projection, `n_layers` layers, a gradient at every output, gradients of all parameters; `forward` runs without
autograd. `mamba` is the mixer of `transformers` in its fallback without kernels (no initial state on that path), with
pre-norm residuals; `mamba-compiled` the same through torch.compile (a minute a shape before the first figure).
`cells` times acting: a stack of nn.LSTMCell for 1 and 64 rows, in microseconds, one thread. Prints one JSON object: {model: {shape: {threads: {forward: {min_ms, median_ms}, ...}}}}.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn

SHAPES = {  # input, d_model, layers, batch, time
    "S0": (16, 64, 1, 16, 40),
    "S1": (64, 128, 2, 32, 60),
    "S2": (64, 256, 4, 32, 120),
}


class Recurrent(nn.Module):
    """Input projection and a stack of nn.LSTM or nn.GRU; the state is carried in."""

    def __init__(self, cell, d_input, d_model, n_layers, batch):
        super().__init__()
        self.proj = nn.Linear(d_input, d_model)
        self.cell = cell(d_model, d_model, n_layers)
        zero = torch.zeros(n_layers, batch, d_model)
        self.state = (zero, zero.clone()) if cell is nn.LSTM else zero

    def forward(self, x):
        return self.cell(self.proj(x), self.state)[0]


class MambaStack(nn.Module):
    """Pre-norm residual blocks around the mixer of `transformers`; batch first inside."""

    def __init__(self, d_input, d_model, n_layers):
        super().__init__()
        from transformers.models.mamba.configuration_mamba import MambaConfig
        from transformers.models.mamba.modeling_mamba import MambaMixer, MambaRMSNorm

        config = MambaConfig(hidden_size=d_model, num_hidden_layers=n_layers, state_size=16, expand=2, conv_kernel=4)
        self.proj = nn.Linear(d_input, d_model)
        self.norms = nn.ModuleList(MambaRMSNorm(d_model) for _ in range(n_layers + 1))
        self.mixers = nn.ModuleList(MambaMixer(config, i) for i in range(n_layers))

    def forward(self, x):
        r = self.proj(x.transpose(0, 1))
        for norm, mixer in zip(self.norms, self.mixers):
            r = r + mixer(norm(r))
        return self.norms[-1](r).transpose(0, 1)


def build(name, shape):
    d_input, d_model, n_layers, batch, _ = shape
    if name == "mamba":
        return MambaStack(d_input, d_model, n_layers)
    if name == "mamba-compiled":
        return torch.compile(MambaStack(d_input, d_model, n_layers))
    return Recurrent({"lstm": nn.LSTM, "gru": nn.GRU}[name], d_input, d_model, n_layers, batch)


def timed(call, seconds):
    """Shortest and median of repetitions, in milliseconds."""
    for _ in range(2):
        call()
    times, begun = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return {"min_ms": min(times), "median_ms": statistics.median(times)}


def measure(name, shape, seconds):
    torch.manual_seed(0)
    _, d_model, _, batch, steps = shape
    model = build(name, shape)
    x, g = torch.randn(steps, batch, shape[0]), torch.randn(steps, batch, d_model)

    def both():
        model.zero_grad(set_to_none=False)
        model(x).backward(g)

    def alone():
        with torch.no_grad():
            model(x)

    return {"forward": timed(alone, seconds), "forward_backward": timed(both, seconds)}


def act(shape, rows, seconds):
    """One step of input projection and a stack of LSTM cells, in microseconds."""
    d_input, d_model, n_layers, _, _ = shape
    proj = nn.Linear(d_input, d_model)
    cells = nn.ModuleList(nn.LSTMCell(d_model, d_model) for _ in range(n_layers))
    states = [(torch.zeros(rows, d_model), torch.zeros(rows, d_model)) for _ in cells]
    x = torch.randn(rows, d_input)

    def step():
        with torch.no_grad():
            r = proj(x)
            for i, cell in enumerate(cells):
                states[i] = cell(r, states[i])
                r = states[i][0]

    figures = timed(step, seconds)
    return {key.replace("_ms", "_us"): 1e3 * value for key, value in figures.items()}


def main():
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--shapes", default="S0,S1,S2")
    ask.add_argument("--threads", default="1,2")
    ask.add_argument("--models", default="lstm,gru")
    ask.add_argument("--seconds", type=float, default=2.0)
    args = ask.parse_args()
    out = {"torch": torch.__version__}
    for name in args.models.split(","):
        for shape in args.shapes.split(","):
            if name == "cells":
                torch.set_num_threads(1)
                figures = {str(rows): act(SHAPES[shape], rows, args.seconds) for rows in (1, 64)}
                out.setdefault(name, {})[shape] = figures
                continue
            for threads in args.threads.split(","):
                torch.set_num_threads(int(threads))
                figures = measure(name, SHAPES[shape], args.seconds)
                out.setdefault(name, {}).setdefault(shape, {})[threads] = figures
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
