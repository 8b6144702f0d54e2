"""Report of a comparison of verifiers, in the form that `--json` writes; the log is the only source of its results.

Closed forms give each text's expected block efficiency, and so the best shape for a verifier. Decoded texts form a data
frame with one row for each text and contender. All rows, rankings and claims are computed from means over texts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import pandas as pd
from msgspec import structs

from decoder.analysis.interval import Interval
from decoder.draft.delayed_shape import DelayedTree
from decoder.verify.names import COUPLED, Drafting
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.protocol import disturbed
from dynatui.lab.bench.sampling.records import (
    BOUND,
    Contest,
    Expected,
    Header,
    Realised,
    SamplingLog,
    SamplingRequest,
    TextKey,
    label,
)
from dynatui.lab.bench.sampling.statistics import (
    NAMES,
    REPORTED,
    SAID_OF,
    SPEED,
    TOKENS,
    Ranking,
    SamplingClaim,
    along_depth,
    claim,
    estimate,
    mean,
    means,
    of_measure,
    ranking,
    ratio,
    series,
)

Aim: TypeAlias = Callable[[DelayedTree, float], float]
"""Objective that the best shape maximises: a function of a tree shape and its expected block efficiency."""
COUPLED_METHODS = ("dynatree", "fixed", "linear")
"""Methods for which draft and target sample with the same Gumbel noise; they run with their default parameters."""
TEXT = [*TextKey._fields, "contender"]


def for_tokens(_shape: DelayedTree, tokens: float) -> float:
    return tokens


def for_speed(header: Header) -> Aim:
    """Aim that maximises block efficiency divided by the expected time of a round's forward passes."""
    return lambda shape, tokens: tokens / header.costs.seconds(shape)


def best_shape(
    request: SamplingRequest, records: Sequence[Expected], contest: Contest, aim: Aim
) -> tuple[DelayedTree, float]:
    """Shape that maximises `aim`, and the shape's expected block efficiency: the mean over all roots in `records`."""
    roots = [record.roots for record in records]
    by_shape = np.average([record.tokens[contest.verifier] for record in records], axis=0, weights=roots).tolist()
    shapes = zip(request.shapes(contest.verifier), by_shape, strict=True)
    return max((each for each in shapes if request.belongs(each[0], contest)), key=lambda each: aim(*each))


def block_efficiency(request: SamplingRequest, records: Iterable[Expected], contest: Contest) -> pd.Series:
    """Expected block efficiency of each text, with the best shape for its sampling setting.

    The shape for one half of the prompts is chosen on the other half (cross-validation), so that a contest with more
    shapes has no advantage from the choice alone. With a single prompt, the shape is chosen on this prompt.
    """
    efficiency: dict[TextKey, float] = {}
    for those in _by_sampling(records).values():
        halves = [[record for record in those if record.place.prompt % 2 == half] for half in (0, 1)]
        for judged, others in (halves, halves[::-1]):
            shape, _ = best_shape(request, others or those, contest, for_tokens)
            efficiency |= {record.place: _tokens_of(request, record, contest, shape) for record in judged}
    return series(efficiency)


def _tokens_of(request: SamplingRequest, record: Expected, contest: Contest, shape: DelayedTree | None) -> float:
    """Expected block efficiency of a text with `shape`, or with the shapes that the selector chose if it is None."""
    if shape is None:
        return record.selected[contest.verifier]
    return record.tokens[contest.verifier][request.shapes(contest.verifier).index(shape)]


def _by_sampling(records: Iterable[Expected]) -> dict[int, list[Expected]]:
    settings: dict[int, list[Expected]] = {}
    for record in records:
        settings.setdefault(record.place.sampling, []).append(record)
    return settings


def chosen(header: Header, records: Sequence[Expected]) -> dict[Contest, DelayedTree]:
    """Shape to decode with, for each contest: the shape with the highest expected speed on the texts in `records`."""
    request = header.request
    return {each: best_shape(request, records, each, for_speed(header))[0] for each in request.contests()}


def contender_name(contest: Contest, shape: DelayedTree | None) -> str:
    """Name of the contender with the contest's verifier and with `shape`, or with a selector if `shape` is None; for
    coupled trees and plain decoding, the method's name. Several contests can have the same contender.
    """
    if contest.verifier == COUPLED:
        return contest.drafting
    return f"{contest.verifier} {f'{shape.k},{shape.l1},{shape.l2}' if shape else contest.drafting}"


