#!/usr/bin/env python3
"""What play from exact posteriors makes of POPGym's MultiarmedBandit (rules: docs/environments.md).

    python3 tools/bandit_reference.py [EPISODES]

Arms have win probabilities uniform on [0, 1], so after s wins in n pulls the posterior mean is (s + 1) / (n + 2). Players: the
arm of the largest mean; the same with a bonus of 0.1 / sqrt(n + 1) for what is not known yet; Thompson sampling. Prints the
mean return, (wins - losses) / steps, with its standard error.
"""

import random
import sys

LEVELS = {"Easy": (10, 200), "Medium": (20, 400), "Hard": (30, 600)}


def greedy(bonus):
    return lambda s, n: (s + 1) / (n + 2) + bonus / (n + 1) ** 0.5


def thompson(s, n):
    return random.betavariate(s + 1, n - s + 1)


PLAYERS = {"posterior mean": (greedy(0.0), True), "with a bonus": (greedy(0.1), True), "Thompson": (thompson, False)}


def episode(arms, steps, score, only_when_pulled):
    p = [random.random() for _ in range(arms)]
    wins, pulls = [0] * arms, [0] * arms
    scores = [score(0, 0) for _ in range(arms)]
    total = 0
    for _ in range(steps):
        if not only_when_pulled:
            scores = [score(s, n) for s, n in zip(wins, pulls)]
        a = max(range(arms), key=scores.__getitem__)
        won = random.random() < p[a]
        wins[a] += won
        pulls[a] += 1
        total += 1 if won else -1
        scores[a] = score(wins[a], pulls[a])
    return total / steps


def main():
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    random.seed(1)
    for level, (arms, steps) in LEVELS.items():
        for name, (score, only_when_pulled) in PLAYERS.items():
            returns = [episode(arms, steps, score, only_when_pulled) for _ in range(episodes)]
            mean = sum(returns) / episodes
            error = (sum((r - mean) ** 2 for r in returns) / (episodes - 1) / episodes) ** 0.5
            print(f"{level:7} {name:15} {mean:.3f} +- {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
