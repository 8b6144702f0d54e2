"""GPU time of rounds with one tree size: by kernel, and in gaps between graph replays.

A few rounds are recorded with torch's profiler, which slows these rounds a little.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from decoder.bench.protocol import endless
from decoder.bench.shapes import random_prompt
from decoder.bench.sizes import Size, run_of
from decoder.engine import Engine
from decoder.methods import METHODS
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling, Schedule

WARM, MOST_SHOWN = 8, 30
WIDTH = 90


@dataclass(frozen=True)
class Kernel:
    """One execution of a kernel, or one memory copy, on the device."""

    name: str
    start_us: float
    end_us: float
    launch: int
    """Identifier of the host's launch, which all nodes of one graph replay share."""


@dataclass(frozen=True)
class Share:
    """Time and number of all executions of a kernel, per round."""

    name: str
    runs: float
    us: float


@dataclass(frozen=True)
class Profile:
    """Device activity of the profiled rounds; all figures except `rounds` and `longest_gap_us` are means per round."""

    rounds: int
    nodes: float
    busy_us: float
    gap_us: float
    """Idle time between launches, from the end of each launch to the start of the next launch."""
    longest_gap_us: float
    kernels: list[Share]


def profile(kernels: Iterable[Kernel], rounds: int) -> Profile:
    """Profile of `rounds` rounds, computed from their kernels."""
    ordered = sorted(kernels, key=lambda kernel: (kernel.start_us, kernel.end_us))
    by_launch, by_name = defaultdict[int, list[Kernel]](list), defaultdict[str, list[Kernel]](list)
    for kernel in ordered:
        by_launch[kernel.launch].append(kernel)
        by_name[kernel.name].append(kernel)
    launches = sorted(by_launch.values(), key=lambda nodes: nodes[0].start_us)
    gaps = [max(0.0, after[0].start_us - _end(before)) for before, after in pairwise(launches)]
    shares = [
        Share(name, len(runs) / rounds, sum(run.end_us - run.start_us for run in runs) / rounds)
        for name, runs in by_name.items()
    ]
    return Profile(
        rounds=rounds,
        nodes=len(ordered) / rounds,
        busy_us=_busy(ordered) / rounds,
        gap_us=sum(gaps) / rounds,
        longest_gap_us=max(gaps, default=0.0),
        kernels=sorted(shares, key=lambda share: -share.us),
    )


def _end(nodes: Iterable[Kernel]) -> float:
    return max(node.end_us for node in nodes)


def _busy(ordered: Sequence[Kernel]) -> float:
    """Time during which at least one kernel ran; times in which several kernels run concurrently count once."""
    busy, until = 0.0, float("-inf")
    for kernel in ordered:
        busy += max(0.0, kernel.end_us - max(until, kernel.start_us))
        until = max(until, kernel.end_us)
    return busy


def page(result: Profile) -> str:
    """The profile as text: a summary line, and kernels by time."""
    summary = (
        f"means over {result.rounds} rounds: {result.nodes:.0f} nodes per round, {result.busy_us:.0f} us in kernels, "
        f"{result.gap_us:.0f} us in gaps between launches (longest gap: {result.longest_gap_us:.0f} us)"
    )
    kernels = [f"{each.us:8.1f} us a round in {each.runs:.1f} runs: {each.name}"[:WIDTH] for each in result.kernels]
    return "\n".join([summary, *kernels[:MOST_SHOWN], ""])


def kernels_of(events: Iterable[Any]) -> list[Kernel]:
    """Executions of kernels, and memory copies, among the profiler's events."""
    return [
        Kernel(
            event.name(),
            event.start_ns() / 1000,
            (event.start_ns() + event.duration_ns()) / 1000,
            event.correlation_id(),
        )
        for event in events
        if "CUDA" in str(event.device_type()) and event.correlation_id()
    ]


def measured(engine: Engine, size: Size, context: int, rounds: int, sampling: Sampling) -> Profile:
    """Profile of rounds with trees of this size, after a random text of `context` tokens and a warm-up."""
    engine = engine.sampled(0, Schedule(sampling))
    method, config = run_of(size, RunConfig(max_new_tokens=4 * (WARM + rounds)))
    prompt = random_prompt(engine.pair, context, config.max_new_tokens + size.depth)
    session = METHODS[method].open(endless(engine), prompt, config)
    session.prefill()
    for _ in range(WARM):
        session.step(())
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(rounds):
            session.step(())
    session.close()
    events = profiler.profiler.kineto_results.events() if profiler.profiler else []
    return profile(kernels_of(events), rounds)