class Row(Contest, frozen=True, kw_only=True):
    """Means of one measure over all texts, for one contest."""

    mean: Interval
    by_task: dict[str, float]
    by_sampling: dict[str, float]
    over_ar: Interval | None = None
    """Tokens per second relative to plain decoding of the same texts; None in rows of block efficiency."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Best tree shape of a verifier on the texts of one sampling setting or one task."""

    among: str
    """Label of the sampling setting, or name of the task."""
    aim: str
    verifier: str
    drafting: str
    shape: tuple[int, int, int]
    """Shape (K, L1, L2): K rollouts of L2 tokens each, after a common path of L1 tokens."""
    tokens: float
    """Expected block efficiency of the shape on the texts named by `among`."""
    expected_tokens_per_second: float
    """Tokens per second, predicted from block efficiency and the times of forward passes."""


class Agreement(Contest, frozen=True, kw_only=True):
    """Block efficiency of decoded texts, and the expected block efficiency of the same shapes on the same prompts."""

    realised: float
    expected: float


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Data of the paper's figure 1: means over texts, by depth along a path sampled from the draft."""

    distance: list[float]
    acceptance: dict[str, list[float]]
    """Acceptance by solver with K draft tokens per node; the key `BOUND` has the upper bound."""


class SamplingReport(msgspec.Struct, frozen=True, kw_only=True):
    header: Header = msgspec.field(name="begun")
    load_after: float | None
    complete: bool
    """Whether the log contains all records of the request."""
    roots: int
    decoded: int
    """Number of decodings of texts, summed over contenders and repeats."""
    disturbed: int
    """Number of decodings with disturbed times, because threads waited too long for a processor."""
    block_efficiency: list[Row]
    tokens_per_second: list[Row]
    divergence: Divergence
    actions: list[Action]
    agreement: list[Agreement]
    rankings: list[Ranking]
    claims: list[SamplingClaim]


def report(log: SamplingLog, header: Header, *, load_after: float | None) -> SamplingReport:
    """Report of the log, which must contain the closed forms of at least one text."""
    request, seed = header.request, header.request.seed
    records, realised = log.of(Expected), log.of(Realised)
    efficiency = {contest: block_efficiency(request, records, contest) for contest in request.contests()}
    efficiency |= {
        contest: series({record.place: _tokens_of(request, record, contest, None) for record in records})
        for contest in request.selecting()
    }
    shapes = {sampling: chosen(header, those) for sampling, those in _by_sampling(records).items()}
    decoded = _decoded(request, realised, shapes, header.machine.threads)
    speeds = {contest: texts.tokens_per_second for contest, texts in decoded.items()}
    plain = speeds.get(Contest(COUPLED, BASELINE))
    coupled = {contest for contest in decoded if contest.verifier == COUPLED and contest.drafting != BASELINE}
    distance = _by_depth([record.distance for record in records], records)
    acceptance = {
        name: _by_depth([record.acceptance[name] for record in records], records) for name in records[0].acceptance
    }
    return SamplingReport(
        header=header,
        load_after=load_after,
        complete=len(log.records) == request.record_count,
        roots=sum(record.roots for record in records),
        decoded=sum(len(record.turns) for record in realised),
        disturbed=disturbed(turn.waited for record in realised for turn in record.turns),
        block_efficiency=[
            *(_row(request, contest, values) for contest, values in efficiency.items()),
            *(_row(request, contest, decoded[contest].tokens_per_round) for contest in decoded if contest in coupled),
        ],
        tokens_per_second=[_row(request, contest, values, plain) for contest, values in speeds.items()],
        divergence=Divergence(
            distance=[mean(values) for values in distance],
            acceptance={name: [mean(values) for values in levels] for name, levels in acceptance.items()},
        ),
        actions=_actions(header, records),
        agreement=[
            _agreement(request, contest, texts, records, shapes)
            for contest, texts in decoded.items()
            if contest.verifier != COUPLED
        ],
        rankings=[
            ranking(f"{SAID_OF[what]}, {drafting}", those, REPORTED[what][drafting != Drafting.IID], seed)
            for drafting in (Drafting.IID, Drafting.DELAYED, Drafting.SELECTOR)
            for what, values in ((TOKENS, efficiency), (SPEED, speeds))
            if (those := of_drafting(values, drafting))
        ],
        claims=[
            *_claims(TOKENS, efficiency, seed),
            *_claims(SPEED, speeds, seed),
            *along_depth(distance, {name: levels for name, levels in acceptance.items() if name != BOUND}, seed),
        ],
    )


