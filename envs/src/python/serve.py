"""Serves copies of one Gymnasium environment over pipes: JSON lines, one answer per request.

    {"open": {"id", "kwargs", "protocol"}}   -> {"protocol", "observation_space", "action_space", "max_steps", "gymnasium"}
    {"reset": {"copy", "seed"}}              -> {"obs"}
    {"step": [[copy, [action]], ...]}        -> {"steps": [[obs, reward, terminated, truncated] or {"error"}, ...]}
    {"close": {"copy"}}                      -> {}

Anything that fails is answered by {"error": kind, "text"}. The end of the input ends the process.
"""
import json
import os
import signal
import sys

PROTOCOL = 1
# Answers go to the real standard output; whatever an environment prints goes to standard error.
answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
os.dup2(2, 1)
# The parent decides what an interrupt means.
signal.signal(signal.SIGINT, signal.SIG_IGN)


def answer(message):
    answers.write(json.dumps(message, allow_nan=False) + "\n")
    answers.flush()


def said(e):
    """The exception and the line that raised it."""
    where = ""
    trace = e.__traceback__
    while trace is not None:
        where = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(e).__name__}: {e}{where}"


try:
    import gymnasium
    import numpy as np
    from gymnasium import spaces
except ImportError as e:
    answer({"error": "no gymnasium", "text": str(e)})
    sys.exit(0)


class Unknown(Exception):
    """A space without a counterpart."""


def bounds(values):
    return [float(v) if np.isfinite(v) else str(v) for v in np.asarray(values, dtype=np.float32).ravel()]


def describe(space):
    """The space as the parent reads it."""
    if isinstance(space, spaces.Discrete):
        return {"Discrete": int(space.n)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"MultiDiscrete": [int(n) for n in space.nvec.ravel()]}
    if isinstance(space, spaces.MultiBinary):
        return {"MultiDiscrete": [2] * int(np.prod(space.shape))}
    if isinstance(space, spaces.Box):
        low, high = bounds(space.low), bounds(space.high)
        element = "u8" if space.dtype == np.uint8 else "f32"
        return {"Box": {"low": low, "high": high, "shape": list(space.shape), "element": element}}
    if isinstance(space, (spaces.Tuple, spaces.Dict)):
        return {"Tuple": [describe(part) for part in parts(space)]}
    raise Unknown(str(space))


def parts(space):
    return list(space.spaces) if isinstance(space, spaces.Tuple) else [space[key] for key in sorted(space.spaces)]


def flat(space, value):
    """The observation as a flat list of numbers, in the order of `describe`; null is not a number."""
    if isinstance(space, spaces.Discrete):
        return [int(value) - int(space.start)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(v) for v in (np.asarray(value) - getattr(space, "start", 0)).ravel()]
    if isinstance(space, spaces.Tuple):
        return [v for part, x in zip(space.spaces, value) for v in flat(part, x)]
    if isinstance(space, spaces.Dict):
        return [v for key in sorted(space.spaces) for v in flat(space[key], value[key])]
    if isinstance(space, spaces.Box) and space.dtype != np.uint8:
        values = np.asarray(value, dtype=np.float32).ravel().tolist()
        return values if np.isfinite(values).all() else [v if np.isfinite(v) else None for v in values]
    return [int(v) for v in np.asarray(value).ravel()]


def action_of(space, values):
    if isinstance(space, spaces.Discrete):
        return int(values[0]) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(values, dtype=space.dtype).reshape(space.shape) + getattr(space, "start", 0)
    return np.asarray(values, dtype=space.dtype).reshape(space.shape)


class Server:
    def __init__(self, request):
        self.id, self.kwargs, self.copies = request["id"], request["kwargs"], {}
        self.spare = self.make()

    def make(self):
        return gymnasium.make(self.id, **self.kwargs)

    def about(self):
        env, spec = self.spare, self.spare.spec
        return {
            "protocol": PROTOCOL,
            "gymnasium": gymnasium.__version__,
            "observation_space": describe(env.observation_space),
            "action_space": describe(env.action_space),
            "max_steps": spec.max_episode_steps if spec is not None else None,
        }

    def reset(self, request):
        env = self.copies.get(request["copy"])
        if env is None:
            env, self.spare = self.spare or self.make(), None
            self.copies[request["copy"]] = env
        obs, _ = env.reset(seed=request["seed"])
        return {"obs": flat(env.observation_space, obs)}

    def step(self, requests):
        steps = []
        for copy, values in requests:
            env = self.copies[copy]
            try:
                obs, reward, terminated, truncated, _ = env.step(action_of(env.action_space, values))
                steps.append([flat(env.observation_space, obs), float(reward), bool(terminated), bool(truncated)])
            except Exception as e:
                steps.append({"error": said(e)})
        return {"steps": steps}

    def close(self, request):
        env = self.copies.pop(request["copy"], None)
        if env is not None:
            env.close()
        return {}


def main():
    server = None
    for line in sys.stdin:
        try:
            ((kind, request),) = json.loads(line).items()
            if kind == "open":
                if request["protocol"] != PROTOCOL:
                    answer({"error": "protocol", "text": str(PROTOCOL)})
                    return
                server = Server(request)
                answer(server.about())
            else:
                answer(getattr(server, kind)(request))
        except Unknown as e:
            answer({"error": "space", "text": str(e)})
        except Exception as e:
            answer({"error": "exception", "text": said(e)})


main()
