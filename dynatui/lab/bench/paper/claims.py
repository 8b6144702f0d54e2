"""The paper's claims (`claims.csv`), their tests on the measured texts, and a table of the verdicts.

Every claim except losslessness is tested by a quotient of two lanes' results on the same prompts; only texts that equal
the text of `ar` count. A claim holds if the quotient's entire confidence interval lies on the side of the limit that
the claim requires, and does not hold if the entire interval lies on the other side. A claim against several rivals
holds if it holds against every rival, and does not hold if it fails against any rival.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import truediv
from typing import NamedTuple, TypeAlias

import msgspec
import pandas as pd

from decoder.analysis.interval import Interval, Verdict, compared_to_limit
from dynatui.lab.bench import paper as published
from dynatui.lab.bench.paper.records import PaperExperiment, PaperRequest
from dynatui.lab.bench.paper.report import SPEED, PaperReport, texts_of
from dynatui.lab.bench.paper.tables import PAIRED_DRAWS
from dynatui.lab.frame import by_prompt, mean, quotients, series, spread_quotient
from dynatui.lab.tables import Cell, Column, Printed, Table

FEWEST = 5
"""Minimum number of prompts for a verdict; with fewer prompts, the confidence interval is not meaningful."""
SPREAD_COVERAGE = 0.99
"""Nominal coverage of the bootstrap interval for a quotient of standard deviations.

With 5 to 19 normally distributed values, this interval contains the true quotient in 95 to 99 % of cases; an interval
with a nominal coverage of 95 % contains it in only 88 to 94 % of cases.
"""
MEMORY = 1.035
"""Limit of the memory quotient: below it, the claim of "about 3 % more memory" holds."""


class JudgedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Claim of the paper on one data set, with the paper's quotient, the measured quotient and the verdict."""

    name: str
    says: str
    source: str
    """Version of the paper, and section, table or figure in it."""
    data_set: str
    """Title of the data set on which the claim is tested."""
    paper: float | None
    """Quotient of the paper's own numbers; None if the paper gives no such numbers."""
    doubt: str
    """Reasons not to rely on the paper's quotient, if any."""
    here: Interval | None
    """Measured quotient with its confidence interval; None if it could not be measured."""
    limit: float
    """The quotient must be below this limit if `below` is set, and otherwise above this limit."""
    below: bool
    verdict: Verdict
    tested: str
    """Sentence that names the compared quantities and lanes."""

    @property
    def by_quotient(self) -> bool:
        """Whether the claim is tested by a quotient; only losslessness is tested by the share of equal texts."""
        return self.name != "lossless"


class On(NamedTuple):
    """An experiment `main`, on whose texts claims are tested."""

    report: PaperReport
    experiment: PaperExperiment

    @property
    def request(self) -> PaperRequest:
        return self.report.request

    def same(self, place: int = -1) -> pd.DataFrame:
        """Texts that equal the text of `ar`, cut to the length at `place` in the experiment's lengths."""
        texts = texts_of(self.report, self.experiment, place)
        return texts[texts.same]

    def named(self, *names: str) -> list[str]:
        """Lanes that repeat these rows of the paper's tables, without lanes whose text may differ by design."""
        lanes = map(self.request.lane, self.experiment.lanes)
        return [lane.name for lane in lanes if lane.paper_name in names and not lane.own_text]

    def first(self, *names: str) -> list[str]:
        """First lane for each of these rows of the paper's tables; empty if a row has no lane."""
        found = [self.named(name)[:1] for name in names]
        return [*chain.from_iterable(found)] if all(found) else []


Result: TypeAlias = tuple[Interval | None, Verdict, str]
"""`here`, `verdict` and `tested` of a `JudgedClaim`."""
Test: TypeAlias = Callable[[On], Result | None]
"""Function that tests a claim; it returns None if a required lane was not requested."""


def judged(quotient: Interval | None, prompts: int, limit: float = 1.0, *, below: bool = False) -> Verdict:
    """Verdict on a quotient that must exceed `limit`, or stay below it if `below` is set."""
    return "cannot tell" if prompts < FEWEST else compared_to_limit(quotient, limit, below=below)


def lossless(on: On) -> Result:
    lanes = [
        lane.name
        for lane in map(on.request.lane, on.experiment.lanes)
        if not lane.own_text and lane.family not in ("hf", "ar")
    ]
    texts = texts_of(on.report, on.experiment)
    every = texts[texts.lane.isin(lanes)]
    compared = every[every.identical_to_ar.notna()]
    different = compared[~compared.same]
    beyond = different[~different.near_tie.eq(True)].lane.tolist()
    equal = len(compared) - len(different)
    parts = [f"{equal} of {len(compared)} texts of {len(lanes)} lanes equal the text of ar"]
    if len(different) > len(beyond):
        parts.append(f"texts whose first difference from ar's text is at a near tie: {len(different) - len(beyond)}")
    if beyond:
        counts = [f"{beyond.count(lane)} of {lane}" for lane in dict.fromkeys(beyond)]
        parts.append(f"texts that differ without a near tie: {', '.join(counts)}")
    share = Interval(value=1 - len(different) / len(compared), low=None, high=None) if len(compared) else None
    verdict: Verdict = (
        "does not hold" if beyond else "holds" if len(compared) and equal == len(compared) else "cannot tell"
    )
    return share, verdict, f"{'; '.join(parts)}."


