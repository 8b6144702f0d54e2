"""Made-up first lines, blocks and reports of measurements: every number follows from a few constants of this module."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import structs

from decoder.events import Figures
from dynatui.lab.bench.data_sets import TextSet
from dynatui.lab.bench.paper.experiments import catalogue, fixed_grid, sensitivity
from dynatui.lab.bench.paper.records import (
    SCHEMA,
    CostCurve,
    Header,
    LaneResult,
    PaperExperiment,
    PaperLane,
    PaperRequest,
    PromptResult,
    Resumed,
)
from dynatui.lab.bench.paper.report import PaperReport, Row, report
from tests.lab.bench.makers import MACHINE, PAIR

LENGTHS = (100, 200, 500, 1000, 1500)
CAPS = (100, 300, 800)
"""Prompt lengths, in characters, of the experiment on prompt length."""


class Law(NamedTuple):
    """Constants from which the figures of a lane are computed."""

    tokens: float
    """Tokens per round in an endless text."""
    round_ms: float
    nodes: float
    """Drafted nodes per round."""
    drafts: float
    """Draft passes per round."""
    peak_mb: float


LAWS = {
    "ar": Law(1.0, 7.5, 0, 0, 6110),
    "linear K=5": Law(5.0, 28.6, 5, 5, 6314),
    "linear K=8": Law(7.0, 34.0, 8, 8, 6315),
    "fixed D5 B2": Law(6.0, 30.6, 14, 9, 6313),
    "fixed D8 B3": Law(7.1, 33.8, 18, 10, 6317),
    "no pruning": Law(7.1, 60.0, 200, 90, 6330),
    "phase 1": Law(5.8, 30.2, 13, 9, 6314),
    "phase 2": Law(6.9, 30.7, 12, 9, 6312),
    "phase 3": Law(7.4, 32.2, 12, 9, 6316),
    "alg1": Law(6.9, 40.0, 12, 9, 6316),
    "bestfirst": Law(7.6, 33.0, 16, 8, 6316),
    "streaming": Law(5.0, 28.0, 5, 5, 6200),
    "auto": Law(6.0, 20.0, 10, 5, 6316),
    "generate dynamic": Law(1.0, 8.0, 0, 0, 6110),
    "assisted 20/.4": Law(8.0, 37.0, 9, 9, 6316),
}
"""Laws of the lanes of the experiment main."""
VARIED = sensitivity(
    thresholds=((0.8, 0.3), (0.8, 0.4), (0.9, 0.3), (0.9, 0.5)),
    breadths=((1, 2), (1, 4), (2, 3)),
    depths=((4, 6), (6, 8), (8, 12)),
)
TREES = fixed_grid(depths=(3, 5, 8), branchings=(2, 3), taus=(0.02, 0.05, 0.1))
LANES = {lane.name: lane for lane in (*map(catalogue(sampled=False).__getitem__, LAWS), *VARIED, *TREES)}


def _law(lane: PaperLane) -> Law:
    given = lane.parameters
    if lane.name in LAWS:
        return LAWS[lane.name]
    if lane.method == "fixed":
        depth = given["depth"]
        return Law(2 + 0.6 * depth, 16 + 2 * depth + given["branching"] - 20 * given["tau"], 3 * depth, depth, 6314)
    tokens = 5.5 + given["d0"] / 4 + given["tau_h"] - given["tau_l"]
    return Law(tokens, 29.0 + given["branching"][2], 12, 9, 6316)


def request(
    *,
    prompts: int = 5,
    lengths: tuple[int, ...] = LENGTHS,
    lanes: Collection[str] | None = None,
    sets: Collection[str] = ("wikitext", "books"),
    **changes: Any,
) -> PaperRequest:
    """A request for all experiments on fewer prompts; `lanes`, `sets` and `lengths` are those of the experiment main,
    and the other experiments decode the last length. `changes` are replaced fields of `PaperRequest`.
    """
    texts = tuple(f"Text {number}." for number in range(prompts))
    main = tuple(name for name in LAWS if lanes is None or name in lanes)
    few = tuple(name for name in ("ar", "linear K=5", "fixed D5 B2", "phase 3") if name in main)

    def experiment(name: str, most: int, names: Iterable[str], data_set: str = "wikitext") -> PaperExperiment:
        new = lengths if name == "main" else lengths[-1:]
        return PaperExperiment(
            name=name, data_set=data_set, most=most, prompts=prompts, lanes=tuple(names), lengths=new
        )

    given: dict[str, Any] = {
        "temperature": 0.0,
        "top_p": 1.0,
        "stops_at_eos": False,
        "warm_up": 2,
        "text_sets": (
            TextSet(name="wikitext", title="WikiText-2", stands_for="WikiText-2", prompts=texts),
            TextSet(name="books", title="PG-19-style (books_test)", stands_for="PG-19", prompts=texts),
        ),
        "lanes": tuple(LANES.values()),
        "experiments": (
            *(experiment("main", 800 if name == "wikitext" else 1000, main, name) for name in sets),
            *(experiment("prompt_length", most, few) for most in CAPS),
            experiment("sensitivity", 800, ("ar", *(lane.name for lane in VARIED))),
            experiment("fixed_trees", 800, ("ar", *(lane.name for lane in TREES))),
        ),
    }
    return PaperRequest(**PAIR | given | changes)


def header(**changes: Any) -> Header:
    """A header of a request for the experiment main on two prompts, with `changes` of the request."""
    small = request(prompts=2, lengths=(4, 8), lanes=("ar", "phase 1"))
    return Header(
        schema=SCHEMA,
        started_at="2026-01-01T00:00:00Z",
        commit=None,
        machine=MACHINE,
        request=structs.replace(small, **{"experiments": small.experiments[:1]} | changes),
        costs=CostCurve(rows=(1, 8, 64), verify_s=(0.007, 0.008, 0.012), draft_s=(0.001, 0.001, 0.002)),
        context=64,
    )


def block(
    prompt: int, turns: Mapping[str, Sequence[Figures]] | None = None, experiment: int = 0, repeat: int = 0
) -> PromptResult:
    """A block of these figures by lane; one round of ar if no figures are given."""
    shown = turns or {"ar": (Figures(rounds=4, committed=4),)}
    results = tuple(
        LaneResult(lane=name, at=tuple(at), kv_bytes=200_000_000 if name == "ar" else 230_000_000, waited=0.01)
        for name, at in shown.items()
    )
    return PromptResult(experiment=experiment, prompt=prompt, repeat=repeat, prompt_tokens=200, turns=results, load=0.7)


def paper_report(
    those: PaperRequest | None = None,
    *,
    different: Collection[tuple[str, int]] = (),
    near_ties: Collection[tuple[str, int]] = (),
    slower: Mapping[str, float] = MappingProxyType({}),
    resumed: Sequence[Resumed] = (),
) -> PaperReport:
    """A report of a request, by default of all experiments.

    Args:
        those: The request.
        different: (lane, prompt) pairs whose texts differ from the text of ar from the tenth token on.
        near_ties: Pairs of `different` whose first difference is a near tie.
        slower: Factor on the round times of a lane, by lane.
        resumed: Records of resumptions.
    """
    those = request() if those is None else those

    def at(name: str, experiment: PaperExperiment, prompt: int) -> list[Figures]:
        told = {"identical_to_ar": False, "first_difference": 10, "near_tie": (name, prompt) in near_ties}
        changes = told if (name, prompt) in different else {}
        found = [_figures(name, experiment, prompt, new, slower.get(name, 1.0)) for new in experiment.lengths]
        return [structs.replace(each, **changes) for each in found]

    blocks = [
        block(prompt, {name: at(name, experiment, prompt) for name in experiment.lanes}, number, repeat)
        for number, experiment in enumerate(those.experiments)
        for prompt in range(experiment.prompts)
        for repeat in range(experiment.repeats)
    ]
    return report(structs.replace(header(), commit="0123456789ab", request=those), blocks, resumed)


def row_of(report: PaperReport, lane: str, experiment: str = "main", data_set: str = "wikitext", **which: int) -> Row:
    """Row with these names; of several, the one with the greatest text length, then the greatest prompt length."""
    found = [
        row
        for row in report.rows
        if (row.experiment.name, row.text_set.name, row.lane.name) == (experiment, data_set, lane)
        and all(getattr(row.experiment if name == "most" else row, name) == value for name, value in which.items())
    ]
    return max(found, key=lambda row: (row.length, row.experiment.most))


Change: TypeAlias = Callable[[PromptResult, LaneResult], dict[str, Any] | None]
"""Function that returns changes of a turn's figures at all lengths; None leaves the turn out."""


