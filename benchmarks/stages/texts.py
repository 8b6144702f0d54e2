"""Stages that decode texts: is each text the one of plain decoding, on the GPU as on the CPU, and how fast is it?"""

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.stages.plan import EMBEDDED
from benchmarks.stages.worker import Work
from decoder import RunConfig, decode, load_pair
from decoder.analysis.metrics import first_difference, fold
from decoder.engine import Engine
from decoder.events import Figures, Summary
from decoder.run.decoding_path import decoding_path
from decoder.sampling.settings import SAMPLING, Sampling
from dynatui import prompts
from dynatui.number_format import short

METHODS = ("ar", "linear", "fixed", "dynatree", "auto")
GREEDY, TRUNCATED = Sampling(), Sampling(temperature=1.0, top_k=50, top_p=0.95)


def race(
    work: Work,
    names: Sequence[str] = (),
    dtype: str = "float32",
    samplings: Sequence[Sampling] = (GREEDY,),
    *,
    inflated: bool = False,
) -> None:
    """Decodes prompts by all methods, twice each, since a first text includes the first use of graphs, and compares the
    texts with those of `ar`, and `ar`'s with the embedded target's on the CPU.
    """
    size = work.setting.inflated if inflated else None
    engine = load_pair(*names, device="cuda", dtype=dtype, inflate=size, kernels=work.kernels, report=work.report)
    path = decoding_path(engine)
    verdicts = {name: found.words for name, found in engine.slots.operators.verdicts.items()} if engine.slots else {}
    work.note(f"rounds by {path.name}: {path.reason}", path=path.name, verdicts=verdicts)
    on_cpu = load_pair(device="cpu", dtype="float32")
    given = prompts.embedded()[: work.setting.prompts]
    for sampling in samplings:
        for number, prompt in enumerate(given, 1):
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
    speeds = ", ".join(f"{name} {short(entry.tokens_per_second)}" for name, entry in figures.items())
    different = {name: entry for name, entry in figures.items() if entry.identical_to_ar is False}
    differences = [
        f"{name} differs at token {entry.first_difference}{' (near tie)' if entry.near_tie else ''}"
        for name, entry in different.items()
    ]
    place = first_difference(text, plain)
    elsewhere = "as on the CPU" if place is None else f"as on the CPU up to token {place}"
    line = f"{about}: {speeds} tokens/s; {'; '.join(differences) or 'every text is that of ar'}, {elsewhere}"
    work.note(line, figures=figures, ar=text, differs_from_cpu=place)


def words(sampling: Sampling) -> str:
    """Sampling settings in words, such as `temperature 1, top-k 50, top-p 0.95`."""
    if sampling.greedy:
        return "greedy"
    truncated = f", top-k {sampling.top_k}, top-p {sampling.top_p:g}" if sampling.truncates else ""
    return f"temperature {sampling.temperature:g}{truncated}"


embedded = partial(race, samplings=(GREEDY, TRUNCATED))
large = partial(race, dtype="float16", samplings=(GREEDY, TRUNCATED), inflated=True)
bfloat16 = partial(race, dtype="bfloat16")
head = partial(race, names=(EMBEDDED, "decoder/pretrained/books-eagle3"))
lookup = partial(race, names=(EMBEDDED, "lookup"))
