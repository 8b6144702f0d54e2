"""The paper's claims, each with the paper's own quotient, the same quotient as measured here, and the verdict.

All functions are pure.

Every claim except losslessness is tested by a quotient of two lanes' results on the same prompts. The claim holds if
the quotient's entire confidence interval lies on the side of the limit that the claim requires, and does not hold if
the entire interval lies on the other side. A claim against several rivals holds if it holds against each rival, and
does not hold if it fails against any rival.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from decoder.analysis.interval import Interval, Verdict, verdict
from dynatui.lab.bench.paper.paired import SPREAD_COVERAGE, Course, Measure, courses, mean, speed, spread_quotient
from dynatui.lab.bench.paper.paper_claims import (
    BEATS_FIXED,
    BEATS_HF,
    BEATS_LINEAR,
    DEPTH,
    FASTER,
    FEWER_ROUNDS,
    GROWS,
    HISTORY_GAINS,
    HISTORY_STABILISES,
    LOSSLESS,
    LOWER_TTFT,
    LOWEST_TPOT,
    THREE_PERCENT,
    PaperClaim,
)
from dynatui.lab.bench.paper.published import (
    AR,
    DYNATREE,
    FIXED,
    FIXED_BACKBONE,
    HF,
    LINEAR,
    PHASE_1,
    PHASE_2,
)
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.request import Lane
from dynatui.lab.bench.sampling.averages import Values

FEWEST = 5
"""Minimum number of prompts for a verdict; an interval over fewer prompts is not meaningful."""
SAMPLED = "The paper's claims are about greedy decoding; here tokens were sampled, so no claim is judged."


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Claim of the paper on one data set, with the paper's quotient, the measured quotient and the verdict."""

    name: str
    says: str
    source: str
    """Version of the paper, and section, table or figure in it."""
    data_set: str
    """Title of the data set on which the claim is tested."""
    paper: float | None
    """Quotient of the paper's own numbers; None if the paper gives no such numbers."""
    doubt: str = ""
    """Reasons not to rely on the paper's quotient; empty if there are none."""
    here: Interval | None
    """Measured quotient with its confidence interval; None if it could not be measured."""
    limit: float
    """Limit of the quotient: the quotient must be below this limit if `below` is set, and above it otherwise."""
    below: bool = False
    verdict: Verdict
    tested: str
    """Sentence that says which quantities of which lanes are compared."""

    @property
    def by_quotient(self) -> bool:
        """Whether the claim is tested by a quotient; only losslessness is tested by the share of equal texts."""
        return self.name != LOSSLESS.name


class _Figure(NamedTuple):
    """Quantity by which two lanes are compared."""

    name: str
    take: Measure
    less_is_better: bool = False


SPEED = _Figure("Tokens/s", speed)
TPOT = _Figure("Time per token", lambda figures: figures.tpot_s, less_is_better=True)
TTFT = _Figure("Time to the first tokens", lambda figures: figures.ttft_s, less_is_better=True)
ROUNDS = _Figure("Rounds", lambda figures: float(figures.rounds), less_is_better=True)


class _On(NamedTuple):
    """Results and lanes of one data set, on which claims are tested."""

    course: Course
    lanes: Sequence[Lane]
    title: str
    stands_for: str | None

    def named(self, *rows: str) -> list[str]:
        """Names of the lanes that correspond to these rows of the paper's tables."""
        return [lane.name for lane in self.lanes if lane.paper_name in rows and not lane.own_text]

    def claim(self, statement: PaperClaim, here: Interval | None, verdict: Verdict, tested: str) -> Claim:
        there = self.stands_for or ""
        other = f"at T={statement.length}" if statement.length != self.course.experiment.lengths[-1] else None
        doubts = [doubt for doubt in (other, statement.doubt.get(there)) if doubt and there in statement.paper]
        return Claim(
            name=statement.name,
            says=statement.says,
            source=statement.source,
            data_set=self.title,
            paper=statement.paper.get(there),
            doubt="; ".join(doubts),
            here=here,
            limit=statement.limit,
            below=statement.below,
            verdict=verdict,
            tested=tested,
        )


