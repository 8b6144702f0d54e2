"""Bottleneck of a method, from its figures: how much faster the method could be without one of its costs or losses.

Each bound assumes that one cost is removed and that all other costs stay as measured. So a bound is an upper limit and
not a forecast. The bounds of two costs must not be multiplied. This module knows neither models nor screens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from decoder.analysis.limit_words import NO_LIMIT, WITHOUT_HOPE, WORDS, Limit, Remedy, Span
from decoder.analysis.metrics import Race, Tally, differs_by_design
from decoder.analysis.stalls import Times

FEWEST_ROUNDS = 5
"""Minimum number of rounds that a method needs to get a verdict."""
REPETITIVE = 0.5
"""Share of distinct 8-grams below which a text repeats itself so much that every acceptance figure is inflated."""
FULL_SPEED = 1.02
"""Two speeds count as equal if the ratio of the higher to the lower one is below this number."""


@dataclass(frozen=True)
class Bound:
    """Upper bound of the speed-up that the removal of one limit would give a method."""

    limit: Limit
    gain: float
    """Factor by which the method's tokens per second would grow; at least 1."""


@dataclass(frozen=True)
class Bottleneck:
    """Shares of a method's time, and the limits of its speed."""

    tokens_per_round: float
    round_s: float
    levels: float
    """Mean depth of the verified trees."""
    nodes: float
    """Mean number of drafted nodes of a tree."""
    draft_share: float | None
    """Share of a round's time spent in drafting; None if unknown."""
    verify_share: float | None
    """Share of a round's time spent in verification; None if unknown."""
    host_share: float | None
    """Share of a round's time spent outside drafting and verification; None if unknown."""
    verify_growth: float | None
    """Time of a verification divided by the time of a one-token pass of plain decoding; None if the run has no `ar`."""
    break_even: float | None
    """Tokens per round above which the method is faster than plain decoding; None if the run has no `ar`."""
    bounds: tuple[Bound, ...]
    """An upper bound of the speed-up for each limit, the largest bound first."""
    distinct_8grams: float | None
    """Share of distinct 8-grams of the text; None if unknown."""

    @property
    def speedup(self) -> float | None:
        """Ratio of the method's speed to the speed of plain decoding; None if the run has no `ar`."""
        return self.tokens_per_round / self.break_even if self.break_even else None

    @property
    def repeats(self) -> bool:
        """Whether the text repeats itself so much that its figures say little about other texts."""
        return self.distinct_8grams is not None and self.distinct_8grams < REPETITIVE

    def bound(self, limit: Limit) -> Bound | None:
        """Upper bound of the speed-up from the removal of a limit; None if unknown."""
        return next((bound for bound in self.bounds if bound.limit == limit), None)


def bottleneck(tally: Tally, plain: Tally | None) -> Bottleneck | None:
    """Bottleneck of a method, compared with plain decoding of the same text if `plain` is given.

    Returns:
        None if the method drafts nothing, commits nothing, does not report its trees, or has fewer than `FEWEST_ROUNDS`
        rounds.
    """
    rated = tally.rated
    if tally.rounds < FEWEST_ROUNDS or not (tally.knows_tree and tally.drafted and tally.tokens and rated.decode_s):
        return None
    rounds = tally.rounds
    round_s = rated.decode_s / rated.rounds
    plain_rated = plain.rated if plain and plain.rounds >= FEWEST_ROUNDS else Times()
    plain_s = plain_rated.decode_s / plain_rated.timed_tokens if plain_rated.timed_tokens else None
    one_row_s = plain_pass_s(plain)
    verify_s = None if rated.verify_s is None else rated.verify_s / rated.rounds
    tokens = len(tally.tokens) / rounds
    bounds = sorted(_bounds(tally, tokens, round_s, one_row_s), key=lambda bound: -bound.gain)
    return Bottleneck(
        tokens_per_round=tokens,
        round_s=round_s,
        levels=tally.levels / rounds,
        nodes=tally.drafted / rounds,
        draft_share=_share(rated.draft_s, rated.decode_s),
        verify_share=_share(rated.verify_s, rated.decode_s),
        host_share=_share(_host_s(rated), rated.decode_s),
        verify_growth=verify_s / one_row_s if verify_s is not None and one_row_s else None,
        break_even=round_s / plain_s if plain_s else None,
        bounds=tuple(bounds),
        distinct_8grams=tally.log.distinct / tally.log.runs if tally.log.runs else None,
    )


