"""A server of the protocol without gymnasium: shows (seed + step) mod 4, pays the action, ends after 20
steps, and fails when told.

Keyword arguments: `raise_at`, `hang_at`, `die_at` (step of an episode), `once` (a file that remembers that it failed).
With `count` the reward is the number of step messages so far, the observation the size of the largest.
"""
import json
import os
import signal
import sys
import time

copies, kwargs, messages, longest = {}, {}, 0, 0


def fails(key, t):
    if kwargs.get(key) != t:
        return False
    if "once" in kwargs:
        if os.path.exists(kwargs["once"]):
            return False
        open(kwargs["once"], "w").close()
    return True


def step(copy, action):
    if kwargs.get("count"):
        return [[longest % 4], messages, False, False]
    copies[copy][0] += 1
    t, seed = copies[copy]
    if fails("raise_at", t):
        return {"error": "ValueError: out of cards"}
    if fails("hang_at", t):
        time.sleep(100)
    if fails("die_at", t):
        print("about to die", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return [[(t + seed) % 4], action[0], t == 20, False]


for line in sys.stdin:
    ((kind, request),) = json.loads(line).items()
    if kind == "open":
        kwargs = request["kwargs"]
        answer = {"protocol": kwargs.get("protocol", request["protocol"]), "gymnasium": "none", "max_steps": 20}
        answer["observation_space"], answer["action_space"] = {"Discrete": 4}, {"Discrete": 3}
    elif kind == "reset":
        copies[request["copy"]] = [0, request["seed"] or 0]
        answer = {"obs": [copies[request["copy"]][1] % 4]}
    elif kind == "step":
        messages, longest = messages + 1, max(longest, len(request))
        answer = {"steps": [step(*one) for one in request]}
    else:
        answer = {}
    print(json.dumps(answer), flush=True)
