"""Report of a comparison of verifiers, in the form written by `--json`; it is made from the log alone."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TypeAlias

import msgspec

from decoder.analysis.interval import Interval
from decoder.draft.delayed_shape import DelayedTree
from decoder.verify.names import COUPLED, Drafting
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.protocol import disturbed
from dynatui.lab.bench.sampling import paper
from dynatui.lab.bench.sampling.averages import Values, by_sampling, by_task, estimate, mean, ratio
from dynatui.lab.bench.sampling.best import Aim, best_shape, block_efficiency
from dynatui.lab.bench.sampling.claims import Claim, Ranking, along_depth, of_measure, of_selector, ranking
from dynatui.lab.bench.sampling.log import BOUND, Decoded, Expected, Header, Realised, SamplingLog, holds_all
from dynatui.lab.bench.sampling.realised import COUPLED_METHODS, chosen, contender_name, selecting_name
from dynatui.lab.bench.sampling.request import Contest, Place, SamplingRequest, label

TOKENS, SPEED = "tokens a round", "tokens a second"
"""Names of the two measures that the best shape can maximise."""
OTHERS = (*COUPLED_METHODS, BASELINE)
"""Contenders that use none of the compared verifiers: coupled trees and plain decoding."""
Turns: TypeAlias = Mapping[Place, Sequence[Decoded]]
"""Decoding results of one contest or contender: for each text, the results of all repeats."""
SAID_OF = {TOKENS: "block efficiency", SPEED: "tokens/s"}
"""Names of the two measures in the text of claims."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Means of one measure over all texts, for one verifier with one kind of drafting."""

    verifier: str
    drafting: str
    """Name of the kind of drafting; for coupled trees and plain decoding, name of the method."""
    k: int | None
    """Number of rollouts in the trees of this row; None if the number is not restricted."""
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
    """Tokens per second that block efficiency and the times of forward passes predict."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Block efficiency of decoded texts, and the expected block efficiency of the same shapes on the same prompts."""

    verifier: str
    drafting: str
    k: int | None
    realised: float
    expected: float


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Data of the paper's figure 1: means over texts, by depth along a path sampled from the draft."""

    distance: list[float]
    acceptance: dict[str, list[float]]
    """Acceptance by solver with K draft tokens per node; the key `BOUND` has the upper bound."""


class SamplingReport(msgspec.Struct, frozen=True, kw_only=True):
    """All results of the comparison of verifiers, kinds of drafting and sampling settings."""

    header: Header = msgspec.field(name="begun")
    load_after: float | None
    complete: bool
    """Whether the log contains all records of the request."""
    roots: int
    decoded: int
    """Number of decoded texts, summed over all contenders."""
    disturbed: int
    """Number of decoded texts whose times are disturbed, because threads waited too long for a processor."""
    block_efficiency: list[Row]
    tokens_per_second: list[Row]
    divergence: Divergence
    actions: list[Action]
    agreement: list[Agreement]
    rankings: list[Ranking]
    claims: list[Claim]


def report(log: SamplingLog, header: Header, *, load_after: float | None) -> SamplingReport:
    """Report of the log, which must contain the closed forms of at least one text.

    Args:
        log: Log of the measurement.
        header: Header of the log.
        load_after: Load average over the last minute of the measurement; None if unknown.
    """
    request = header.request
    seed = request.seed
    efficiency = {
        contest: block_efficiency(request, log.of(Expected), contest, _for_tokens) for contest in request.contests()
    }
    efficiency |= {contest: _selected(log.of(Expected), contest) for contest in request.selecting()}
    by_contest = {contest: _turns(log.of(Realised), names) for contest, names in _contenders_of(header, log).items()}
    by_name = {name: _turns(log.of(Realised), dict.fromkeys(range(len(request.samplings)), name)) for name in OTHERS}
    speed = partial(_tokens_per_second, threads=header.machine.threads)
    decoded = {contest: _per_text(turns, speed) for contest, turns in by_contest.items() if turns}
    others = {name: _per_text(turns, speed) for name, turns in by_name.items() if turns}
    lengths = {name: _per_text(turns, _tokens_per_round) for name, turns in by_name.items() if turns}
    distance, acceptance = _by_depth(log.of(Expected))
    solvers = {name: levels for name, levels in acceptance.items() if name != BOUND}
    return SamplingReport(
        header=header,
        load_after=load_after,
        complete=holds_all(log, request),
        roots=sum(record.roots for record in log.of(Expected)),
        decoded=sum(len(record.turns) for record in log.of(Realised)),
        disturbed=disturbed(turn.waited for record in log.of(Realised) for turn in record.turns),
        block_efficiency=[_row(request, contest, values) for contest, values in efficiency.items()]
        + [_coupled(request, name, lengths[name]) for name in COUPLED_METHODS if name in lengths],
        tokens_per_second=[_row(request, contest, values, others[BASELINE]) for contest, values in decoded.items()]
        + [_coupled(request, name, values, others[BASELINE]) for name, values in others.items()],
        divergence=Divergence(
            distance=[estimate(values, seed).value for values in distance],
            acceptance={
                name: [estimate(values, seed).value for values in levels] for name, levels in acceptance.items()
            },
        ),
        actions=_actions(header, log.of(Expected)),
        agreement=_agreements(header, log, by_contest),
        rankings=_rankings(efficiency, decoded, seed),
        claims=[
            *_claims(TOKENS, efficiency, (paper.BLOCK_EFFICIENCY, paper.DELAYED_BLOCK_EFFICIENCY), seed),
            *_claims(SPEED, decoded, (paper.TOKENS_PER_SECOND, paper.DELAYED_TOKENS_PER_SECOND), seed),
            *along_depth(distance, solvers, seed),
        ],
    )


