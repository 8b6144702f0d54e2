"""How much faster a method would be without one of its costs or losses if all others stayed as measured, in numbers and
in sentences. The factors are upper limits, not forecasts; their product has no meaning.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from decoder.analysis.metrics import RunFold, Tally, differs_by_design
from decoder.analysis.stalls import Times
from decoder.events import Figures

Limit: TypeAlias = Literal["agreement", "draft", "verification", "host"]
NO_LIMIT = "None of the known limits applies."


@dataclass(frozen=True)
class Remedy:
    whole: str
    hint: str
    """The remedy in two or three words."""


@dataclass(frozen=True)
class Words:
    clause: str
    assumption: str
    brief: str
    remedy: Remedy
    settled: Remedy
    """The remedy if trees of another size would not be faster."""


WITHOUT_HOPE = Remedy(
    "another draft (dynatui profile compares candidates); with this draft, --methods ar", "another draft"
)
_BETTER_DRAFT = Remedy("a draft that agrees more often (dynatui profile compares candidates)", "a better draft")
_FASTER_PATH = Remedy(
    "a faster decoding path if there is one (see dynatui doctor), or larger models, with which this time is a smaller "
    "share of a round",
    "a faster path",
)
WORDS: Mapping[Limit, Words] = {
    "agreement": Words(
        clause=(
            "the draft disagrees with the target: {right:.0%} of the {levels:.1f} levels drafted per round are accepted"
        ),
        assumption="if all were accepted",
        brief="{right:.0%} of {levels:.2g} drafted levels accepted",
        remedy=Remedy(f"{_BETTER_DRAFT.whole}, or smaller trees", _BETTER_DRAFT.hint),
        settled=_BETTER_DRAFT,
    ),
    "draft": Words(
        clause="drafting takes {draft:.0%} of a round",
        assumption="if it took no time",
        brief="drafting takes {draft:.0%}",
        remedy=Remedy(
            "a smaller draft, or shallower trees, since each level takes one pass of the draft", "shallower trees"
        ),
        settled=Remedy("a smaller draft", "a smaller draft"),
    ),
    "verification": Words(
        clause="verification time grows with rows: {rows:.1f} rows take {growth:.2f} times as long as one row",
        assumption="if they took as long as one",
        brief="{rows:.3g} rows cost {growth:.2g}x one row",
        remedy=Remedy("smaller trees, with fewer nodes a round", "smaller trees"),
        settled=_BETTER_DRAFT,
    ),
    "host": Words(
        clause="{host:.0%} of a round is spent neither on drafting nor on verification",
        assumption="without that time",
        brief="{host:.0%} neither draft nor target",
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
    """Bottleneck of a method of a race; None for `ar` itself."""
    tally, figures = race.tallies.get(method), race.figures().get(method)
    if tally is None or figures is None or method == "ar":
        return None
    return of_figures(figures, tally, race.tallies.get("ar"))


def of_figures(figures: Figures, tally: Tally, plain: Tally | None) -> Bottleneck | None:
    """Like `bottleneck`, but `break_even` is computed from the speed-up in `figures`. None on a busy machine, where
    times do not measure the method.
    """
    found = None if figures.speedup_reason == "machine busy" else bottleneck(tally, plain)
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
    limit, helps = main_limit(bottleneck), (remedy.whole,) if remedy else _remedies(bottleneck)
    sentences = (
        _speed(bottleneck, method),
        NO_LIMIT if limit is None else f"What limits it most: {_limited(bottleneck, limit)}.",
        f"What would help: {'; then '.join(helps) or 'no known remedy'}.",
    )
    if not bottleneck.repeats:
        return sentences
    return (
        *sentences,
        f"Only {bottleneck.distinct_8grams:.0%} of the text's 8-grams are distinct: the text repeats itself and is easy"
        " to draft, so other texts would decode more slowly.",
    )


def headline(bottleneck: Bottleneck | None, remedy: Remedy | None = None) -> tuple[str, ...]:
    """One line with the main limit and the remedy, in three wordings, the longest first; the shortest has no remedy.

    Empty if no limit is known.
    """
    if bottleneck is None or (limit := main_limit(bottleneck)) is None:
        return ()
    words = WORDS[limit]
    brief = words.brief.format_map(_figures(bottleneck))
    hint = (remedy or (WITHOUT_HOPE if is_hopeless(bottleneck) else words.remedy)).hint
    return (
        f"{brief} ({words.assumption}: {bottleneck.bounds[0].gain:.2f}x as fast); would help: {hint}",
        f"{brief}; try {hint}",
        brief,
    )


def explained(race: RunFold, method: str, name: str, remedy: Remedy | None = None) -> tuple[str, ...]:
    """Sentences on a method of a race, called `name`; empty if its bottleneck is unknown."""
    found, figures = of_method(race, method), race.figures().get(method)
    return with_difference(bottleneck_sentences(found, name, remedy), figures) if found and figures else ()


def with_difference(sentences: tuple[str, ...], figures: Figures, where: str = "") -> tuple[str, ...]:
    """The sentences, with one after the first if the method's text differs from the text of `ar`. `where`: the prompts
    on which it differs.
    """
    if figures.first_difference is None:
        return sentences
    how = " by design" if differs_by_design(figures) else ""
    place = f"the first difference is at token {figures.first_difference}"
    return (sentences[0], f"Its text differs from the text of ar{how}{where}; {place}.", *sentences[1:])


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
    """The limit without which decoding would speed up most; None if that factor is below `FULL_SPEED`."""
    first = bottleneck.bounds[0]
    return first.limit if first.gain >= FULL_SPEED else None


def _limited(bottleneck: Bottleneck, limit: Limit) -> str:
    words, gain = WORDS[limit], bottleneck.bounds[0].gain
    clause = words.clause.format_map(_figures(bottleneck))
    return f"{clause}; {words.assumption}, decoding would be {gain:.2f} times as fast"


def _remedies(bottleneck: Bottleneck) -> tuple[str, ...]:
    if is_hopeless(bottleneck):
        return (WITHOUT_HOPE.whole,)
    return tuple(WORDS[bound.limit].remedy.whole for bound in bottleneck.bounds[:2] if bound.gain >= FULL_SPEED)


def is_hopeless(bottleneck: Bottleneck) -> bool:
    return bottleneck.speedup is not None and bottleneck.speedup <= 1 / FULL_SPEED and bottleneck.tokens_per_round < 2


def _figures(bottleneck: Bottleneck) -> Mapping[str, float | None]:
    """Figures for the names in braces in `WORDS`."""
    return {
        "levels": bottleneck.levels,
        "right": (bottleneck.tokens_per_round - 1) / bottleneck.levels,
        "rows": bottleneck.nodes + 1,
        "growth": bottleneck.verify_growth,
        "draft": bottleneck.draft_share,
        "host": bottleneck.host_share,
    }