def claims(report: PaperReport) -> list[Claim]:
    """Claims on every data set of the main experiment; claims about lanes that were not measured are left out."""
    if left_out(report):
        return []
    return [claim for course in courses(report, "main") for claim in _on(report, course)]


def left_out(report: PaperReport) -> str | None:
    """Reason why no claim is judged; None if claims are judged."""
    return SAMPLED if report.header.request.temperature > 0 else None


def judged(quotient: Interval | None, prompts: int, limit: float = 1.0, *, below: bool = False) -> Verdict:
    """Verdict on a quotient that must exceed `limit`, or stay below it if `below` is set."""
    return "cannot tell" if prompts < FEWEST else verdict(quotient, limit, below=below)


def _on(report: PaperReport, course: Course) -> Iterator[Claim]:
    request, experiment = report.header.request, course.experiment
    texts = request.text_set(experiment.data_set)
    on = _On(course, [request.lane(name) for name in experiment.lanes], texts.title, texts.stands_for)
    yield _lossless(on)
    own, plain, fixed, breadth, depth = (
        next(iter(on.named(row)), None) for row in (DYNATREE, AR, FIXED_BACKBONE, PHASE_1, PHASE_2)
    )
    if own:
        yield from _against_rivals(on, own)
    if own and plain:
        yield from _against_plain(on, own, plain, request.device)
    if fixed and breadth and depth:
        yield _depth(on, fixed, breadth, depth)
    if own and depth:
        yield from _history(on, own, depth)


def _lossless(on: _On) -> Claim:
    lanes = [lane.name for lane in on.lanes if not lane.own_text and lane.family not in ("hf", "ar")]
    turns = [(block, turn) for block in on.course.blocks for turn in block.turns if turn.lane in lanes]
    compared = [each for each in turns if each[1].at[-1].identical_to_ar is not None]
    different = [turn for block, turn in compared if on.course.figures(turn.lane, block) is None]
    beyond = [turn.lane for turn in different if not turn.at[-1].near_tie]
    verdict: Verdict = "does not hold" if beyond else "holds" if compared and not different else "cannot tell"
    parts = [f"{len(compared) - len(different)} of {len(compared)} texts of {len(lanes)} lanes equal the text of ar"]
    if len(different) > len(beyond):
        parts.append(f"texts whose first difference from ar's text is at a near tie: {len(different) - len(beyond)}")
    if beyond:
        counts = [f"{beyond.count(lane)} of {lane}" for lane in dict.fromkeys(beyond)]
        parts.append(f"texts that differ without a near tie: {', '.join(counts)}")
    share = Interval(value=1 - len(different) / len(compared), low=None, high=None) if compared else None
    return on.claim(LOSSLESS, share, verdict, f"{'; '.join(parts)}.")


def _against_rivals(on: _On, own: str) -> Iterator[Claim]:
    """Claims about DynaTree in comparison with the paper's other methods."""
    comparisons = (
        (LOWEST_TPOT, ((AR,), LINEAR, FIXED), TPOT),
        (FEWER_ROUNDS, (LINEAR, FIXED), ROUNDS),
        (BEATS_LINEAR, (LINEAR,), SPEED),
        (BEATS_FIXED, (FIXED,), SPEED),
        (BEATS_HF, ((HF,),), SPEED),
    )
    for statement, kinds, figure in comparisons:
        rivals = [on.named(*rows) for rows in kinds]
        if all(rivals):  # a claim against several kinds of rivals is tested only if each kind has a lane
            yield _against(on, statement, own, [*chain.from_iterable(rivals)], figure)


