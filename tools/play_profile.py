#!/usr/bin/env python3
"""How a player plays: counts over recorded episodes of MultiarmedBandit, Concentration or Battleship.

    mamba-rl rollout --env popgym-BattleshipEasy-v0 --policy RUN --episodes 60 --seed 1 --jsonl | python3 tools/play_profile.py

Reads one JSON object per episode from standard input and prints one line per number. docs/results.md uses it to say why a
row of the exam is missed.
"""

import json
import sys
from collections import Counter

PHASES = [(0, 50), (50, 100), (100, 200), (200, 400), (400, 600)]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def bandit(episodes):
    """Reward and regret by phase. Regret: posterior mean (wins + 1) / (pulls + 2) of the best arm so far, at least that of
    a fresh one, less that of the arm pulled."""
    wins_minus_losses, regret = [[] for _ in PHASES], [[] for _ in PHASES]
    for e in episodes:
        pulls, wins = Counter(), Counter()
        for t, (arm, reward) in enumerate(zip(e["actions"], e["rewards"])):
            phase = next((i for i, (a, b) in enumerate(PHASES) if a <= t < b), None)
            posterior = lambda a: (wins[a] + 1) / (pulls[a] + 2)
            if phase is not None:
                wins_minus_losses[phase].append(1 if reward > 0 else -1)
                regret[phase].append(max([posterior(a) for a in pulls] + [0.5]) - posterior(arm))
            pulls[arm] += 1
            wins[arm] += reward > 0
    for (a, b), r, g in zip(PHASES, wins_minus_losses, regret):
        if r:
            yield f"steps {a + 1} to {b}: wins less losses", mean(r)
            yield f"steps {a + 1} to {b}: regret", mean(g)
    yield "arms tried", mean(len(set(e["actions"])) for e in episodes)
    changes = [a != b for e in episodes for a, b in zip(e["actions"], e["actions"][1:])]
    yield "share of steps that change the arm", mean(changes)


def concentration(episodes):
    """What becomes of a turn whose first card's like has been seen before."""
    open_card, chance, taken, pairs = [], [], [], []
    for e in episodes:
        symbols = e["hidden"]["symbols_by_position"]
        solved, seen, turn, found = set(), set(), [], 0
        for card in e["actions"]:
            open_card.append(card in solved)
            if len(turn) == 1:
                like = {c for c in seen - solved - set(turn) if symbols[c] == symbols[turn[0]]}
                chance.append(bool(like))
                if like:
                    taken.append(card in like)
            turn.append(card)
            seen.add(card)
            if any(c in solved for c in turn):
                turn = []
            elif len(turn) == 2:
                if turn[0] != turn[1] and symbols[turn[0]] == symbols[turn[1]]:
                    solved.update(turn)
                    found += 1
                turn = []
        pairs.append(found)
    yield "different cards turned", mean(len(set(e["actions"])) for e in episodes)
    yield "pairs found", mean(pairs)
    yield "share of choices that are open already", mean(open_card)
    yield "turns of two cards", len(chance)
    yield "of them with a known like of the first card", sum(chance)
    yield "share of these in which it is taken", mean(taken)


def battleship(episodes):
    """Repeated cells: how many, when, how soon, and what fresh ones hit."""
    cells = sum(len(row) for row in episodes[0]["hidden"]["board"])
    repeated, soon, fresh, after_hit = [[] for _ in range(4)], [], [], []
    for e in episodes:
        last = {}
        for t, (cell, reward) in enumerate(zip(e["actions"], e["rewards"])):
            repeated[min(3, 4 * t // cells)].append(cell in last)
            if cell in last:
                soon.append(t - last[cell] <= 8)
            else:
                fresh.append(reward > 0)
                if t and e["rewards"][t - 1] > 0:
                    after_hit.append(reward > 0)
            last[cell] = t
    yield "different cells chosen", mean(len(set(e["actions"])) for e in episodes)
    for i, quarter in enumerate(repeated):
        yield f"share of repeated cells, quarter {i + 1}", mean(quarter)
    yield "share of repetitions within 8 steps", mean(soon)
    yield "share of fresh cells that hit", mean(fresh)
    yield "the same, right after a hit", mean(after_hit)


PROFILES = {"MultiarmedBandit": bandit, "Concentration": concentration, "Battleship": battleship}


def main():
    episodes = [json.loads(line) for line in sys.stdin if line.strip()]
    if not episodes:
        sys.exit("no episode on standard input: expected what `mamba-rl rollout --jsonl` prints")
    env = episodes[0]["env"]
    profile = next((f for name, f in PROFILES.items() if env.startswith(name)), None)
    if profile is None:
        sys.exit(f"no profile of {env}: expected one of {', '.join(PROFILES)}")
    returns = sorted(sum(e["rewards"]) for e in episodes)
    print(f"{len(episodes)} episodes of {env}")
    print(f"{mean(returns):10.3f}  return")
    print(f"{mean(returns[: max(1, len(returns) // 10)]):10.3f}  return of the worst tenth")
    for name, value in profile(episodes):
        print(f"{value:10}  {name}" if isinstance(value, int) else f"{value:10.3f}  {name}")


if __name__ == "__main__":
    main()