def against(figure: str, name: str, *kinds: Sequence[str], less_is_better: bool = True) -> Test:
    """Test of whether DynaTree is better than every rival; the quotient compares DynaTree with the best rival.

    `kinds` are groups of rows of the paper's tables. The lanes of these rows are the rivals. If a group has no lane,
    the claim is not tested.
    """

    def test(on: On) -> Result | None:
        own, rivals = on.first(published.DYNATREE), [on.named(*names) for names in kinds]
        if not own or not all(rivals):
            return None
        names = [*chain.from_iterable(rivals)]
        pairs = {rival: (rival, own[0]) if less_is_better else (own[0], rival) for rival in names}
        prompts = {rival: by_prompt(quotients(on.same(), *pair, figure)) for rival, pair in pairs.items()}
        means = {rival: each for rival in names if (each := _mean(on, prompts[rival]))}
        if not means:
            text = f"both the text of {own[0]} and that of {' or '.join(names)} equal ar's text"
            return None, "cannot tell", f"There is no prompt on which {text}."
        verdicts = {rival: judged(each, len(prompts[rival])) for rival, each in means.items()}
        better = [rival for rival, one in verdicts.items() if one == "does not hold"]
        shown = better or list(means)
        best = min(shown, key=lambda rival: means[rival].value)
        which = f"rivals{f' that are better than {own[0]}' if better else ''}"
        among = f", where {best} is the best of {len(shown)} {which}" if len(shown) > 1 else ""
        tested = f"{name} of {' over that of '.join(pairs[best])}{among}, on {_count(prompts[best])}."
        if better:
            return means[best], "does not hold", tested
        return means[best], "holds" if set(verdicts.values()) == {"holds"} else "cannot tell", tested

    return test


def memory(on: On) -> Result | None:
    """Quotient of peak memories. On a CPU, the peak memory is that of the process, so there is no verdict."""
    if not (pair := on.first(published.DYNATREE, published.AR)):
        return None
    (own, plain), on_gpu = pair, on.request.device.startswith("cuda")
    where = "the GPU" if on_gpu else "the process (on a CPU, so not comparable with the memory of a GPU)"
    what = f"Peak memory of {where} with both models loaded: {own} over {plain}"
    here, verdict, tested = _of_quotients(on, quotients(on.same(), own, plain, "peak_mb"), what, MEMORY, below=True)
    return here, verdict if on_gpu else "cannot tell", tested


def gain_by_length(on: On) -> Result | None:
    """For each prompt, the speed-up at the longest length is divided by the speed-up at the shortest length."""
    lengths, pair = on.experiment.lengths, on.first(published.DYNATREE, published.AR)
    if not pair or len(lengths) < 2:
        return None
    own, plain = pair
    long, short = (by_prompt(quotients(on.same(place), own, plain, SPEED)) for place in (-1, 0))
    tested = f"Tokens/s of {own} over {plain} at T={lengths[-1]}, divided by the same quotient at T={lengths[0]}"
    return _of_quotients(on, (long / short).dropna(), tested)


def depth_over_breadth(on: On) -> Result | None:
    if not (lanes := on.first(published.FIXED_BACKBONE, published.PHASE_1, published.PHASE_2)):
        return None
    fixed, breadth, depth = lanes
    by_depth, by_breadth = (
        by_prompt(quotients(on.same(), *pair, SPEED)) for pair in ((depth, breadth), (breadth, fixed))
    )
    tested = f"Tokens/s of {depth} over {breadth}, divided by tokens/s of {breadth} over {fixed}"
    return _of_quotients(on, (by_depth / by_breadth).dropna(), tested)


def spread(on: On) -> Result | None:
    if not (lanes := on.first(published.PHASE_2, published.DYNATREE)):
        return None
    without, with_it = (by_prompt(series(on.same(), SPEED, lane=lane)) for lane in lanes)
    quotient = spread_quotient(without, with_it, on.request.seed, coverage=SPREAD_COVERAGE)
    prompts = without.index.intersection(with_it.index)
    tested = (
        f"Standard deviation of tokens/s of {' over that of '.join(lanes)}, on {_count(prompts)}. "
        f"The interval covers {SPREAD_COVERAGE:.0%}: with few prompts, an interval for 95 % would be too narrow."
    )
    return quotient, judged(quotient, len(prompts)), tested


def _of_quotients(on: On, values: pd.Series, what: str, limit: float = 1.0, *, below: bool = False) -> Result:
    quotient, prompts = _mean(on, values), by_prompt(values)
    return quotient, judged(quotient, len(prompts), limit, below=below), f"{what}, on {_count(prompts)}."