def for_speed(header: Header) -> Aim:
    """Aim that maximises speed: block efficiency divided by the expected time of a round's forward passes."""
    return lambda shape, tokens: tokens / header.costs.seconds(shape)


def _for_tokens(_shape: object, tokens: float) -> float:
    return tokens


def _row(request: SamplingRequest, contest: Contest, values: Values, plain: Values | None = None) -> Row:
    return Row(
        verifier=contest.verifier,
        drafting=contest.drafting,
        k=contest.k,
        mean=estimate(values, request.seed),
        by_task=by_task(values),
        by_sampling={label(request.samplings[number]): value for number, value in by_sampling(values).items()},
        over_ar=ratio(values, plain, request.seed) if plain else None,
    )


def _coupled(request: SamplingRequest, method: str, values: Values, plain: Values | None = None) -> Row:
    row = _row(request, Contest(COUPLED, Drafting.TREE), values, plain)
    return msgspec.structs.replace(row, drafting=method)


def _actions(header: Header, records: Sequence[Expected]) -> list[Action]:
    """Best shapes of each contest, for each sampling setting and each task."""
    request, speed = header.request, for_speed(header)
    groups: dict[str, list[Expected]] = {}
    for record in records:
        groups.setdefault(label(request.samplings[record.place.sampling]), []).append(record)
        groups.setdefault(record.place.task, []).append(record)
    aims: Mapping[str, Aim] = {TOKENS: _for_tokens, SPEED: speed}
    actions = []
    for among, these in groups.items():
        for contest in (contest for contest in request.contests() if contest.k is None):
            for aim, value in aims.items():
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


def _contenders_of(header: Header, log: SamplingLog) -> dict[Contest, dict[int, str]]:
    """Name of the contender that decoded texts for a contest, by contest and then by number of the sampling setting."""
    selecting = header.request.selecting()
    names: dict[Contest, dict[int, str]] = {contest: {} for contest in header.request.contests()}
    for sampling, shapes in _decoded_shapes(header, log).items():
        for contest, shape in shapes.items():
            names[contest][sampling] = contender_name(contest, shape)
        names |= {contest: {**names.get(contest, {}), sampling: selecting_name(contest)} for contest in selecting}
    return names


def _selected(records: Sequence[Expected], contest: Contest) -> dict[Place, float]:
    """Expected block efficiency of each text with the shapes that the selector chose."""
    return {record.place: record.selected[contest.verifier] for record in records}


def _decoded_shapes(header: Header, log: SamplingLog) -> dict[int, dict[Contest, DelayedTree]]:
    """Shape with which texts were decoded, by number of the sampling setting and then by contest."""
    records: dict[int, list[Expected]] = {record.place.sampling: [] for record in log.of(Realised)}
    for record in log.of(Expected):
        if record.place.sampling in records:
            records[record.place.sampling].append(record)
    return {sampling: chosen(header.request, those, for_speed(header)) for sampling, those in records.items()}


