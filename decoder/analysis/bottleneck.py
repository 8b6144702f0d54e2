"""How much faster a method would be without one of its costs or losses if all others stayed as measured, in numbers and
in sentences. The factors are upper limits, not forecasts; their product has no meaning.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from decoder.analysis.metrics import RunFold, Tally, differs_by_design
from decoder.analysis.stalls import Times

Limit: TypeAlias = Literal["agreement", "draft", "verification", "host"]
NO_LIMIT = "None of the known limits applies."


class Span(tuple[float, ...]):
    """Numbers that are formatted as the range from the smallest to the largest."""

    __slots__ = ()

    def __format__(self, form: str) -> str:
        return " to ".join(dict.fromkeys(format(end, form) for end in (min(self), max(self))))


@dataclass(frozen=True)
class Remedy:
    """A remedy in wordings from the longest to the shortest."""

    whole: str
    helps: str
    hint: str


@dataclass(frozen=True)
class Words:
    clause: str
    assumption: str
    line: str
    brief: str
    remedy: Remedy
    settled: Remedy
    """The remedy if trees of another size would not be faster."""


WITHOUT_HOPE = Remedy(
    "another draft (dynatui profile compares candidates); with this draft, --methods ar",
    "another draft, or --methods ar,",
    "another draft",
)
_BETTER_DRAFT = Remedy(
    "a draft that agrees more often (dynatui profile compares candidates)",
    "a better draft",
    "better draft",
)
_FASTER_PATH = Remedy(
    "a faster decoding path if there is one (see dynatui doctor), or larger models, with which this time is a smaller "
    "share of a round",
    "a faster decoding path or larger models",
    "faster path",
)
WORDS: Mapping[Limit, Words] = {
    "agreement": Words(
        clause=(
            "the draft disagrees with the target: {right:.0%} of the {levels:.1f} levels drafted per round are accepted"
        ),
        assumption="if all were accepted",
        line="{right:.0%} of {levels:.2g} drafted levels accepted",
        brief="{right:.0%} of {levels:.2g} levels accepted",
        remedy=Remedy(
            "a draft that agrees more often (dynatui profile compares candidates), or smaller trees",
            "a better draft or smaller trees",
            "better draft",
        ),
        settled=_BETTER_DRAFT,
    ),
    "draft": Words(
        clause="drafting takes {draft:.0%} of a round",
        assumption="if it took no time",
        line="drafting takes {draft:.0%} of a round",
        brief="drafting takes {draft:.0%}",
        remedy=Remedy(
            "a smaller draft, or shallower trees, since each level takes one pass of the draft",
            "a smaller draft or shallower trees",
            "shallower trees",
        ),
        settled=Remedy("a smaller draft", "a smaller draft", "smaller draft"),
    ),
    "verification": Words(
        clause="verification time grows with rows: {rows:.1f} rows take {growth:.2f} times as long as one row",
        assumption="if they took as long as one",
        line="verification grows with rows: {rows:.3g} rows take {growth:.2g}x as long as one",
        brief="{rows:.3g} rows cost {growth:.2g}x one row",
        remedy=Remedy("smaller trees, with fewer nodes a round", "smaller trees", "smaller trees"),
        settled=_BETTER_DRAFT,
    ),
    "host": Words(
        clause="{host:.0%} of a round is spent neither on drafting nor on verification",
        assumption="without that time",
        line="{host:.0%} of a round is neither drafting nor verification",
        brief="{host:.0%} neither drafting nor verification",
        remedy=_FASTER_PATH,
        settled=_FASTER_PATH,
    ),
}
"""Names in braces are replaced by the figures of `_figures`."""


FEWEST_ROUNDS = 5
REPETITIVE = 0.5
"""A smaller share of distinct 8-grams means that the text repeats itself, which inflates all acceptance figures."""
FULL_SPEED = 1.02
"""Two speeds count as equal if their ratio is smaller than this."""


@dataclass(frozen=True)
class Bound:
    limit: Limit
    gain: float
    """Factor by which tokens per second would grow without this limit; at least 1."""


@dataclass(frozen=True)
class Bottleneck:
    tokens_per_round: float
    round_s: float
    levels: float
    """Mean depth of the verified trees."""
    nodes: float
    draft_share: float | None
    verify_share: float | None
    host_share: float | None
    """Share of a round's time that is spent neither on drafting nor on verification."""
    verify_growth: float | None
    """Time of a verification divided by the time of a one-token pass of plain decoding; None without `ar`."""
    break_even: float | None
    """Tokens per round above which the method is faster than plain decoding; None without `ar`."""
    bounds: tuple[Bound, ...]
    distinct_8grams: float | None

    @property
    def speedup(self) -> float | None:
        return self.tokens_per_round / self.break_even if self.break_even else None

    @property
    def repeats(self) -> bool:
        return self.distinct_8grams is not None and self.distinct_8grams < REPETITIVE

    def bound(self, limit: Limit) -> Bound | None:
        return next((bound for bound in self.bounds if bound.limit == limit), None)


