"""The paper's claims as data, and their tests: the paper's own quotient, the same quotient here, and the verdict.

Every claim except losslessness is tested by a quotient of two lanes' results on the same prompts, of texts that equal
the text of `ar`. It holds if the quotient's entire confidence interval lies on the side of the limit that the claim
requires, and does not hold if the entire interval lies on the other side. A claim against several rivals holds if it
holds against each of them, and does not hold if it fails against any.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import msgspec
import pandas as pd

from decoder.analysis.interval import Interval, Verdict, verdict
from dynatui.lab.bench.paper.published import (
    AR,
    DOUBTS,
    DYNATREE,
    EARLIER_LENGTH,
    FIXED,
    FIXED_BACKBONE,
    HF,
    LENGTH,
    LINEAR,
    PG19,
    PHASE_1,
    PHASE_2,
    WIKITEXT,
    marks,
)
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.request import PaperExperiment, PaperRequest
from dynatui.lab.bench.paper.summary import texts
from dynatui.lab.frame import by_prompt, mean, quotients, series, spread_quotient
from dynatui.lab.tables.data import Cell, Column, Printed, Table

FEWEST = 5
"""Minimum number of prompts for a verdict; an interval over fewer prompts is not meaningful."""
PAIRED_DRAWS = 2000
"""Number of bootstrap samples for a mean of quotients."""
SPREAD_COVERAGE = 0.99
"""Nominal coverage of the bootstrap interval for a quotient of standard deviations.

With 5 to 19 normally distributed values, this interval contains the true quotient in 95 to 99 % of cases; an interval
with a nominal coverage of 95 % contains it in only 88 to 94 % of cases.
"""
SPEED = "tokens_per_second"
FIGURES: Mapping[str, tuple[str, bool]] = {
    SPEED: ("Tokens/s", False),
    "tpot_ms": ("Time per token", True),
    "ttft_ms": ("Time to the first tokens", True),
    "rounds": ("Rounds", True),
}
"""Name of a compared figure, and whether less of it is better."""
MEMORY = 1.035
"""Largest memory quotient that still counts as "about 3 % more memory"."""
DEEPER = DOUBTS["deeper-on-pg19"]


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
        return self.name != "lossless"


class On(NamedTuple):
    """Texts of one experiment, on which claims are tested."""

    request: PaperRequest
    experiment: PaperExperiment
    every: pd.DataFrame
    """All texts of the experiment."""

    @property
    def same(self) -> pd.DataFrame:
        """Longest texts, without those that differ from the text of `ar`."""
        return self.at(-1)

    def at(self, place: int) -> pd.DataFrame:
        return self.every[self.every.same & (self.every.length == self.experiment.lengths[place])]

    def named(self, *names: str) -> list[str]:
        """Lanes that correspond to these rows of the paper's tables."""
        lanes = map(self.request.lane, self.experiment.lanes)
        return [lane.name for lane in lanes if lane.paper_name in names and not lane.own_text]

    def first(self, *names: str) -> list[str]:
        """The first lane of each of these rows; empty if a row has none."""
        found = [self.named(name)[:1] for name in names]
        return [*chain.from_iterable(found)] if all(found) else []


class Result(NamedTuple):
    """Outcome of a test, as in `Claim`."""

    here: Interval | None
    verdict: Verdict
    tested: str


class PaperClaim(NamedTuple):
    """Claim of the paper: its text, its test, the paper's quotient, and the limit for a measured quotient."""

    name: str
    says: str
    source: str
    """Version of the paper, and section, table or figure in it."""
    test: "Test"
    paper: Mapping[str, float] = MappingProxyType({})
    """Quotient of the paper's own numbers, by data set."""
    limit: float = 1.0
    """Limit of the quotient: the quotient must be below this limit if `below` is set, and above it otherwise."""
    below: bool = False
    doubt: Mapping[str, str] = MappingProxyType({})
    """Reasons not to rely on the paper's quotient, by data set."""
    length: int = LENGTH
    """Number of new tokens, T, to which the paper's quotient applies."""