def _agreements(header: Header, log: SamplingLog, by_contest: Mapping[Contest, Turns]) -> list[Agreement]:
    """Measured and expected block efficiency of each decoded contest, with the same shapes and prompts."""
    request, shapes, agreements = header.request, _decoded_shapes(header, log), []
    for contest, turns in by_contest.items():
        decoded = [record for record in log.of(Expected) if record.place in turns]
        if contest.drafting == Drafting.SELECTOR:
            expected = _selected(decoded, contest)
        else:
            order = request.shapes(contest.verifier)
            places = {sampling: order.index(those[contest]) for sampling, those in shapes.items()}
            expected = {
                record.place: record.tokens[contest.verifier][places[record.place.sampling]] for record in decoded
            }
        if turns:
            agreements.append(
                Agreement(
                    verifier=contest.verifier,
                    drafting=contest.drafting,
                    k=contest.k,
                    realised=mean(_per_text(turns, _tokens_per_round)),
                    expected=mean(expected),
                )
            )
    return agreements


def _rankings(efficiency: Mapping[Contest, Values], decoded: Mapping[Contest, Values], seed: int) -> list[Ranking]:
    """Rankings of the verifiers, compared with the rankings in the paper's tables 2, 3, 6 and 7."""
    orders = [
        (TOKENS, Drafting.IID, efficiency, paper.BLOCK_EFFICIENCY),
        (SPEED, Drafting.IID, decoded, paper.TOKENS_PER_SECOND),
        (TOKENS, Drafting.DELAYED, efficiency, paper.DELAYED_BLOCK_EFFICIENCY),
        (SPEED, Drafting.DELAYED, decoded, paper.DELAYED_TOKENS_PER_SECOND),
        (TOKENS, Drafting.SELECTOR, efficiency, paper.DELAYED_BLOCK_EFFICIENCY),
        (SPEED, Drafting.SELECTOR, decoded, paper.DELAYED_TOKENS_PER_SECOND),
    ]
    return [
        ranking(f"{SAID_OF[what]}, {drafting}", those, reported, seed)
        for what, drafting, values, reported in orders
        if (those := of_drafting(values, drafting))
    ]


def _claims(
    what: str, values: Mapping[Contest, Values], reported: tuple[Mapping[str, float], Mapping[str, float]], seed: int
) -> list[Claim]:
    if not values:
        return []
    iid, delayed, selected = (of_drafting(values, each) for each in (Drafting.IID, Drafting.DELAYED, Drafting.SELECTOR))
    measure = SAID_OF[what]
    # the selector is trained to maximise speed, so claims about it are tested on speed only
    by_selector = of_selector(measure, selected, delayed, seed) if what == SPEED else ()
    return [*of_measure(measure, iid, delayed, reported, seed), *by_selector]


def of_drafting(values: Mapping[Contest, Values], drafting: Drafting) -> dict[str, Values]:
    """Values by verifier, for the contests that have this kind of drafting and allow any number of rollouts."""
    return {
        contest.verifier: each for contest, each in values.items() if contest.drafting == drafting and contest.k is None
    }


def _turns(records: Sequence[Realised], names: Mapping[int, str]) -> Turns:
    """Decoding results by text; `names` has the name of the contender for each sampling setting."""
    by_text: dict[Place, list[Decoded]] = {}
    for record in records:
        name = names.get(record.place.sampling)
        mine = [turn for turn in record.turns if turn.contender == name]
        if mine:
            by_text.setdefault(record.place, []).extend(mine)
    return by_text


def _per_text(turns: Turns, measure: Callable[[Sequence[Decoded]], float]) -> Values:
    """Value of a measure for each text, computed from all repeats of the text."""
    return {place: measure(decoded) for place, decoded in turns.items()}


def _tokens_per_second(turns: Sequence[Decoded], threads: int) -> float:
    """Median tokens per second, without the time in which threads waited for a processor, if this time is known."""
    return median(turn.tokens / (turn.decode_s * (1 - (turn.waited or 0) / threads)) for turn in turns)


def _tokens_per_round(turns: Sequence[Decoded]) -> float:
    return sum(turn.tokens for turn in turns) / sum(turn.rounds for turn in turns)


def _by_depth(records: Sequence[Expected]) -> tuple[list[Values], dict[str, list[Values]]]:
    """Values of all texts at each depth: L1 distances, and acceptances by solver."""

    def levels(row: Callable[[Expected], Sequence[float]]) -> list[Values]:
        return [{record.place: row(record)[depth] for record in records} for depth in range(len(row(records[0])))]

    def of_solver(name: str) -> list[Values]:
        return levels(lambda record: record.acceptance[name])

    return levels(lambda record: record.distance), {name: of_solver(name) for name in records[0].acceptance}
