"""The paper's claims, the results of testing the claims here, and a table of the results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
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
from dynatui.lab.bench.paper.published import (
    AR,
    DOUBTS,
    EARLIER_LENGTH,
    FIXED,
    HF,
    LENGTH,
    LINEAR,
    PG19,
    PHASE_2,
    WIKITEXT,
    marks,
)
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.tables.data import Cell, Column, Printed, Table

DEEPER = DOUBTS["deeper-on-pg19"]


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
    paper: Mapping[str, float] = MappingProxyType({})
    limit: float = 1.0
    below: bool = False
    doubt: Mapping[str, str] = MappingProxyType({})
    length: int = LENGTH
    """Number of new tokens, T, to which the paper's quotient applies."""


CLAIMS = (
    PaperClaim(
        "lossless", "Every method generates the same text as plain greedy decoding.", "v4 section 3.6", lossless
    ),
    PaperClaim(
        "lowest_tpot",
        "DynaTree takes less time per token than plain decoding, linear drafting and fixed trees.",
        "v4 table 2",
        against("tpot_ms", (AR,), LINEAR, FIXED),
        {WIKITEXT: 5.30 / 4.59, PG19: 5.55 / 5.30},
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "fewer_rounds",
        "DynaTree needs fewer rounds than linear drafting and fixed trees.",
        "v4 table 3",
        against("rounds", LINEAR, FIXED),
        {WIKITEXT: 220 / 212, PG19: 242 / 243},
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "beats_linear",
        "A tree beats a chain: DynaTree is faster than the best linear drafting.",
        "v4 table 1",
        against(SPEED, LINEAR),
        {WIKITEXT: 219.5 / 196.1, PG19: 194.9 / 144.9},
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "beats_fixed",
        "DynaTree is faster than the tuned fixed tree.",
        "v4 table 1",
        against(SPEED, FIXED),
        {WIKITEXT: 219.5 / 200.7, PG19: 194.9 / 185.5},
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "beats_hf",
        "DynaTree is faster than assisted generation of transformers.",
        "v1 section 4.4",
        against(SPEED, (HF,)),
        {WIKITEXT: 193.4 / 161.9},
        doubt={WIKITEXT: "the paper's 161.9 tokens/s are from one prompt; the mean over prompts in the logs is 209.8"},
        length=EARLIER_LENGTH,
    ),
    PaperClaim(
        "faster_than_ar",
        "DynaTree is faster than plain decoding.",
        "v4 table 1",
        against(SPEED, (AR,)),
        {WIKITEXT: 219.5 / 133.4, PG19: 194.9 / 114.8},
        doubt={PG19: f"{DOUBTS['shared-base']}; relative to an undisturbed AR the quotient is 1.44; {DEEPER}"},
    ),
    PaperClaim(
        "lower_ttft",
        "Speculative decoding has a lower time to the first tokens than plain decoding.",
        "v4 section 4.4",
        against("ttft_ms", (AR,)),
        {WIKITEXT: 18.9 / 14.4, PG19: 21.8 / 9.6},
        doubt=dict.fromkeys((WIKITEXT, PG19), DOUBTS["one-prefill"]),
    ),
    PaperClaim(
        "memory",
        "DynaTree takes about 3 % more memory than plain decoding.",
        "v4 table 5",
        memory,
        {WIKITEXT: 6316.1 / 6110.0, PG19: 6359.4 / 6157.7},
        MEMORY,
        below=True,
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "gain_grows",
        "DynaTree's gain over plain decoding grows with the length of the text.",
        "v4 figure 5",
        gain_by_length,
        {WIKITEXT: (218.5 / 132.8) / (116.6 / 83.3)},
        doubt={
            WIKITEXT: "the gain at T=1500 divided by the gain at T=100; at T=100, AR reached 83.3 tokens/s while "
            "others used the GPU, and 127.9 tokens/s in another run"
        },
    ),
    PaperClaim(
        "depth_dominates",
        "Adaptive depth gains more speed than adaptive breadth.",
        "v4 section 4.5",
        depth_over_breadth,
        {WIKITEXT: (213.2 / 186.5) / (186.5 / 188.0)},
        doubt={WIKITEXT: "the numbers of phase 1 are from the authors' logs; no version of the paper has them"},
    ),
    PaperClaim(
        "history_gains",
        "The history rule makes DynaTree faster.",
        "v4 table 4",
        against(SPEED, (PHASE_2,)),
        {WIKITEXT: 218.5 / 213.2},
    ),
    PaperClaim(
        "history_stabilises",
        "The history rule stabilises DynaTree: the speed differs less between prompts.",
        "v4 section 4.5",
        spread,
        {WIKITEXT: 26.1 / 22.2},
    ),
)
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
            yield JudgedClaim(
                name=claim.name,
                says=claim.says,
                source=claim.source,
                data_set=texts_of.title,
                paper=claim.paper.get(there),
                doubt="; ".join(doubts),
                here=here,
                limit=claim.limit,
                below=claim.below,
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