def _against(on: _On, statement: PaperClaim, own: str, rivals: Sequence[str], figure: _Figure) -> Claim:
    """Claim that the lane `own` is better than every rival; the shown quotient compares `own` with the best rival."""
    pairs = {rival: (rival, own) if figure.less_is_better else (own, rival) for rival in rivals}
    quotients = {rival: on.course.quotients(*pair, figure.take) for rival, pair in pairs.items()}
    means = {rival: each for rival in rivals if (each := mean(quotients[rival], on.course.seed))}
    if not means:
        tested = (
            f"There is no prompt on which both the text of {own} and that of {' or '.join(rivals)} equal ar's text."
        )
        return on.claim(statement, None, "cannot tell", tested)
    verdicts = {rival: judged(each, len(quotients[rival]), statement.limit) for rival, each in means.items()}
    better = [rival for rival, one in verdicts.items() if one == "does not hold"]
    shown = better or list(means)
    best = min(shown, key=lambda rival: means[rival].value)
    verdict: Verdict = "holds" if all(one == "holds" for one in verdicts.values()) else "cannot tell"
    which = f"rivals{f' that are better than {own}' if better else ''}"
    among = f", where {best} is the best of {len(shown)} {which}" if len(shown) > 1 else ""
    tested = f"{figure.name} of {' over that of '.join(pairs[best])}{among}, on {_count(quotients[best])}."
    return on.claim(statement, means[best], "does not hold" if better else verdict, tested)


def _against_plain(on: _On, own: str, plain: str, device: str) -> Iterator[Claim]:
    """Claims about DynaTree in comparison with plain decoding."""
    yield _against(on, FASTER, own, [plain], SPEED)
    yield _against(on, LOWER_TTFT, own, [plain], TTFT)
    yield _memory(on, own, plain, on_gpu=device.startswith("cuda"))
    if len(on.course.experiment.lengths) > 1:
        yield _gain_by_length(on, own, plain)


def _memory(on: _On, own: str, plain: str, *, on_gpu: bool) -> Claim:
    """Claim about GPU memory; on a CPU, the peak memory of the process is shown without a verdict."""
    peaks = on.course.quotients(own, plain, lambda figures: figures.peak_bytes)
    where = "the GPU" if on_gpu else "the process (on a CPU, so not comparable with the memory of a GPU)"
    claim = _quotient(on, THREE_PERCENT, peaks, f"Peak memory of {where} with both models loaded: {own} over {plain}")
    return claim if on_gpu else msgspec.structs.replace(claim, verdict="cannot tell")


def _gain_by_length(on: _On, own: str, plain: str) -> Claim:
    """Claim that the gain grows with the text length. For each prompt, the speed-up at the longest length is divided by
    the speed-up at the shortest length.
    """
    lengths = on.course.experiment.lengths
    short, long = (
        Course(on.course.experiment, on.course.blocks, on.course.seed, place).quotients(own, plain, speed)
        for place in (0, len(lengths) - 1)
    )
    grown = {place: long[place] / short[place] for place in long.keys() & short.keys()}
    tested = f"Tokens/s of {own} over {plain} at T={lengths[-1]}, divided by the same quotient at T={lengths[0]}"
    return _quotient(on, GROWS, dict(sorted(grown.items())), tested)


def _depth(on: _On, fixed: str, breadth: str, depth: str) -> Claim:
    by_depth, by_breadth = on.course.quotients(depth, breadth, speed), on.course.quotients(breadth, fixed, speed)
    both = {place: by_depth[place] / by_breadth[place] for place in by_depth if place in by_breadth}
    tested = f"Tokens/s of {depth} over {breadth}, divided by tokens/s of {breadth} over {fixed}"
    return _quotient(on, DEPTH, both, tested)


def _history(on: _On, own: str, before: str) -> Iterator[Claim]:
    yield _against(on, HISTORY_GAINS, own, [before], SPEED)
    with_it, without = (on.course.values(lane, speed) for lane in (own, before))
    quotient = spread_quotient(without, with_it, on.course.seed)
    prompts = with_it.keys() & without.keys()
    tested = (
        f"Standard deviation of tokens/s of {before} over that of {own}, on {_count(prompts)}. "
        f"The interval covers {SPREAD_COVERAGE:.0%}: with few prompts, an interval for 95 % would be too narrow."
    )
    yield on.claim(HISTORY_STABILISES, quotient, judged(quotient, len(prompts)), tested)


def _quotient(on: _On, statement: PaperClaim, values: Values, what: str) -> Claim:
    quotient = mean(values, on.course.seed)
    verdict = judged(quotient, len(values), statement.limit, below=statement.below)
    return on.claim(statement, quotient, verdict, f"{what}, on {_count(values)}.")


def _count(values: Collection[object]) -> str:
    few = ": too few to tell" if len(values) < FEWEST else ""
    return f"{len(values)} prompt{'s' * (len(values) != 1)}{few}"
