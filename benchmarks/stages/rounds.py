"""Stages that measure rounds with random weights of published shapes: by size, by kernel, and captures.

Device times by kernel are from torch's profiler, which slows rounds a little.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks.stages.texts import GREEDY, TRUNCATED, words
from benchmarks.stages.worker import Work
from decoder.engine import Engine
from decoder.methods import METHODS
from decoder.methods.auto import Auto
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING, Sampling, Schedule
from decoder.system.device import CUDNN_RANK, Stopwatch
from dynatui.lab.bench.job import OnRounds, measure_rounds
from dynatui.lab.bench.protocol import endless
from dynatui.lab.bench.rounds import Size, run_of
from dynatui.lab.bench.shapes import random_pair, random_prompt

SMALL, LARGE = Size(4, 16), Size(8, 64)
REPEATS = 3
PROMPT = 64
WARM, MOST_SHOWN, WIDTH = 8, 30, 90
SHORTEST, ALL = slice(1), slice(None)


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


def profiled(engine: Engine, size: Size, context: int, rounds: int, sampling: Sampling) -> Profile:
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


def by_kernel(work: Work) -> None:
    """Kernels of rounds of Pythia, greedy and sampled."""
    context, rounds = work.setting.contexts[0], min(20, work.setting.rounds)
    for sampling in (GREEDY, Sampling(temperature=1.0), TRUNCATED):
        found = profiled(_pair(work), LARGE, context, rounds, sampling)
        work.append("profile.txt", f"{words(sampling)}\n{found}\n\n")
        work.note(f"{words(sampling)}: {str(found).splitlines()[0]}", profile=found)


def auto(work: Work) -> None:
    """Captures before the first text of method `auto`, and its speed beside that of `ar` on the same random texts."""
    engine = endless(_pair(work))
    before = torch.cuda.memory_reserved()
    graphs, captured_s, first_s = _text(work, engine, "auto")
    reserved = torch.cuda.memory_reserved() - before
    _text(work, engine, "ar")
    later = [(_text(work, engine, "auto")[2], _text(work, engine, "ar")[2]) for _ in range(REPEATS)]
    tokens = work.setting.auto_tokens
    auto_rate, ar_rate = (tokens / median(seconds) for seconds in zip(*later, strict=True))
    work.note(
        f"{graphs} graphs captured in {captured_s:.2f} s, {reserved / 1e9:.2f} GB; then auto {tokens / first_s:.1f} "
        f"tokens/s in the first text, {auto_rate:.1f} in later ones, ar {ar_rate:.1f}",
        captured_s=captured_s,
        first_s=first_s,
        later_s=later,
    )


def _text(work: Work, engine: Engine, method: str) -> tuple[int, float, float]:
    """Number and seconds of the captures before a text's first round, and seconds of all its rounds."""
    config = RunConfig(max_new_tokens=work.setting.auto_tokens)
    prompt = random_prompt(engine.pair, PROMPT, config.max_new_tokens + Auto().d_max)
    session, clock = METHODS[method].open(engine, prompt, config), Stopwatch(engine.pair.target.device)
    session.prefill()
    started, graphs = clock.now(), 0
    while session.prepare():
        graphs += 1
    prepared = clock.now()
    while not session.step(()).finished:
        pass
    return graphs, prepared - started, clock.now() - prepared


def cudnn(work: Work) -> None:
    """Rounds by plain operators, where torch prefers cuDNN's attention."""
    work.free()
    os.environ[CUDNN_RANK] = "0"  # so that loading does not switch it off again
    torch.backends.cuda.enable_cudnn_sdp(enabled=True)
    try:
        measure(work, trees=(LARGE,), kernels=False)
    finally:
        del os.environ[CUDNN_RANK]
        work.free()


def _pair(work: Work, shapes: str = "pythia", **options: Any) -> Engine:
    """Pair of random models, kept until another one is asked for."""
    names = {"pythia": work.setting.pythia, "llama": work.setting.llama}[shapes]
    given: dict[str, Any] = {"dtype": "float16", "kernels": work.kernels} | options
    load = partial(random_pair, *names, device="cuda", report=work.report, **given)
    return work.engine((shapes, *given.items()), load)


def measure(
    work: Work,
    shapes: str = "pythia",
    trees: tuple[Size, ...] = (SMALL, LARGE),
    lengths: slice = SHORTEST,
    sampling: Sampling = GREEDY,
    **options: Any,
) -> None:
    """Measures `ar` and rounds with these trees after random texts of these of the setting's lengths, in turns."""
    engine = _pair(work, shapes, **options)
    contexts = {"pythia": work.setting.contexts, "llama": work.setting.long_contexts}[shapes][lengths]
    config = RunConfig(max_new_tokens=work.setting.rounds, parameters={SAMPLING: sampling})
    job = OnRounds(lambda **_: engine, trees, contexts, config, REPEATS)
    report = measure_rounds(job, work.report).report
    work.note(f"rounds by {report.setup.path}: {report.setup.path_reason}", report=report)
    for found in report.rounds:
        share = "" if found.bandwidth_share is None else f", {100 * found.bandwidth_share:.0f} % of the bandwidth"
        work.report(
            f"{found.name} after {found.context} tokens: {found.round_ms.value:.3f} ms a round, drafts "
            f"{found.draft_ms:.3f}, verification {found.verify_ms:.3f}{share}, {found.peak_bytes / 1e9:.2f} GB"
        )


pythia = partial(measure, trees=(Size(1, 2), SMALL, LARGE), lengths=ALL)
truncated = partial(measure, sampling=TRUNCATED)
plain = partial(measure, lengths=ALL, kernels=False)
compiled = partial(measure, trees=(LARGE,), compiled=True)
bfloat16 = partial(measure, dtype="bfloat16")
llama = partial(measure, shapes="llama", trees=(LARGE,), lengths=ALL, dtype="bfloat16")
llama_sampled = partial(measure, shapes="llama", sampling=TRUNCATED, dtype="bfloat16")
