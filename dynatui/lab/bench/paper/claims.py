"""The paper's claims (`claims.csv`), the results of testing the claims here, and a table of the results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import truediv
from typing import NamedTuple

import msgspec

from decoder.analysis.interval import Interval, Verdict
from dynatui.lab.bench.paper.claim_tests import (
    MEMORY,
    SPEED,
    On,
    Test,
    against,
    data_sets,
    depth_over_breadth,
    gain_by_length,
    lossless,
    memory,
    spread,
)
from dynatui.lab.bench.paper.published import AR, DOUBTS, FIXED, HF, LINEAR, MOST, PHASE_2, lines_of, marks
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.tables.data import Cell, Column, Printed, Table


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
    doubt: str = ""
    """Reasons not to rely on the paper's quotient, if any."""
    here: Interval | None
    """Measured quotient with its confidence interval; None if it could not be measured."""
    limit: float
    """The quotient must be below this limit if `below` is set, and otherwise above this limit."""
    below: bool = False
    verdict: Verdict
    tested: str
    """Sentence that names the compared quantities and lanes."""

    @property
    def by_quotient(self) -> bool:
        """Whether the claim is tested by a quotient; only losslessness is tested by the share of equal texts."""
        return self.name != "lossless"


class PaperClaim(NamedTuple):
    """Claim of the paper and its test; `paper` (the paper's quotient) and `doubt` are by data set."""

    name: str
    says: str
    source: str
    test: Test
    paper: Mapping[str, float]
    doubt: Mapping[str, str]
    length: int
    """Number of new tokens, T, to which the paper's quotient applies."""


TESTS: Mapping[str, Test] = {
    "lossless": lossless,
    "lowest_tpot": against("tpot_ms", (AR,), LINEAR, FIXED),
    "fewer_rounds": against("rounds", LINEAR, FIXED),
    "beats_linear": against(SPEED, LINEAR),
    "beats_fixed": against(SPEED, FIXED),
    "beats_hf": against(SPEED, (HF,)),
    "faster_than_ar": against(SPEED, (AR,)),
    "lower_ttft": against("ttft_ms", (AR,)),
    "memory": memory,
    "gain_grows": gain_by_length,
    "depth_dominates": depth_over_breadth,
    "history_gains": against(SPEED, (PHASE_2,)),
    "history_stabilises": spread,
}
LIMITS = {"memory": (MEMORY, True)}
"""(limit, whether the quotient must be below it) by claim; all other quotients must be above 1."""


def _claim(line: Mapping[str, str]) -> PaperClaim:
    """Claim in a line of `claims.csv`; doubts are separated by semicolons, and some are names in `DOUBTS`."""
    doubts = {name: [DOUBTS.get(part, part) for part in line[f"doubt {name}"].split("; ")] for name in MOST}
    return PaperClaim(
        name=line["name"],
        says=line["says"],
        source=line["source"],
        test=TESTS[line["name"]],
        paper={name: _quotient(line[name]) for name in MOST if line[name]},
        doubt={name: "; ".join(parts) for name, parts in doubts.items() if any(parts)},
        length=int(line["length"]),
    )


def _quotient(text: str) -> float:
    """Value of a quotient of two numbers, such as "5.30/4.59", or of a quotient of two such quotients, " / "."""
    return reduce(truediv, [reduce(truediv, map(float, part.split("/"))) for part in text.split(" / ")])


CLAIMS = tuple(map(_claim, lines_of("claims.csv")))
"""All claims. For some numbers of the quotients, `published.csv` has numbers from a source that takes precedence."""


def claims(report: PaperReport) -> list[JudgedClaim]:
    """Claims on every data set of the main experiment; claims about lanes that were not measured are left out."""
    return [] if left_out(report) else [claim for on in data_sets(report) for claim in _tested(on)]


def left_out(report: PaperReport) -> str | None:
    """Reason why no claim is judged; None if claims are judged."""
    if report.header.request.temperature == 0:
        return None
    return "The paper's claims are about greedy decoding; here tokens were sampled, so no claim is judged."


def _tested(on: On) -> Iterator[JudgedClaim]:
    texts_of = on.request.text_set(on.experiment.data_set)
    there = texts_of.stands_for or ""
    for claim in CLAIMS:
        if result := claim.test(on):
            here, verdict, tested = result
            other = f"at T={claim.length}" if claim.length != on.experiment.lengths[-1] else None
            doubts = [doubt for doubt in (other, claim.doubt.get(there)) if doubt and there in claim.paper]
            limit, below = LIMITS.get(claim.name, (1.0, False))
            yield JudgedClaim(
                name=claim.name,
                says=claim.says,
                source=claim.source,
                data_set=texts_of.title,
                paper=claim.paper.get(there),
                doubt="; ".join(doubts),
                here=here,
                limit=limit,
                below=below,
                verdict=verdict,
                tested=tested,
            )


def claims_table(these: Iterable[JudgedClaim], notes: Sequence[str], why_none: str | None = None) -> Table:
    """Table of the claims; `why_none` is the reason why no claim is judged."""
    judged_claims = list(these)
    known, explained = marks(claim.doubt for claim in judged_claims)

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
