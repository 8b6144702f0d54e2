"""Summary of blocks: means over prompts with standard deviations and bootstrap intervals. All functions are pure.

If a lane's text must equal the text of `ar` but does not, the prompt is left out of the lane's times and speeds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from decoder.analysis.interval import Interval, bootstrap
from decoder.events import Figures
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.paper.lanes import paper_depth
from dynatui.lab.bench.paper.records import Block, Header, Resumed, has_text_of
from dynatui.lab.bench.paper.report import Cell, PaperReport
from dynatui.lab.bench.paper.request import Lane, PaperRequest
from dynatui.lab.bench.protocol import disturbed


@dataclass(frozen=True)
class Text:
    """Text of one lane on one prompt, cut at one length."""

    prompt: int
    figures: Figures
    kv_bytes: int | None
    same: bool
    """Whether the text equals the text of `ar` or may differ by design."""
    depth: int | None
    """Number of tokens per round by which the paper's acceptance formula divides, see `paper_depth`."""


Measure: TypeAlias = Callable[[Text], float | None]
"""Function that takes a text and returns one figure of the text, or None if the figure is unknown."""


def _plain(key: str, scale: float = 1.0) -> Measure:
    """Measure that returns a figure of the text, multiplied by `scale`."""

    def measure(text: Text) -> float | None:
        value = getattr(text.figures, key)
        return None if value is None else value * scale

    return measure


def _per_round(key: str, scale: float = 1.0) -> Measure:
    """Measure that returns a figure of the text, divided by the text's number of rounds and multiplied by `scale`."""

    def measure(text: Text) -> float | None:
        value = getattr(text.figures, key)
        return None if value is None else value * scale / text.figures.rounds

    return measure


def _paper_acceptance(text: Text) -> float | None:
    return None if text.depth is None else text.figures.committed / (text.figures.rounds * text.depth)


def _kv_mb(text: Text) -> float | None:
    return None if text.kv_bytes is None else text.kv_bytes / 1e6


TIMES: Mapping[str, Measure] = {
    "tokens_per_second": _plain("tokens_per_second"),
    "speedup": _plain("speedup"),
    "ttft_ms": _plain("ttft_s", 1e3),
    "tpot_ms": _plain("tpot_s", 1e3),
    "draft_ms": _per_round("draft_s", 1e3),
    "verify_ms": _per_round("verify_s", 1e3),
    "round_ms": _per_round("decode_s", 1e3),
}
"""Measures of times and speeds; a prompt is left out if its text must equal the text of `ar` but does not."""
COUNTS: Mapping[str, Measure] = {
    "paper_path_length": _plain("tokens_per_round"),
    "path_length": _plain("path_length"),
    "acceptance_rate": _plain("acceptance_rate"),
    "depth_acceptance": _plain("depth_acceptance"),
    "paper_acceptance": _paper_acceptance,
    "rounds": _plain("rounds"),
    "nodes_per_round": _per_round("drafted"),
    "target_forwards_per_round": _per_round("target_forwards"),
    "draft_forwards_per_round": _per_round("draft_forwards"),
    "peak_mb": _plain("peak_bytes", 1e-6),
    "kv_mb": _kv_mb,
    "distinct_8grams": _plain("distinct_8grams"),
}
POOLED = "tokens_per_round"
"""Key of the figure that is a quotient of sums over all prompts, rather than a mean over prompts."""


def report(header: Header, blocks: Sequence[Block], resumed: Sequence[Resumed] = ()) -> PaperReport:
    """Report of the blocks measured so far."""
    request = header.request
    return PaperReport(
        header=header,
        load_after=blocks[-1].load if blocks else None,
        complete=len(blocks) == request.block_count,
        disturbed=disturbed(turn.waited for each in blocks for turn in each.turns),
        blocks=list(blocks),
        cells=[cell for number in range(len(request.experiments)) for cell in _cells(request, number, blocks)],
        resumed=list(resumed),
    )


def stat(values: Sequence[float], over: Sequence[float] | None = None, *, seed: int) -> Interval:
    """Sum of `values` divided by the sum of `over`, with standard deviation over prompts and bootstrap interval.

    Args:
        values: One value for each prompt; at least one.
        over: One denominator for each prompt; if None, all denominators are 1, and the result is the mean of `values`.
        seed: Random seed of the bootstrap.
    """
    above = np.array(values, dtype=np.float64)
    below = np.ones_like(above) if over is None else np.array(over, dtype=np.float64)

    def quotients(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        times = _counts(*drawn)
        quotient: NDArray[np.float64] = (times @ above) / (times @ below)
        return quotient

    low, high = bootstrap(quotients, [len(above)], seed=seed) if len(above) > 1 else (None, None)
    return Interval(value=float(above.sum() / below.sum()), std=float(np.std(above / below)), low=low, high=high)


def _counts(drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """How often each of N prompts is in each of S bootstrap samples, shape (S, N); `drawn` has the samples' prompt
    indices, shape (S, N).
    """
    samples, count = drawn.shape
    places = drawn + count * np.arange(samples)[:, None]
    return np.bincount(places.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)


def _cells(request: PaperRequest, number: int, blocks: Sequence[Block]) -> Iterator[Cell]:
    """Cells of one experiment, one for each lane and text length that has results."""
    experiment = request.experiments[number]
    here = [each for each in blocks if each.experiment == number]
    for name in experiment.lanes:
        for place, length in enumerate(experiment.lengths):
            if texts := list(_texts(here, request.lane(name), place)):
                yield Cell(
                    experiment=experiment.name,
                    data_set=experiment.data_set,
                    most=experiment.most,
                    length=length,
                    lane=name,
                    prompts=len({text.prompt for text in texts}),
                    same=len({text.prompt for text in texts} - _different(texts)),
                    stats=_stats(texts, request.seed),
                )


def _texts(blocks: Sequence[Block], lane: Lane, place: int) -> Iterator[Text]:
    """Texts of a lane at one length; the bytes of KV caches are known at the greatest length only."""
    for block in blocks:
        by_lane = {turn.lane: turn for turn in block.turns}
        if turn := by_lane.get(lane.name):
            figures, plain = turn.at[place], by_lane[BASELINE].at[place]
            last = place == len(turn.at) - 1
            yield Text(
                block.prompt,
                figures,
                turn.kv_bytes if last else None,
                same=lane.own_text or has_text_of(figures, plain),
                depth=paper_depth(lane),
            )


def _stats(texts: Sequence[Text], seed: int) -> dict[str, Interval]:
    """Means over prompts of all figures that are known for at least one prompt, by key."""
    different = _different(texts)
    timed = [text for text in texts if text.prompt not in different]
    values = {key: _by_prompt(measure, timed) for key, measure in TIMES.items()}
    values |= {key: _by_prompt(measure, texts) for key, measure in COUNTS.items()}
    stats = {key: stat(known, seed=seed) for key, known in values.items() if known}
    committed, rounds = (_by_prompt(_plain(key), texts) for key in ("committed", "rounds"))
    return stats | {POOLED: stat(committed, rounds, seed=seed)}


def _different(texts: Sequence[Text]) -> set[int]:
    """Numbers of the prompts with a text that must equal the text of `ar` but does not."""
    return {text.prompt for text in texts if not text.same}


def _by_prompt(measure: Measure, texts: Sequence[Text]) -> list[float]:
    """Mean of a figure over repeats, for each prompt for which the figure is known."""
    values: dict[int, list[float]] = defaultdict(list)
    for text in texts:
        if (value := measure(text)) is not None:
            values[text.prompt].append(value)
    return [fmean(values[prompt]) for prompt in sorted(values)]
