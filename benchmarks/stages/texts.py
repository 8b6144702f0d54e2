"""Stages that decode texts: is each text the one of plain decoding, on the GPU as on the CPU, and how fast is it?"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from benchmarks.stages.plan import EMBEDDED
from benchmarks.stages.worker import Work
from decoder import RunConfig, decode, load_pair
from decoder.analysis.metrics import first_difference, fold
from decoder.engine import Engine
from decoder.events import Figures, Summary
from decoder.run.decoding_path import decoding_path
from decoder.sampling.settings import SAMPLING, Sampling
from dynatui.prompts import load

METHODS = ("ar", "linear", "fixed", "dynatree", "auto")
TRUNCATED = Sampling(temperature=1.0, top_k=50, top_p=0.95)


def embedded(work: Work) -> None:
    """The embedded pair in float32, greedy and sampled."""
    _race(work, partial(load_pair, dtype="float32"), Sampling(), TRUNCATED)


def inflated(work: Work) -> None:
    """The embedded pair's text at the cost of a large target, in float16."""
    _race(work, partial(load_pair, dtype="float16", inflate=work.setting.inflated), Sampling(), TRUNCATED)


def bfloat16(work: Work) -> None:
    """The embedded pair in bfloat16, whose texts may differ at near ties."""
    _race(work, partial(load_pair, dtype="bfloat16"), Sampling())


def head(work: Work) -> None:
    """The embedded target with its EAGLE-3 head, in float32."""
    _race(work, partial(load_pair, EMBEDDED, "decoder/pretrained/books-eagle3", dtype="float32"), Sampling())


def lookup(work: Work) -> None:
    """The embedded target with suffix lookup, in float32."""
    _race(work, partial(load_pair, EMBEDDED, "lookup", dtype="float32"), Sampling())


def _race(work: Work, load_on: Callable[..., Engine], *samplings: Sampling) -> None:
    """Decodes prompts by all methods, twice each, since a first text includes the first use of graphs, and compares the
    texts with those of `ar`, and `ar`'s with the embedded target's on the CPU.
    """
    engine = load_on(device="cuda", kernels=work.kernels, report=work.report)
    path = decoding_path(engine)
    verdicts = dict(engine.slots.operators.verdicts) if engine.slots else {}
    work.note(f"rounds by {path.name}: {path.reason}", path=path.name, verdicts=verdicts)
    on_cpu = load_pair(device="cpu", dtype="float32")
    prompts = load.embedded()[: work.setting.prompts]
    for sampling in samplings:
        for number, prompt in enumerate(prompts, 1):
            plain, _ = _decoded(on_cpu, prompt, ("ar",), work.setting.tokens, sampling)
            for time in ("first", "second"):
                text, figures = _decoded(engine, prompt, METHODS, work.setting.tokens, sampling)
                _note(work, text, plain, figures, f"{words(sampling)}, prompt {number}, {time} time")


def _decoded(
    engine: Engine, prompt: str, methods: Sequence[str], tokens: int, sampling: Sampling
) -> tuple[Sequence[int], Mapping[str, Figures]]:
    """Text of `ar`, and the figures of all methods."""
    config = RunConfig(tuple(methods), tokens, parameters={SAMPLING: sampling})
    *events, summary = decode(engine, prompt, config)
    assert isinstance(summary, Summary)  # noqa: S101 - the last event of every run
    return [*fold(events).tallies["ar"].tokens], summary.methods


def _note(work: Work, text: Sequence[int], plain: Sequence[int], figures: Mapping[str, Figures], about: str) -> None:
    speeds = ", ".join(f"{name} {speed(entry.tokens_per_second)}" for name, entry in figures.items())
    different = {name: entry for name, entry in figures.items() if entry.identical_to_ar is False}
    differences = [
        f"{name} differs at token {entry.first_difference}{' (near tie)' if entry.near_tie else ''}"
        for name, entry in different.items()
    ]
    place = first_difference(text, plain)
    elsewhere = "as on the CPU" if place is None else f"as on the CPU up to token {place}"
    line = f"{about}: {speeds} tokens/s; {'; '.join(differences) or 'every text is that of ar'}, {elsewhere}"
    work.note(line, figures=figures, ar=text, differs_from_cpu=place)


def speed(tokens_per_second: float | None) -> str:
    """Tokens a second in words."""
    return "unknown" if tokens_per_second is None else f"{tokens_per_second:.0f}"


def words(sampling: Sampling) -> str:
    """Sampling settings in words, such as `temperature 1, top-k 50, top-p 0.95`."""
    if sampling.greedy:
        return "greedy"
    truncated = f", top-k {sampling.top_k}, top-p {sampling.top_p:g}" if sampling.truncates else ""
    return f"temperature {sampling.temperature:g}{truncated}"