def _mean(on: On, values: pd.Series) -> Interval | None:
    found = mean(values, on.request.seed, draws=PAIRED_DRAWS)
    return found and msgspec.structs.replace(found, std=None)


def _count(prompts: pd.Series | pd.Index) -> str:
    few = ": too few to tell" if len(prompts) < FEWEST else ""
    return f"{len(prompts)} prompt{'s' * (len(prompts) != 1)}{few}"


def faster(*kinds: Sequence[str]) -> Test:
    return against(SPEED, "Tokens/s", *kinds, less_is_better=False)


TESTS: Mapping[str, Test] = {
    "lossless": lossless,
    "lowest_tpot": against("tpot_ms", "Time per token", (published.AR,), published.LINEAR, published.FIXED),
    "fewer_rounds": against("rounds", "Rounds", published.LINEAR, published.FIXED),
    "beats_linear": faster(published.LINEAR),
    "beats_fixed": faster(published.FIXED),
    "beats_hf": faster((published.HF,)),
    "faster_than_ar": faster((published.AR,)),
    "lower_ttft": against("ttft_ms", "Time to the first tokens", (published.AR,)),
    "memory": memory,
    "gain_grows": gain_by_length,
    "depth_dominates": depth_over_breadth,
    "history_gains": faster((published.PHASE_2,)),
    "history_stabilises": spread,
}
"""Tests of all claims in `claims.csv`. Where a claim's quotient has other numbers than `published.csv`, the latter has
those of a source that takes precedence.
"""


def paper_quotient(text: str) -> float | None:
    """Value of a quotient of two numbers, such as "5.30/4.59", or of two such quotients with " / " between them."""
    return (
        reduce(truediv, [reduce(truediv, map(float, part.split("/"))) for part in text.split(" / ")]) if text else None
    )


def claims(report: PaperReport) -> list[JudgedClaim]:
    """Claims on every data set of the main experiment; claims about lanes that were not measured are left out."""
    measured = {block.experiment for block in report.blocks}
    mains = [
        On(report, each)
        for number, each in enumerate(report.request.experiments)
        if each.name == "main" and number in measured
    ]
    return [] if left_out(report) else [claim for on in mains for claim in _tested(on)]


def left_out(report: PaperReport) -> str | None:
    """Reason why no claim is judged; None if claims are judged."""
    if report.request.temperature == 0:
        return None
    return "The paper's claims are about greedy decoding; here tokens were sampled, so no claim is judged."


def _tested(on: On) -> Iterator[JudgedClaim]:
    texts = on.request.text_set(on.experiment.data_set)
    for line in published.lines_of("claims.csv"):
        result = TESTS[line["name"]](on)
        if result is None:
            continue
        here, verdict, tested = result
        paper = paper_quotient(line.get(texts.stands_for or "", ""))
        doubts: list[str] = []
        if paper is not None:
            other = f"at T={line['length']}" if line["length"] != str(on.experiment.lengths[-1]) else ""
            known = [published.DOUBTS.get(part, part) for part in line[f"doubt {texts.stands_for}"].split("; ")]
            doubts = [doubt for doubt in (other, *known) if doubt]
        is_memory = line["name"] == "memory"
        yield JudgedClaim(
            name=line["name"],
            says=line["says"],
            source=line["source"],
            data_set=texts.title,
            paper=paper,
            doubt="; ".join(doubts),
            here=here,
            limit=MEMORY if is_memory else 1.0,
            below=is_memory,
            verdict=verdict,
            tested=tested,
        )


def claims_table(these: Iterable[JudgedClaim], notes: Sequence[str], why_none: str | None = None) -> Table:
    """Table of the claims; `why_none` is the reason why no claim is judged."""
    judged_claims = list(these)
    known, explained = published.footnotes(claim.doubt for claim in judged_claims)

    def row(claim: JudgedClaim) -> tuple[Cell, ...]:
        paper = claim.paper and Printed(value=claim.paper, source=claim.source, mark=known[claim.doubt])
        limit = f"{'under' if claim.below else 'over'} {claim.limit:g}" if claim.by_quotient else "1"
        return claim.says, claim.data_set, claim.verdict, claim.here, paper, limit, claim.tested, claim.source

    return Table(
        name="claims",
        title="The paper's claims",
        what=why_none
        or "Losslessness is tested by the share of texts that equal the text of ar. Every other claim is tested by a "
        "quotient of two figures on the same prompts; it gets a verdict only if the quotient's 95 % interval lies on "
        "one side of the limit.",
        columns=(
            *map(Column, ("the paper says", "data", "verdict")),
            Column("here", "measured", 3),
            Column("paper", "paper", 3),
            *map(Column, ("must be", "tested by", "source")),
        ),
        rows=tuple(map(row, judged_claims)),
        notes=(*explained, *notes),
    )
