#!/usr/bin/env python3
"""The table of speeds in docs/environments.md, from measurements made one after the other.

    mamba-rl bench --json > ours.json
    cargo run --release -p mamba-rl-envs --example throughput > erased.txt
    python benches/peers/env_steps.py > theirs.json
    python tools/env_table.py ours.json[,ours2.json] erased.txt theirs.json

Of several measurements (files of ours, tables one after the other in erased.txt) the best of each task counts.
"""
import json
import sys


def plain(task):
    """popgym-RepeatFirstEasy-v0 -> RepeatFirst; classic control keeps its id."""
    return task[len("popgym-"):-len("Easy-v0")] if task.startswith("popgym-") else task


def main():
    ours, erased, theirs = sys.argv[1].split(","), open(sys.argv[2]), json.load(open(sys.argv[3]))
    rates = {}
    for file in ours:
        for task, by_copies in json.load(open(file))["envs"].items():
            for copies, rate in by_copies.items():
                best = rates.setdefault(task, {})
                best[copies] = max(rate, best.get(copies, 0))
    vec = {}
    for row in map(str.split, erased):
        if len(row) == 3:
            vec[row[0]] = max(float(row[2]), vec.get(row[0], 0.0))
    print("| task | 1 copy | 64 copies | `VecEnv`, 64 | Python, 1 copy | 64 copies against it |")
    print("|---|---|---|---|---|---|")
    for task, rate in sorted(rates.items(), key=lambda item: (item[0].startswith("popgym-"), item[0])):
        if task.endswith(("Medium-v0", "Hard-v0")):
            continue
        python = theirs.get(task, {}).get("1")
        last = f"{python / 1e3:.0f} k | {rate['64'] / python:.0f} ×" if python else " | "
        print(f"| `{plain(task)}` | {rate['1'] / 1e6:.1f} | {rate['64'] / 1e6:.1f} | {vec[task]:.1f} | {last} |")


if __name__ == "__main__":
    main()