def plain_pass_s(plain: Tally | None) -> float | None:
    """Mean seconds of a target pass in plain decoding; None if unknown, or after fewer rounds than `FEWEST_ROUNDS`."""
    rated = plain.rated if plain and plain.rounds >= FEWEST_ROUNDS else Times()
    return rated.verify_s / rated.rounds if rated.timed_tokens and rated.verify_s else None


def of_method(race: Race, method: str) -> Bottleneck | None:
    """Bottleneck of a method of a run, compared with the run's `ar` by the speed-up of the run's figures.

    Returns:
        None for `ar` itself, for a method whose bottleneck is unknown, and if the machine was busy, since no time then
        measures the method.
    """
    tally, figures = race.tallies.get(method), race.figures().get(method)
    if tally is None or figures is None or method == "ar" or figures.speedup_reason == "machine busy":
        return None
    found = bottleneck(tally, race.tallies.get("ar"))
    if found is None:
        return None
    return replace(found, break_even=found.tokens_per_round / figures.speedup if figures.speedup else None)


def _bounds(tally: Tally, tokens: float, round_s: float, one_row_s: float | None) -> Iterator[Bound]:
    rated = tally.rated
    yield Bound("agreement", (tally.levels / tally.rounds + 1) / tokens)
    if rated.draft_s is not None:
        yield Bound("draft", _without(rated.draft_s / rated.rounds, round_s))
    if rated.verify_s is not None and one_row_s is not None:
        yield Bound("verification", _without(max(0.0, rated.verify_s / rated.rounds - one_row_s), round_s))
    if (host_s := _host_s(rated)) is not None:
        yield Bound("host", _without(max(0.0, host_s / rated.rounds), round_s))


def _without(part_s: float, round_s: float) -> float:
    return round_s / (round_s - part_s) if part_s < round_s else float("inf")


def _host_s(rated: Times) -> float | None:
    """Total seconds that the rounds spent outside drafting and verification; None if unknown."""
    if rated.draft_s is None or rated.verify_s is None:
        return None
    return rated.decode_s - rated.draft_s - rated.verify_s


def _share(part_s: float | None, whole_s: float) -> float | None:
    return None if part_s is None else part_s / whole_s


def remedy_of(bottleneck: Bottleneck | None, *, settled: bool) -> Remedy | None:
    """Remedy for the main limit; `settled`: trees of another size would not be faster. None if no limit is known."""
    if bottleneck is None or (limit := main_limit(bottleneck)) is None:
        return None
    if is_hopeless(bottleneck):
        return WITHOUT_HOPE
    return WORDS[limit].settled if settled else WORDS[limit].remedy


def verdict(bottleneck: Bottleneck, method: str, remedy: Remedy | None = None) -> tuple[str, ...]:
    """A bottleneck as sentences: speed, main limit, remedy, and a note on repetitive texts. Without a `remedy`, the
    remedies for the two main limits are named.
    """
    limit, helps = main_limit(bottleneck), (remedy.whole,) if remedy else remedies(bottleneck)
    sentences = [
        _speed(bottleneck, method),
        NO_LIMIT if limit is None else f"What limits it most: {limited((bottleneck,), limit)}.",
        f"What would help: {'; then '.join(helps) or 'no known remedy'}.",
    ]
    return (*sentences, repeated((bottleneck,))) if bottleneck.repeats else tuple(sentences)


def headline(bottleneck: Bottleneck | None, method: str, remedy: Remedy | None = None) -> tuple[str, ...]:
    """One line that names a method's main limit and a remedy, in several wordings; without a `remedy`, the remedy for
    the main limit.

    Returns:
        The wordings, the longest first; empty if too little is known or the method has no known limit.
    """
    if bottleneck is None or (limit := main_limit(bottleneck)) is None:
        return ()
    words, figures = WORDS[limit], _figures((bottleneck,))
    line, brief = words.line.format_map(figures), words.brief.format_map(figures)
    remedy = remedy or (WITHOUT_HOPE if is_hopeless(bottleneck) else words.remedy)
    ceiling = f"{words.assumption}: {bottleneck.bounds[0].gain:.2f}x as fast"
    return (
        f"{method}: {line} ({ceiling}); {remedy.helps} would help",
        f"{line} ({ceiling}); {remedy.helps} would help",
        f"{line}; {remedy.helps} would help",
        f"{line}: {remedy.hint}",
        f"{brief}: {remedy.hint}",
        brief,
    )