def altered(whole: PaperReport, change: Change) -> PaperReport:
    def changed(block: PromptResult) -> PromptResult:
        known = [(turn, changes) for turn in block.turns if (changes := change(block, turn)) is not None]
        turns = (
            structs.replace(turn, at=tuple(structs.replace(each, **changes) for each in turn.at))
            for turn, changes in known
        )
        return structs.replace(block, turns=tuple(turns))

    return report(whole.header, list(map(changed, whole.blocks)), whole.resumed)


def left_out(whole: PaperReport, lane: str, prompts: Collection[int]) -> PaperReport:
    """The report without a lane's turns on these prompts."""
    return altered(whole, lambda block, turn: None if turn.lane == lane and block.prompt in prompts else {})


def interrupted(whole: PaperReport) -> PaperReport:
    """The report without its last block."""
    return report(whole.header, whole.blocks[:-1], whole.resumed)


def _figures(name: str, experiment: PaperExperiment, prompt: int, length: int, slower: float) -> Figures:
    """Figures of a lane on a prompt. Easy prompts and long texts give more tokens per round; long prompts cost time."""
    law = _law(LANES[name])
    luck = np.random.default_rng([prompt, len(name), ord(name[0]), ord(name[-1])]).normal(1, 0.01, 2).tolist()
    ease = 1 + 0.1 * math.sin(2.4 * prompt)
    tokens = 1 + (law.tokens - 1) * ease * luck[0] * length / (length + 150)
    rounds = math.ceil(length / tokens)
    round_s = law.round_ms / 1000 * slower * luck[1] * (1 + experiment.most / 8000)
    decode_s = rounds * round_s
    plain = LAWS["ar"].round_ms / 1000 * (1 + experiment.most / 8000)
    drafted, accepted = round(rounds * law.nodes), length - rounds
    return Figures(
        rounds=rounds,
        drafted=drafted,
        accepted=accepted,
        committed=length,
        target_forwards=rounds,
        draft_forwards=round(rounds * law.drafts),
        tokens_per_round=length / rounds,
        path_length=accepted / rounds,
        acceptance_rate=accepted / drafted if drafted else None,
        depth_acceptance=0.5 if drafted else None,
        decode_s=decode_s,
        tokens_per_second=length / decode_s,
        prefill_s=0.01,
        ttft_s=0.01 + round_s,
        tpot_s=decode_s / length,
        draft_s=decode_s * 0.4 if drafted else 0.0,
        verify_s=decode_s * (0.4 if drafted else 0.8),
        commit_s=decode_s * 0.1,
        host_s=decode_s * 0.1,
        speedup=length * plain / decode_s,
        identical_to_ar=True,
        peak_bytes=round(law.peak_mb * 1e6),
        distinct_8grams=0.5,
    )
