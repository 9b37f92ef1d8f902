#!/usr/bin/env python3
"""Loads a checkpoint of mamba-rl in `transformers` and compares its output with that of `mamba-rl forward`.

    mamba-rl forward --checkpoint RUN --input in.safetensors --output out.safetensors
    python tests/transformers_forward.py RUN in.safetensors out.safetensors

RUN is a run folder (newest checkpoint) or a checkpoint folder. Every tensor of `backbone.` must be taken; only the
embeddings may be new. Exit code 1 where the outputs differ by more than 1e-5.
"""
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import MambaForCausalLM


def checkpoint(path):
    path = pathlib.Path(path)
    steps = sorted((path / "checkpoints").glob("step-*"), key=lambda p: int(p.name.split("-")[1]))
    return steps[-1] if steps else path


def main():
    folder = checkpoint(sys.argv[1])
    model, report = MambaForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    new = sorted(report["missing_keys"])
    if any("embed" not in name and "lm_head" not in name for name in new):
        sys.exit(f"not found in {folder}: {new}")
    x, y = load_file(sys.argv[2])["x"], load_file(sys.argv[3])["y"]
    with torch.no_grad():
        theirs = model.backbone(inputs_embeds=x, use_cache=False).last_hidden_state
    difference = (theirs - y).abs().max().item()
    print(f"largest difference {difference:.2e} of values up to {y.abs().max().item():.2f}")
    sys.exit(difference > 1e-5 * (1 + y.abs().max().item()))


if __name__ == "__main__":
    main()
