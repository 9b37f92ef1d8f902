"""Steps per second of the Python originals, one thread, random actions drawn beforehand, reset when done.

    python -m pip install gymnasium popgym mazelib
    python benches/peers/env_steps.py           one JSON object {id: {"1": steps/s}}, CartPole-v1 also "64" (vectorised)

The best of short slices, as `mamba-rl bench` does, so that other load on the machine counts little.
"""
import json
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import gymnasium
import numpy as np

SLICES, SLICE = 300, 0.002


def best(step, copies=1):
    rate = 0.0
    for _ in range(SLICES):
        n, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < SLICE:
            for _ in range(max(1, 8 // copies)):
                step()
            n += max(1, 8 // copies) * copies
        rate = max(rate, n / (time.perf_counter() - begun))
    return round(rate)


def one(env):
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(4096)]
    at = 0

    def step():
        nonlocal at
        at = (at + 1) % 4096
        _, _, terminated, truncated, _ = env.step(actions[at])
        if terminated or truncated:
            env.reset()

    return best(step)


def main():
    rates = {}
    for name in ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]:
        rates[name] = {"1": one(gymnasium.make(name).unwrapped)}
    vector = gymnasium.make_vec("CartPole-v1", num_envs=64, vectorization_mode="vector_entry_point")
    vector.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, (256, 64))
    at = iter(range(10**12))
    rates["CartPole-v1"]["64"] = best(lambda: vector.step(actions[next(at) & 255]), 64)
    try:
        import popgym  # registers its tasks
    except ImportError:
        popgym = None
    for name in sorted(n for n in gymnasium.registry if popgym and n.startswith("popgym-") and "Easy" in n):
        try:
            rates[name] = {"1": one(gymnasium.make(name).unwrapped)}
        except Exception as e:
            print(f"{name}: {type(e).__name__}: {e}", file=__import__("sys").stderr)
    print(json.dumps(rates, indent=1))


main()