Test: TypeAlias = Callable[[On, PaperClaim], Result | None]
"""A test of a claim; None if a lane that it needs was not requested."""


def judged(quotient: Interval | None, prompts: int, limit: float = 1.0, *, below: bool = False) -> Verdict:
    """Verdict on a quotient that must exceed `limit`, or stay below it if `below` is set."""
    return "cannot tell" if prompts < FEWEST else verdict(quotient, limit, below=below)


def _lossless(on: On, _: PaperClaim) -> Result:
    lanes = [
        lane.name
        for lane in map(on.request.lane, on.experiment.lanes)
        if not lane.own_text and lane.family not in ("hf", "ar")
    ]
    every = on.every[on.every.lane.isin(lanes) & (on.every.length == on.experiment.lengths[-1])]
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
    return Result(share, verdict, f"{'; '.join(parts)}.")


def _against(figure: str, *kinds: Sequence[str]) -> Test:
    """Test that DynaTree is better than every lane of these kinds, each given by its rows; each kind needs a lane.

    The shown quotient compares it with the best rival.
    """
    name, less_is_better = FIGURES[figure]

    def test(on: On, claim: PaperClaim) -> Result | None:
        own, rivals = on.first(DYNATREE), [on.named(*names) for names in kinds]
        if not own or not all(rivals):
            return None
        names = [*chain.from_iterable(rivals)]
        pairs = {rival: (rival, own[0]) if less_is_better else (own[0], rival) for rival in names}
        prompts = {rival: by_prompt(quotients(on.same, *pair, figure)) for rival, pair in pairs.items()}
        means = {rival: each for rival in names if (each := _mean(on, prompts[rival]))}
        if not means:
            text = f"both the text of {own[0]} and that of {' or '.join(names)} equal ar's text"
            return Result(None, "cannot tell", f"There is no prompt on which {text}.")
        verdicts = {rival: judged(each, len(prompts[rival]), claim.limit) for rival, each in means.items()}
        better = [rival for rival, one in verdicts.items() if one == "does not hold"]
        shown = better or list(means)
        best = min(shown, key=lambda rival: means[rival].value)
        which = f"rivals{f' that are better than {own[0]}' if better else ''}"
        among = f", where {best} is the best of {len(shown)} {which}" if len(shown) > 1 else ""
        tested = f"{name} of {' over that of '.join(pairs[best])}{among}, on {_count(prompts[best])}."
        if better:
            return Result(means[best], "does not hold", tested)
        holds = all(one == "holds" for one in verdicts.values())
        return Result(means[best], "holds" if holds else "cannot tell", tested)

    return test


def _memory(on: On, claim: PaperClaim) -> Result | None:
    """On a CPU, the peak memory of the process is shown without a verdict."""
    if not (pair := on.first(DYNATREE, AR)):
        return None
    (own, plain), on_gpu = pair, on.request.device.startswith("cuda")
    where = "the GPU" if on_gpu else "the process (on a CPU, so not comparable with the memory of a GPU)"
    what = f"Peak memory of {where} with both models loaded: {own} over {plain}"
    result = _of_quotients(on, claim, quotients(on.same, own, plain, "peak_mb"), what)
    return result if on_gpu else result._replace(verdict="cannot tell")


def _gain_by_length(on: On, claim: PaperClaim) -> Result | None:
    """For each prompt, the speed-up at the longest length is divided by the speed-up at the shortest length."""
    lengths, pair = on.experiment.lengths, on.first(DYNATREE, AR)
    if not pair or len(lengths) < 2:
        return None
    own, plain = pair
    long, short = (by_prompt(quotients(on.at(place), own, plain, SPEED)) for place in (-1, 0))
    tested = f"Tokens/s of {own} over {plain} at T={lengths[-1]}, divided by the same quotient at T={lengths[0]}"
    return _of_quotients(on, claim, (long / short).dropna(), tested)


