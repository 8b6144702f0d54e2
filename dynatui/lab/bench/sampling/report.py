"""Report of a comparison of verifiers, in the form that `--json` writes; the log is the only source of its results.

Decoded texts form a data frame with one row for each text and contender. All rows, rankings and claims of the report
are computed from means over this frame or over the results of the closed forms.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import pandas as pd

from decoder.analysis.interval import Interval
from decoder.draft.delayed_shape import DelayedTree
from decoder.verify.names import COUPLED, Drafting
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.protocol import disturbed
from dynatui.lab.bench.sampling.best import (
    COUPLED_METHODS,
    best_shape,
    block_efficiency,
    chosen,
    contender_name,
    for_speed,
    for_tokens,
    tokens_of,
)
from dynatui.lab.bench.sampling.best import by_sampling as grouped
from dynatui.lab.bench.sampling.claims import (
    BLOCK_EFFICIENCY,
    DELAYED_BLOCK_EFFICIENCY,
    DELAYED_TOKENS_PER_SECOND,
    TOKENS_PER_SECOND,
    Ranking,
    SamplingClaim,
    Values,
    along_depth,
    by_sampling,
    by_task,
    estimate,
    mean,
    of_measure,
    of_selector,
    ranking,
    ratio,
)
from dynatui.lab.bench.sampling.log import BOUND, Expected, Header, Realised, SamplingLog, holds_all
from dynatui.lab.bench.sampling.request import Contest, SamplingRequest, TextKey, label

TOKENS, SPEED = "tokens a round", "tokens a second"
"""Names of the two measures that the best shape can maximise."""
SAID_OF = {TOKENS: "block efficiency", SPEED: "tokens/s"}
"""Names of the two measures in the text of claims."""
REPORTED = {
    TOKENS: (BLOCK_EFFICIENCY, DELAYED_BLOCK_EFFICIENCY),
    SPEED: (TOKENS_PER_SECOND, DELAYED_TOKENS_PER_SECOND),
}
"""The paper's averages on i.i.d. trees and on delayed trees, by measure."""
TEXT = [*TextKey._fields, "contender"]


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
    """Tokens per second, predicted from block efficiency and the times of forward passes."""


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
    records, texts = log.of(Expected), _texts(log.of(Realised), header.machine.threads)
    efficiency: dict[Contest, Values] = {
        contest: block_efficiency(request, records, contest, for_tokens) for contest in request.contests()
    }
    efficiency |= {contest: _selected(records, contest) for contest in request.selecting()}
    decoded = {contest: _of(texts, names) for contest, names in _contenders_of(header, log).items()}
    decoded = {contest: those for contest, those in decoded.items() if len(those)}
    numbers = range(len(request.samplings))
    others = {name: _of(texts, dict.fromkeys(numbers, name)) for name in (*COUPLED_METHODS, BASELINE)}
    others = {name: those for name, those in others.items() if len(those)}
    speeds: dict[Contest, Values] = {contest: those.tokens_per_second for contest, those in decoded.items()}
    plain = others[BASELINE].tokens_per_second if others else None
    distance, acceptance = _by_depth(records)
    return SamplingReport(
        header=header,
        load_after=load_after,
        complete=holds_all(log, request),
        roots=sum(record.roots for record in records),
        decoded=sum(len(record.turns) for record in log.of(Realised)),
        disturbed=disturbed(turn.waited for record in log.of(Realised) for turn in record.turns),
        block_efficiency=[
            *(_row(request, contest, values) for contest, values in efficiency.items()),
            *(_row(request, name, those.tokens_per_round) for name, those in others.items() if name != BASELINE),
        ],
        tokens_per_second=[
            *(_row(request, contest, values, plain) for contest, values in speeds.items()),
            *(_row(request, name, those.tokens_per_second, plain) for name, those in others.items()),
        ],
        divergence=Divergence(
            distance=[mean(values) for values in distance],
            acceptance={name: [mean(values) for values in levels] for name, levels in acceptance.items()},
        ),
        actions=_actions(header, records),
        agreement=_agreements(header, log, decoded),
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


def of_drafting(values: Mapping[Contest, Values], drafting: Drafting) -> dict[str, Values]:
    """Values by verifier, for the contests that have this kind of drafting and allow any number of rollouts."""
    return {
        contest.verifier: each for contest, each in values.items() if contest.drafting == drafting and contest.k is None
    }


def _texts(records: Sequence[Realised], threads: int) -> pd.DataFrame:
    """Rates by text and contender: tokens per round over all repeats, and the median over repeats of tokens per second,
    without the time in which threads waited for a processor if this time is known.
    """
    turns = [(*record.place, *msgspec.structs.astuple(turn)) for record in records for turn in record.turns]
    rows = pd.DataFrame(turns, columns=[*TEXT, "tokens", "rounds", "decode_s", "waited"])
    rows = rows.astype({"tokens": float, "rounds": float, "decode_s": float, "waited": float})
    rows["tokens_per_second"] = rows.tokens / (rows.decode_s * (1 - rows.waited.fillna(0) / threads))
    texts = rows.groupby(TEXT, sort=False)
    sums = texts[["tokens", "rounds"]].sum()
    return texts[["tokens_per_second"]].median().assign(tokens_per_round=sums.tokens / sums.rounds)


def _of(texts: pd.DataFrame, names: Mapping[int, str]) -> pd.DataFrame:
    """Texts of one contender per sampling setting; `names` has the contender by number of the sampling setting."""
    mine = [names.get(sampling) == contender for sampling, _, _, contender in texts.index]
    return texts[mine].droplevel("contender")


def _contenders_of(header: Header, log: SamplingLog) -> dict[Contest, dict[int, str]]:
    """Name of the contender that decoded texts for a contest, by contest and then by number of the sampling setting."""
    shapes = _decoded_shapes(header, log)
    return {
        contest: {sampling: contender_name(contest, those.get(contest)) for sampling, those in shapes.items()}
        for contest in (*header.request.contests(), *header.request.selecting())
    }


def _decoded_shapes(header: Header, log: SamplingLog) -> dict[int, dict[Contest, DelayedTree]]:
    """Shape with which texts were decoded, by number of the sampling setting and then by contest."""
    records = grouped(log.of(Expected))
    decoded = dict.fromkeys(record.place.sampling for record in log.of(Realised))
    return {sampling: chosen(header, records[sampling]) for sampling in decoded}


def _selected(records: Sequence[Expected], contest: Contest) -> dict[TextKey, float]:
    """Expected block efficiency of each text with the shapes that the selector chose."""
    return {record.place: record.selected[contest.verifier] for record in records}


def _row(request: SamplingRequest, of: Contest | str, values: Values, plain: Values | None = None) -> Row:
    """Row of a contest, or of a method that uses none of the verifiers."""
    contest = of if isinstance(of, Contest) else Contest(COUPLED, Drafting.TREE)
    return Row(
        verifier=contest.verifier,
        drafting=of if isinstance(of, str) else of.drafting,
        k=contest.k,
        mean=estimate(values, request.seed),
        by_task=by_task(values),
        by_sampling={label(request.samplings[number]): value for number, value in by_sampling(values).items()},
        over_ar=None if plain is None else ratio(values, plain, request.seed),
    )


def _actions(header: Header, records: Sequence[Expected]) -> list[Action]:
    request, speed = header.request, for_speed(header)
    groups: dict[str, list[Expected]] = {}
    for record in records:
        groups.setdefault(label(request.samplings[record.place.sampling]), []).append(record)
        groups.setdefault(record.place.task, []).append(record)
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


def _agreements(header: Header, log: SamplingLog, decoded: Mapping[Contest, pd.DataFrame]) -> list[Agreement]:
    """Measured and expected block efficiency of each decoded contest, with the same shapes and prompts."""
    request, shapes, agreements = header.request, _decoded_shapes(header, log), []
    for contest, texts in decoded.items():
        records = [record for record in log.of(Expected) if record.place in texts.index]
        expected = (
            _selected(records, contest)
            if contest.drafting == Drafting.SELECTOR
            else {
                record.place: tokens_of(request, record, contest, shapes[record.place.sampling][contest])
                for record in records
            }
        )
        agreements.append(
            Agreement(
                verifier=contest.verifier,
                drafting=contest.drafting,
                k=contest.k,
                realised=mean(texts.tokens_per_round),
                expected=mean(expected),
            )
        )
    return agreements


def _claims(what: str, values: Mapping[Contest, Values], seed: int) -> list[SamplingClaim]:
    iid, delayed, selected = (of_drafting(values, each) for each in (Drafting.IID, Drafting.DELAYED, Drafting.SELECTOR))
    # the selector is trained to maximise speed, so claims about it are tested on speed only
    by_selector = of_selector(SAID_OF[what], selected, delayed, seed) if what == SPEED else ()
    return [*of_measure(SAID_OF[what], iid, delayed, REPORTED[what], seed), *by_selector]


def _by_depth(records: Sequence[Expected]) -> tuple[list[Values], dict[str, list[Values]]]:
    """For each depth, the values of all texts: L1 distances, and acceptance by solver."""

    def levels(row: Callable[[Expected], Sequence[float]]) -> list[Values]:
        return [{record.place: row(record)[depth] for record in records} for depth in range(len(row(records[0])))]

    def of_solver(name: str) -> list[Values]:
        return levels(lambda record: record.acceptance[name])

    return levels(lambda record: record.distance), {name: of_solver(name) for name in records[0].acceptance}