def bottleneck(tally: Tally, plain: Tally | None) -> Bottleneck | None:
    """None if the method drafts no nodes, commits no tokens, does not report its trees, or has fewer than
    `FEWEST_ROUNDS` rounds.
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
    """Seconds of a target pass in plain decoding; None if unknown, or if `ar` has fewer than `FEWEST_ROUNDS` rounds."""
    rated = plain.rated if plain and plain.rounds >= FEWEST_ROUNDS else Times()
    return rated.verify_s / rated.rounds if rated.timed_tokens and rated.verify_s else None


def of_method(race: RunFold, method: str) -> Bottleneck | None:
    """Bottleneck of a method; `break_even` is computed from the speed-up over the run's `ar`. None for `ar` itself, and
    on a busy machine, where times do not measure the method.
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
    if rated.draft_s is None or rated.verify_s is None:
        return None
    return rated.decode_s - rated.draft_s - rated.verify_s


def _share(part_s: float | None, whole_s: float) -> float | None:
    return None if part_s is None else part_s / whole_s


def remedy_of(bottleneck: Bottleneck | None, *, settled: bool) -> Remedy | None:
    """`settled`: whether no other tree size would be faster."""
    if bottleneck is None or (limit := main_limit(bottleneck)) is None:
        return None
    if is_hopeless(bottleneck):
        return WITHOUT_HOPE
    return WORDS[limit].settled if settled else WORDS[limit].remedy


def bottleneck_sentences(bottleneck: Bottleneck, method: str, remedy: Remedy | None = None) -> tuple[str, ...]:
    """Sentences on speed, main limit and remedy (None: remedies for the two main limits), and on repetitive text."""
    limit, helps = main_limit(bottleneck), (remedy.whole,) if remedy else remedies(bottleneck)
    sentences = [
        _speed(bottleneck, method),
        NO_LIMIT if limit is None else f"What limits it most: {limited((bottleneck,), limit)}.",
        f"What would help: {'; then '.join(helps) or 'no known remedy'}.",
    ]
    return (*sentences, repeated((bottleneck,))) if bottleneck.repeats else tuple(sentences)


def headline(bottleneck: Bottleneck | None, method: str, remedy: Remedy | None = None) -> tuple[str, ...]:
    """Main limit and remedy in one line, in wordings from the longest to the shortest; empty if no limit is known."""
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


def explained(race: RunFold, method: str, name: str, remedy: Remedy | None = None) -> tuple[str, ...]:
    """`bottleneck_sentences` on a method, called `name`, with a note if the method's text differs from the text of
    `ar`; empty if the bottleneck is unknown.
    """
    bottleneck, figures = of_method(race, method), race.figures().get(method)
    if bottleneck is None or figures is None:
        return ()
    speed, *remedies = bottleneck_sentences(bottleneck, name, remedy)
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
        return f"{method} is {bottleneck.speedup:.2f} times as fast as plain decoding on this text: {cost}."
    if bottleneck.speedup > 1 / FULL_SPEED:
        return f"{method} is as fast as plain decoding on this text: {cost}."
    return f"{method} is slower than plain decoding on this text, at {bottleneck.speedup:.2f} times its speed: {cost}."


def main_limit(bottleneck: Bottleneck) -> Limit | None:
    """The limit with the largest gain; None if this gain is below `FULL_SPEED`."""
    first = bottleneck.bounds[0]
    return first.limit if first.gain >= FULL_SPEED else None


def limited(cases: Sequence[Bottleneck], limit: Limit) -> str:
    """The limit in words; a figure that differs between cases is given as a range."""
    words, figures = WORDS[limit], _figures(cases)
    gain = Span(bound.gain for case in cases if (bound := case.bound(limit)))
    return f"{words.clause.format_map(figures)}; {words.assumption}, decoding would be {gain:.2f} times as fast"


def remedies(bottleneck: Bottleneck) -> tuple[str, ...]:
    if is_hopeless(bottleneck):
        return (WITHOUT_HOPE.whole,)
    return tuple(WORDS[bound.limit].remedy.whole for bound in bottleneck.bounds[:2] if bound.gain >= FULL_SPEED)


def is_hopeless(bottleneck: Bottleneck) -> bool:
    return bottleneck.speedup is not None and bottleneck.speedup <= 1 / FULL_SPEED and bottleneck.tokens_per_round < 2


def repeated(cases: Sequence[Bottleneck]) -> str:
    distinct = Span(case.distinct_8grams for case in cases if case.distinct_8grams is not None)
    return (
        f"Only {distinct:.0%} of the text's 8-grams are distinct: the text repeats itself and is easy to draft, so "
        "other texts would decode more slowly."
    )


def _figures(cases: Sequence[Bottleneck]) -> Mapping[str, Span]:
    """Figures for the names in braces in `WORDS`, except figures that are unknown in any case."""
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