def _depth_over_breadth(on: On, claim: PaperClaim) -> Result | None:
    if not (lanes := on.first(FIXED_BACKBONE, PHASE_1, PHASE_2)):
        return None
    fixed, breadth, depth = lanes
    by_depth, by_breadth = (
        by_prompt(quotients(on.same, *pair, SPEED)) for pair in ((depth, breadth), (breadth, fixed))
    )
    tested = f"Tokens/s of {depth} over {breadth}, divided by tokens/s of {breadth} over {fixed}"
    return _of_quotients(on, claim, (by_depth / by_breadth).dropna(), tested)


def _spread(on: On, _: PaperClaim) -> Result | None:
    if not (lanes := on.first(PHASE_2, DYNATREE)):
        return None
    without, with_it = (by_prompt(series(on.same, SPEED, lane=lane)) for lane in lanes)
    quotient = spread_quotient(without, with_it, on.request.seed, coverage=SPREAD_COVERAGE)
    prompts = without.index.intersection(with_it.index)
    tested = (
        f"Standard deviation of tokens/s of {' over that of '.join(lanes)}, on {_count(prompts)}. "
        f"The interval covers {SPREAD_COVERAGE:.0%}: with few prompts, an interval for 95 % would be too narrow."
    )
    return Result(quotient, judged(quotient, len(prompts)), tested)


def _of_quotients(on: On, claim: PaperClaim, values: pd.Series, what: str) -> Result:
    quotient, prompts = _mean(on, values), by_prompt(values)
    verdict = judged(quotient, len(prompts), claim.limit, below=claim.below)
    return Result(quotient, verdict, f"{what}, on {_count(prompts)}.")


def _mean(on: On, values: pd.Series) -> Interval | None:
    found = mean(values, on.request.seed, draws=PAIRED_DRAWS)
    return found and msgspec.structs.replace(found, std=None)


def _count(prompts: pd.Series | pd.Index) -> str:
    few = ": too few to tell" if len(prompts) < FEWEST else ""
    return f"{len(prompts)} prompt{'s' * (len(prompts) != 1)}{few}"


CLAIMS = (
    PaperClaim(
        "lossless", "Every method generates the same text as plain greedy decoding.", "v4 section 3.6", _lossless
    ),
    PaperClaim(
        "lowest_tpot",
        "DynaTree takes less time per token than plain decoding, linear drafting and fixed trees.",
        "v4 table 2",
        _against("tpot_ms", (AR,), LINEAR, FIXED),
        {WIKITEXT: 5.30 / 4.59, PG19: 5.55 / 5.30},
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "fewer_rounds",
        "DynaTree needs fewer rounds than linear drafting and fixed trees.",
        "v4 table 3",
        _against("rounds", LINEAR, FIXED),
        {WIKITEXT: 220 / 212, PG19: 242 / 243},
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "beats_linear",
        "A tree beats a chain: DynaTree is faster than the best linear drafting.",
        "v4 table 1",
        _against(SPEED, LINEAR),
        {WIKITEXT: 219.5 / 196.1, PG19: 194.9 / 144.9},
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "beats_fixed",
        "DynaTree is faster than the tuned fixed tree.",
        "v4 table 1",
        _against(SPEED, FIXED),
        {WIKITEXT: 219.5 / 200.7, PG19: 194.9 / 185.5},
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "beats_hf",
        "DynaTree is faster than assisted generation of transformers.",
        "v1 section 4.4",
        _against(SPEED, (HF,)),
        {WIKITEXT: 193.4 / 161.9},
        doubt={WIKITEXT: "the paper's 161.9 tokens/s are from one prompt; the mean over prompts in the logs is 209.8"},
        length=EARLIER_LENGTH,
    ),
    PaperClaim(
        "faster_than_ar",
        "DynaTree is faster than plain decoding.",
        "v4 table 1",
        _against(SPEED, (AR,)),
        {WIKITEXT: 219.5 / 133.4, PG19: 194.9 / 114.8},
        doubt={PG19: f"{DOUBTS['shared-base']}; relative to an undisturbed AR the quotient is 1.44; {DEEPER}"},
    ),
    PaperClaim(
        "lower_ttft",
        "Speculative decoding has a lower time to the first tokens than plain decoding.",
        "v4 section 4.4",
        _against("ttft_ms", (AR,)),
        {WIKITEXT: 18.9 / 14.4, PG19: 21.8 / 9.6},
        doubt=dict.fromkeys((WIKITEXT, PG19), DOUBTS["one-prefill"]),
    ),
    PaperClaim(
        "memory",
        "DynaTree takes about 3 % more memory than plain decoding.",
        "v4 table 5",
        _memory,
        {WIKITEXT: 6316.1 / 6110.0, PG19: 6359.4 / 6157.7},
        MEMORY,
        below=True,
        doubt={PG19: DEEPER},
    ),
    PaperClaim(
        "gain_grows",
        "DynaTree's gain over plain decoding grows with the length of the text.",
        "v4 figure 5",
        _gain_by_length,
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
        _depth_over_breadth,
        {WIKITEXT: (213.2 / 186.5) / (186.5 / 188.0)},
        doubt={WIKITEXT: "the numbers of phase 1 are from the authors' logs; no version of the paper has them"},
    ),
    PaperClaim(
        "history_gains",
        "The history rule makes DynaTree faster.",
        "v4 table 4",
        _against(SPEED, (PHASE_2,)),
        {WIKITEXT: 218.5 / 213.2},
    ),
    PaperClaim(
        "history_stabilises",
        "The history rule stabilises DynaTree: the speed differs less between prompts.",
        "v4 section 4.5",
        _spread,
        {WIKITEXT: 26.1 / 22.2},
    ),
)
"""All claims; quotients are of the numbers of `published`, and those of figure 5 and phase 1 are only in the logs."""


