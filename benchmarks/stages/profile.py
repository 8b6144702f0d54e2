"""Device time of rounds with one tree size, by kernel, from torch's profiler, which slows rounds a little."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from decoder.engine import Engine
from decoder.methods import METHODS
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling, Schedule
from decoder.system.device import Stopwatch
from dynatui.lab.bench.protocol import endless
from dynatui.lab.bench.shapes import Size, random_prompt, run_of

WARM, MOST_SHOWN, WIDTH = 8, 30, 90


@dataclass(frozen=True)
class Share:
    """Number and time of the executions of a kernel, or of the copies of memory, per round."""

    name: str
    runs: float
    us: float


@dataclass(frozen=True)
class Profile:
    round_us: float
    kernels: list[Share]
    """All kernels, the longest time first."""

    def __str__(self) -> str:
        """A summary line, and a line for each of the kernels that take longest."""
        runs, busy_us = (sum(getattr(each, name) for each in self.kernels) for name in ("runs", "us"))
        lines = [f"{self.round_us:.0f} us a round, {busy_us:.0f} us of them in {runs:.0f} kernels"]
        lines += [f"{each.us:8.1f} us in {each.runs:5.1f} runs: {each.name}" for each in self.kernels[:MOST_SHOWN]]
        return "\n".join(line[:WIDTH] for line in lines)


def measured(engine: Engine, size: Size, context: int, rounds: int, sampling: Sampling) -> Profile:
    """Profile of rounds with trees of this size, after a random text of `context` tokens and a warm-up."""
    engine = endless(engine.sampled(0, Schedule(sampling)))
    method, config = run_of(size, RunConfig(max_new_tokens=4 * (WARM + rounds)))
    prompt = random_prompt(engine.pair, context, config.max_new_tokens + size.depth)
    session, clock = METHODS[method].open(engine, prompt, config), Stopwatch(engine.pair.target.device)
    session.prefill()
    for _ in range(WARM):
        session.step(())
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        began = clock.now()
        for _ in range(rounds):
            session.step(())
        passed_us = 1e6 * (clock.now() - began)
    session.close()
    return Profile(passed_us / rounds, shares(profiler.key_averages(), rounds))


def shares(averages: Iterable[Any], rounds: int) -> list[Share]:
    """Kernels and copies among the profiler's averages by name, per round, the longest time first."""
    found = [
        Share(each.key, each.count / rounds, each.self_device_time_total / rounds)
        for each in averages
        if "CUDA" in str(each.device_type)
    ]
    return sorted(found, key=lambda share: -share.us)
