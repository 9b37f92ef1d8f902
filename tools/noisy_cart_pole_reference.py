#!/usr/bin/env python3
"""How long a player who knows the dynamics keeps the pole of NoisyPositionOnlyCartPole up.

The player filters positions with the exact linearised dynamics (Kalman, 1960) and pushes by the sign of a linear function of
the filtered state. Its three ratios are searched at random for every noise level, so the result bounds from below what is
possible, and tells how far an agent's return is from a good controller's. Needs NumPy.

    python3 tools/noisy_cart_pole_reference.py [--candidates 200] [--episodes 4000] [--seed 1]
"""
import argparse

import numpy as np

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, DT = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
TOTAL, POLE_LENGTH = CART + POLE, POLE * HALF_LENGTH
STEPS, ANGLE_CLIP, ANGLE_LIMIT, PLACE_LIMIT, START = 200, 0.41888, 0.20944, 2.4, 0.05


def step(state, right):
    """One Euler step of CartPole-v1 for states [n, 4] = x, x', angle, angle'."""
    x, dx, angle, turn = state.T
    force = np.where(right, FORCE, -FORCE)
    temp = (force + POLE_LENGTH * turn**2 * np.sin(angle)) / TOTAL
    inertia = HALF_LENGTH * (4 / 3 - POLE * np.cos(angle) ** 2 / TOTAL)
    ddangle = (GRAVITY * np.sin(angle) - np.cos(angle) * temp) / inertia
    ddx = temp - POLE_LENGTH * ddangle * np.cos(angle) / TOTAL
    return np.stack([x + DT * dx, dx + DT * ddx, angle + DT * turn, turn + DT * ddangle], axis=1)


def linearised():
    """A of the step around the upright pole at rest."""
    k = 1 / (HALF_LENGTH * (4 / 3 - POLE / TOTAL))
    a = np.eye(4)
    a[0, 1] = a[2, 3] = DT
    a[3, 2] = DT * k * GRAVITY
    a[1, 2] = -DT * POLE_LENGTH * k * GRAVITY / TOTAL
    return a


def mean_return(sigma, gains, episodes, rng):
    """Mean share of 200 steps that the pole stays up."""
    a, c = linearised(), np.eye(4)[[0, 2]]
    state = rng.uniform(-START, START, (episodes, 4))
    mean, cov = np.zeros((episodes, 4)), np.eye(4) * START**2 / 3
    alive, steps = np.ones(episodes, bool), np.zeros(episodes)
    for _ in range(STEPS):
        seen = state[:, [0, 2]] + sigma * rng.standard_normal((episodes, 2))
        seen[:, 1] = seen[:, 1].clip(-ANGLE_CLIP, ANGLE_CLIP)
        gain = cov @ c.T @ np.linalg.inv(c @ cov @ c.T + sigma**2 * np.eye(2))
        mean = mean + (seen - mean @ c.T) @ gain.T
        cov = (np.eye(4) - gain @ c) @ cov
        right = mean @ gains > 0
        state, mean = step(state, right), step(mean, right)
        cov = a @ cov @ a.T
        steps += alive
        alive &= (np.abs(state[:, 0]) <= PLACE_LIMIT) & (np.abs(state[:, 2]) <= ANGLE_LIMIT)
    return steps / STEPS


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for level, sigma in (("Easy", 0.1), ("Medium", 0.2), ("Hard", 0.3)):
        rng = np.random.default_rng(args.seed)
        start = np.array([0.05, 0.07, 1.0, 0.2])
        best = (-1.0, start)
        for i in range(args.candidates):
            gains = start * np.exp(rng.normal(0, 0.7 if i else 0.0, 4))
            gains[2] = 1.0
            best = max(best, (mean_return(sigma, gains, 500, rng).mean(), gains), key=lambda b: b[0])
        fresh = mean_return(sigma, best[1], args.episodes, rng)
        error = fresh.std() / len(fresh) ** 0.5
        gains = ", ".join(f"{g:.3f}" for g in best[1])
        print(f"NoisyPositionOnlyCartPole{level}: {fresh.mean():.3f} +- {error:.3f}, push right where ({gains}) . state > 0")


if __name__ == "__main__":
    main()