def claims(report: PaperReport) -> list[Claim]:
    """Claims on every data set of the main experiment; claims about lanes that were not measured are left out."""
    return [] if left_out(report) else [claim for on in _data_sets(report) for claim in _tested(on)]


def left_out(report: PaperReport) -> str | None:
    """Reason why no claim is judged; None if claims are judged."""
    if report.header.request.temperature == 0:
        return None
    return "The paper's claims are about greedy decoding; here tokens were sampled, so no claim is judged."


def same_texts(report: PaperReport, experiment: PaperExperiment) -> pd.DataFrame:
    """Longest texts of an experiment of `main`, without those that differ from the text of `ar`."""
    return next(on.same for on in _data_sets(report) if on.experiment == experiment)


def _data_sets(report: PaperReport) -> Iterator[On]:
    request, rows = report.header.request, texts(report.header, report.blocks)
    for number, experiment in enumerate(request.experiments):
        if experiment.name == "main" and not rows.empty and (rows.experiment == number).any():
            yield On(request, experiment, rows[rows.experiment == number])


def _tested(on: On) -> Iterator[Claim]:
    texts_of = on.request.text_set(on.experiment.data_set)
    there = texts_of.stands_for or ""
    for claim in CLAIMS:
        if result := claim.test(on, claim):
            other = f"at T={claim.length}" if claim.length != on.experiment.lengths[-1] else None
            doubts = [doubt for doubt in (other, claim.doubt.get(there)) if doubt and there in claim.paper]
            yield Claim(
                name=claim.name,
                says=claim.says,
                source=claim.source,
                data_set=texts_of.title,
                paper=claim.paper.get(there),
                doubt="; ".join(doubts),
                here=result.here,
                limit=claim.limit,
                below=claim.below,
                verdict=result.verdict,
                tested=result.tested,
            )


def claims_table(these: Iterable[Claim], notes: Sequence[str], why_none: str | None = None) -> Table:
    """Table of the claims; `why_none` is the reason why no claim is judged."""
    judged_claims = list(these)
    known, explained = marks(claim.doubt for claim in judged_claims)

    def row(claim: Claim) -> tuple[Cell, ...]:
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
            Column("the paper says"),
            Column("data"),
            Column("verdict"),
            Column("here", "measured", 3),
            Column("paper", "paper", 3),
            Column("must be"),
            Column("tested by"),
            Column("source"),
        ),
        rows=tuple(map(row, judged_claims)),
        notes=(*explained, *notes),
    )