def of_drafting(values: Mapping[Contest, pd.Series], drafting: Drafting) -> dict[str, pd.Series]:
    """Values by verifier, for the contests that have this kind of drafting and allow any number of rollouts."""
    return {
        contest.verifier: each for contest, each in values.items() if contest.drafting == drafting and contest.k is None
    }


def _decoded(
    request: SamplingRequest,
    records: Sequence[Realised],
    shapes: Mapping[int, Mapping[Contest, DelayedTree]],
    threads: int,
) -> dict[Contest, pd.DataFrame]:
    """Rates of the decoded texts of each contest: tokens per round over all repeats, and the median over repeats of
    tokens per second, without the time in which threads waited for a processor if this time is known.
    """
    turns = [(*record.place, *structs.astuple(turn)) for record in records for turn in record.turns]
    rows = pd.DataFrame(turns, columns=[*TEXT, "tokens", "rounds", "decode_s", "waited"])
    rows = rows.astype({"tokens": float, "rounds": float, "decode_s": float, "waited": float})
    rows["tokens_per_second"] = rows.tokens / (rows.decode_s * (1 - rows.waited.fillna(0) / threads))
    groups = rows.groupby(TEXT, sort=False)
    sums = groups[["tokens", "rounds"]].sum()
    texts = groups[["tokens_per_second"]].median().assign(tokens_per_round=sums.tokens / sums.rounds)
    coupled = [Contest(COUPLED, method) for method in (*COUPLED_METHODS, BASELINE)]
    found = {}
    for contest in (*request.contests(), *request.selecting(), *coupled):
        names = {sampling: contender_name(contest, those.get(contest)) for sampling, those in shapes.items()}
        mine = [names.get(sampling) == contender for sampling, _, _, contender in texts.index]
        if any(mine):
            found[contest] = texts[mine].droplevel("contender")
    return found


def _row(request: SamplingRequest, contest: Contest, values: pd.Series, plain: pd.Series | None = None) -> Row:
    return Row(
        *structs.astuple(contest),
        mean=estimate(values, request.seed),
        by_task=means(values, "task"),
        by_sampling={label(request.samplings[number]): value for number, value in means(values, "sampling").items()},
        over_ar=None if plain is None else ratio(values, plain, request.seed),
    )


def _actions(header: Header, records: Sequence[Expected]) -> list[Action]:
    request, speed = header.request, for_speed(header)
    groups: dict[str, list[Expected]] = {}
    for record in records:
        for among in (label(request.samplings[record.place.sampling]), record.place.task):
            groups.setdefault(among, []).append(record)
    actions = []
    for among, these in groups.items():
        for contest in (contest for contest in request.contests() if contest.k is None):
            for aim, value in ((TOKENS, for_tokens), (SPEED, speed)):
                shape, tokens = best_shape(request, these, contest, value)
                actions.append(
                    Action(
                        among=among,
                        aim=aim,
                        verifier=contest.verifier,
                        drafting=contest.drafting,
                        shape=(shape.k, shape.l1, shape.l2),
                        tokens=tokens,
                        expected_tokens_per_second=speed(shape, tokens),
                    )
                )
    return actions


def _agreement(
    request: SamplingRequest,
    contest: Contest,
    texts: pd.DataFrame,
    records: Sequence[Expected],
    shapes: Mapping[int, Mapping[Contest, DelayedTree]],
) -> Agreement:
    """Measured and expected block efficiency of a decoded contest, with the same shapes and prompts."""
    expected = {
        record.place: _tokens_of(request, record, contest, shapes[record.place.sampling].get(contest))
        for record in records
        if record.place in texts.index
    }
    realised = mean(texts.tokens_per_round)
    return Agreement(*structs.astuple(contest), realised=realised, expected=mean(series(expected)))


def _claims(measure: str, values: Mapping[Contest, pd.Series], seed: int) -> Iterator[SamplingClaim]:
    iid, delayed, selected = (of_drafting(values, each) for each in (Drafting.IID, Drafting.DELAYED, Drafting.SELECTOR))
    yield from of_measure(measure, iid, delayed, seed)
    if measure == SPEED:  # the selector is trained to maximise speed, so claims about it are tested on speed only
        for name, those in selected.items():
            says = f"{SAID_OF[measure]}: {NAMES[name]} with a selector, over the best delayed shape"
            yield claim(says, those, delayed[name], seed)


def _by_depth(rows: Iterable[Sequence[float]], records: Sequence[Expected]) -> list[pd.Series]:
    """For each depth, the values of all texts; `rows` has the values of one text at all depths."""
    places = [record.place for record in records]
    return [series(dict(zip(places, values, strict=True))) for values in zip(*rows, strict=True)]