def explained(race: Race, method: str, name: str, remedy: Remedy | None = None) -> tuple[str, ...]:
    """Verdict on a method of a run, with a note if the method's text differs from the text of `ar`.

    Args:
        race: The run.
        method: One of the run's methods.
        name: Name of the method in the sentences.
        remedy: The only remedy to name; None: the remedies for the two main limits.

    Returns:
        Sentences; empty if there is no bottleneck.
    """
    bottleneck, figures = of_method(race, method), race.figures().get(method)
    if bottleneck is None or figures is None:
        return ()
    speed, *remedies = verdict(bottleneck, name, remedy)
    if figures.first_difference is None:
        return (speed, *remedies)
    how = " by design" if differs_by_design(figures) else ""
    return (
        speed,
        f"Its text differs from the text of ar{how}; the first difference is at token {figures.first_difference}.",
        *remedies,
    )


def _speed(bottleneck: Bottleneck, method: str) -> str:
    if bottleneck.break_even is None or bottleneck.speedup is None:
        return (
            f"{method} commits {bottleneck.tokens_per_round:.2f} tokens per round, and a round takes "
            f"{1000 * bottleneck.round_s:.2f} ms; to see whether {method} is faster, the same run needs at least "
            f"{FEWEST_ROUNDS} rounds of ar, and enough rounds of both for an interval."
        )
    cost = (
        f"a round commits {bottleneck.tokens_per_round:.2f} tokens and takes as long as {bottleneck.break_even:.2f} "
        "tokens of plain decoding"
    )
    if bottleneck.speedup >= FULL_SPEED:
        return f"{method} is {bottleneck.speedup:.2f} times as fast as plain decoding: {cost}."
    if bottleneck.speedup > 1 / FULL_SPEED:
        return f"{method} is as fast as plain decoding: {cost}."
    return f"{method} is slower than plain decoding, at {bottleneck.speedup:.2f} times its speed: {cost}."


def main_limit(bottleneck: Bottleneck) -> Limit | None:
    """Limit with the largest upper bound; None if even this bound's gain is below `FULL_SPEED`."""
    first = bottleneck.bounds[0]
    return first.limit if first.gain >= FULL_SPEED else None


def limited(cases: Sequence[Bottleneck], limit: Limit) -> str:
    """A limit in words, with figures. A figure is one number, or a range if several cases have different numbers."""
    words, figures = WORDS[limit], _figures(cases)
    gain = Span(bound.gain for case in cases if (bound := case.bound(limit)))
    return f"{words.clause.format_map(figures)}; {words.assumption}, decoding would be {gain:.2f} times as fast"


def remedies(bottleneck: Bottleneck) -> tuple[str, ...]:
    """Remedies for the two limits with the largest bounds, in this order; a single remedy if the method is hopeless."""
    if is_hopeless(bottleneck):
        return (WITHOUT_HOPE.whole,)
    return tuple(WORDS[bound.limit].remedy.whole for bound in bottleneck.bounds[:2] if bound.gain >= FULL_SPEED)


def is_hopeless(bottleneck: Bottleneck) -> bool:
    """Whether a method is slower than plain decoding and commits fewer than 2 tokens a round."""
    return bottleneck.speedup is not None and bottleneck.speedup <= 1 / FULL_SPEED and bottleneck.tokens_per_round < 2


def repeated(cases: Sequence[Bottleneck]) -> str:
    """Warning, in one sentence, that the texts repeat themselves."""
    distinct = Span(case.distinct_8grams for case in cases if case.distinct_8grams is not None)
    return (
        f"Only {distinct:.0%} of the text's 8-grams are distinct: the text repeats itself and is easy to draft, so "
        "other texts would decode more slowly."
    )


def _figures(cases: Sequence[Bottleneck]) -> Mapping[str, Span]:
    """Values of the figures that appear in the wordings of limits, by figure name. A figure that is unknown for at
    least one case is left out.
    """
    figures: Mapping[str, Sequence[float | None]] = {
        "levels": [case.levels for case in cases],
        "right": [(case.tokens_per_round - 1) / case.levels for case in cases],
        "rows": [case.nodes + 1 for case in cases],
        "growth": [case.verify_growth for case in cases],
        "draft": [case.draft_share for case in cases],
        "host": [case.host_share for case in cases],
    }
    complete = {name: [figure for figure in values if figure is not None] for name, values in figures.items()}
    return {name: Span(values) for name, values in complete.items() if len(values) == len(cases)}
