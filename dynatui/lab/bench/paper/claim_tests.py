"""Tests of the paper's claims on the measured texts. A test returns a quotient, a verdict, and what was compared.

Every claim except losslessness is tested by a quotient of two lanes' results on the same prompts; only texts that equal
the text of `ar` count. A claim holds if the quotient's entire confidence interval lies on the side of the limit that
the claim requires, and does not hold if the entire interval lies on the other side. A claim against several rivals
holds if it holds against every rival, and does not hold if it fails against any rival.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec
import pandas as pd

from decoder.analysis.interval import Interval, Verdict, compared_to_limit
from dynatui.lab.bench.paper.published import AR, DYNATREE, FIXED_BACKBONE, PHASE_1, PHASE_2
from dynatui.lab.bench.paper.records import PaperExperiment, PaperRequest
from dynatui.lab.bench.paper.report import PaperReport, texts
from dynatui.lab.frame import by_prompt, mean, quotients, series, spread_quotient

FEWEST = 5
"""Minimum number of prompts for a verdict; with fewer prompts, the confidence interval is not meaningful."""
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
"""(name in the report, whether lower values are better) of each figure that claims are about."""
MEMORY = 1.035
"""Limit of the memory quotient: below it, the claim of "about 3 % more memory" holds."""


class On(NamedTuple):
    """Texts of one experiment, on which claims are tested."""

    request: PaperRequest
    experiment: PaperExperiment
    every: pd.DataFrame
    """All texts of the experiment."""

    @property
    def same(self) -> pd.DataFrame:
        """Texts of the greatest length, without texts that differ from the text of `ar`."""
        return self.at(-1)

    def at(self, place: int) -> pd.DataFrame:
        return self.every[self.every.same & (self.every.length == self.experiment.lengths[place])]

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
    return share, verdict, f"{'; '.join(parts)}."


def against(figure: str, *kinds: Sequence[str]) -> Test:
    """Test of whether DynaTree is better than every rival; the quotient compares DynaTree with the best rival.

    `kinds` are groups of rows of the paper's tables. The lanes of these rows are the rivals. If a group has no lane,
    the claim is not tested.
    """
    name, less_is_better = FIGURES[figure]

    def test(on: On) -> Result | None:
        own, rivals = on.first(DYNATREE), [on.named(*names) for names in kinds]
        if not own or not all(rivals):
            return None
        names = [*chain.from_iterable(rivals)]
        pairs = {rival: (rival, own[0]) if less_is_better else (own[0], rival) for rival in names}
        prompts = {rival: by_prompt(quotients(on.same, *pair, figure)) for rival, pair in pairs.items()}
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
    if not (pair := on.first(DYNATREE, AR)):
        return None
    (own, plain), on_gpu = pair, on.request.device.startswith("cuda")
    where = "the GPU" if on_gpu else "the process (on a CPU, so not comparable with the memory of a GPU)"
    what = f"Peak memory of {where} with both models loaded: {own} over {plain}"
    here, verdict, tested = _of_quotients(on, quotients(on.same, own, plain, "peak_mb"), what, MEMORY, below=True)
    return here, verdict if on_gpu else "cannot tell", tested


def gain_by_length(on: On) -> Result | None:
    """For each prompt, the speed-up at the longest length is divided by the speed-up at the shortest length."""
    lengths, pair = on.experiment.lengths, on.first(DYNATREE, AR)
    if not pair or len(lengths) < 2:
        return None
    own, plain = pair
    long, short = (by_prompt(quotients(on.at(place), own, plain, SPEED)) for place in (-1, 0))
    tested = f"Tokens/s of {own} over {plain} at T={lengths[-1]}, divided by the same quotient at T={lengths[0]}"
    return _of_quotients(on, (long / short).dropna(), tested)


def depth_over_breadth(on: On) -> Result | None:
    if not (lanes := on.first(FIXED_BACKBONE, PHASE_1, PHASE_2)):
        return None
    fixed, breadth, depth = lanes
    by_depth, by_breadth = (
        by_prompt(quotients(on.same, *pair, SPEED)) for pair in ((depth, breadth), (breadth, fixed))
    )
    tested = f"Tokens/s of {depth} over {breadth}, divided by tokens/s of {breadth} over {fixed}"
    return _of_quotients(on, (by_depth / by_breadth).dropna(), tested)


def spread(on: On) -> Result | None:
    if not (lanes := on.first(PHASE_2, DYNATREE)):
        return None
    without, with_it = (by_prompt(series(on.same, SPEED, lane=lane)) for lane in lanes)
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


def same_texts(report: PaperReport, experiment: PaperExperiment) -> pd.DataFrame:
    """Texts of the greatest length in an experiment `main`, without texts that differ from the text of `ar`."""
    return next(on.same for on in data_sets(report) if on.experiment == experiment)


def data_sets(report: PaperReport) -> Iterator[On]:
    request, rows = report.header.request, texts(report.header, report.blocks)
    for number, experiment in enumerate(request.experiments):
        if experiment.name == "main" and not rows.empty and (rows.experiment == number).any():
            yield On(request, experiment, rows[rows.experiment == number])
