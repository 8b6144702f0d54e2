"""Stages that measure rounds with random weights of published shapes: by size, by kernel, and captures."""

import os
from collections.abc import Sequence
from statistics import median

import torch

from benchmarks.stages import profile
from benchmarks.stages.texts import TRUNCATED, words
from benchmarks.stages.worker import Work
from decoder.bench.job import OnRounds, measure_rounds
from decoder.bench.protocol import endless
from decoder.bench.shapes import random_pair, random_prompt
from decoder.bench.sizes import Size
from decoder.engine import Engine
from decoder.methods import METHODS
from decoder.methods.auto import Auto
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.session.protocol import Prepares
from decoder.system.device import CUDNN_RANK, Stopwatch

SMALL, LARGE = Size(4, 16), Size(8, 64)
TREES = (Size(1, 2), SMALL, LARGE)
REPEATS = 3
PROMPT = 64
GREEDY = Sampling()


def pythia(work: Work) -> None:
    """Rounds of Pythia in float16 after short and long texts."""
    _measure(work, _pythia(work), work.setting.contexts, TREES)


def by_kernel(work: Work) -> None:
    """Kernels of rounds of Pythia, greedy and sampled."""
    context, rounds = work.setting.contexts[0], min(20, work.setting.rounds)
    for sampling in (GREEDY, Sampling(temperature=1.0), TRUNCATED):
        found = profile.measured(_pythia(work), LARGE, context, rounds, sampling)
        work.append("profile.txt", f"{words(sampling)}\n{found}\n\n")
        work.note(f"{words(sampling)}: {str(found).splitlines()[0]}", profile=found)


def truncated(work: Work) -> None:
    """Rounds of Pythia at temperature 1 with top-k and top-p."""
    _measure(work, _pythia(work), work.setting.contexts[:1], (SMALL, LARGE), TRUNCATED)


def auto(work: Work) -> None:
    """Captures before the first text of method `auto`, and its speed beside that of `ar` on the same random texts."""
    engine = endless(_pythia(work))
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
    while isinstance(session, Prepares) and session.prepare():
        graphs += 1
    prepared = clock.now()
    while not session.step(()).finished:
        pass
    return graphs, prepared - started, clock.now() - prepared


def plain(work: Work) -> None:
    """Rounds of Pythia by plain operators, without Triton kernels."""
    engine = work.engine("pythia, plain", lambda: _pair(work, work.setting.pythia, "float16", kernels=False))
    _measure(work, engine, work.setting.contexts, (SMALL, LARGE))


def cudnn(work: Work) -> None:
    """Rounds of Pythia by plain operators, where torch prefers cuDNN's attention."""
    os.environ[CUDNN_RANK] = "0"  # so that loading does not switch it off again
    torch.backends.cuda.enable_cudnn_sdp(enabled=True)
    try:
        engine = work.engine("pythia, cuDNN", lambda: _pair(work, work.setting.pythia, "float16", kernels=False))
        _measure(work, engine, work.setting.contexts[:1], (LARGE,))
    finally:
        del os.environ[CUDNN_RANK]


def compiled(work: Work) -> None:
    """Rounds of Pythia with passes by torch.compile."""
    engine = work.engine("pythia, compiled", lambda: _pair(work, work.setting.pythia, "float16", compiled=True))
    _measure(work, engine, work.setting.contexts[:1], (LARGE,))


def bfloat16(work: Work) -> None:
    """Rounds of Pythia in bfloat16."""
    engine = work.engine("pythia, bfloat16", lambda: _pair(work, work.setting.pythia, "bfloat16"))
    _measure(work, engine, work.setting.contexts[:1], (SMALL, LARGE))


def llama(work: Work) -> None:
    """Rounds of Llama in bfloat16 after texts of up to 16,384 tokens, and memory."""
    _measure(work, _llama(work), work.setting.long_contexts, (LARGE,))


def llama_sampled(work: Work) -> None:
    """Rounds of Llama at temperature 1 with top-k and top-p."""
    _measure(work, _llama(work), work.setting.long_contexts[:1], (SMALL, LARGE), TRUNCATED)


def _pythia(work: Work) -> Engine:
    return work.engine("pythia", lambda: _pair(work, work.setting.pythia, "float16"))


def _llama(work: Work) -> Engine:
    return work.engine("llama", lambda: _pair(work, work.setting.llama, "bfloat16"))


def _pair(
    work: Work, shapes: tuple[str, str], dtype: str, *, compiled: bool = False, kernels: bool | None = None
) -> Engine:
    tried = work.kernels if kernels is None else kernels
    return random_pair(*shapes, device="cuda", dtype=dtype, compiled=compiled, kernels=tried, report=work.report)


def _measure(
    work: Work, engine: Engine, contexts: Sequence[int], trees: Sequence[Size], sampling: Sampling = GREEDY
) -> None:
    """Measures `ar` and rounds with these trees after random texts of these lengths, in turns."""
    config = RunConfig(max_new_tokens=work.setting.rounds, parameters={SAMPLING: sampling})
    job = OnRounds(lambda **_: engine, tuple(trees), tuple(contexts), config, REPEATS)
    report = measure_rounds(job, work.report).report
    work.note(f"rounds by {report.setup.path}: {report.setup.path_reason}", report=report)
    for found in report.rounds:
        share = "" if found.bandwidth_share is None else f", {100 * found.bandwidth_share:.0f} % of the bandwidth"
        work.report(
            f"{found.name} after {found.context} tokens: {found.round_ms.value:.3f} ms a round, drafts "
            f"{found.draft_ms:.3f}, verification {found.verify_ms:.3f}{share}, {found.peak_bytes / 1e9:.2f} GB"
        )
