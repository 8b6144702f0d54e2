"""What limits a method's speed, from its own figures: how much faster it would be if one cost or one loss were gone.

Every bound takes one thing away and leaves all else as it was measured, so bounds are ceilings, not forecasts, and do
not multiply. Pure; knows neither models nor screens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from decoder.analysis.metrics import Race, Tally, differs_by_design
from decoder.analysis.stalls import Times

Limit: TypeAlias = Literal["agreement", "draft", "verification", "host"]
FEWEST_ROUNDS = 5
"""Of fewer rounds nothing is said."""
REPETITIVE = 0.5
"""With a smaller share of distinct 8-grams, a text repeats itself so much that every acceptance figure is inflated."""
FULL_SPEED = 1.02
"""Under this, a difference of speeds is not worth a word."""


@dataclass(frozen=True)
class Bound:
    """How much faster the method would be without one limit."""

    limit: Limit
    gain: float
    """Factor on its tokens a second, at least 1."""


@dataclass(frozen=True)
class Bottleneck:
    """Where a method's time goes, and what limits it."""

    tokens_per_round: float
    round_s: float
    levels: float
    """Mean depth of the verified trees."""
    nodes: float
    """Mean drafted nodes of a tree."""
    draft_share: float | None
    """Of a round's time, as are the next two; None: not known."""
    verify_share: float | None
    host_share: float | None
    verify_growth: float | None
    """Time of a verification over that of a plain token's pass; None where there is no `ar` beside it."""
    break_even: float | None
    """Tokens a round from which on the method is faster than plain decoding."""
    bounds: tuple[Bound, ...]
    """The largest first."""
    distinct_8grams: float | None

    @property
    def speedup(self) -> float | None:
        """Over plain decoding."""
        return self.tokens_per_round / self.break_even if self.break_even else None

    @property
    def repeats(self) -> bool:
        """Whether the text repeats itself so much that it says little of others."""
        return self.distinct_8grams is not None and self.distinct_8grams < REPETITIVE

    def bound(self, limit: Limit) -> Bound | None:
        """The bound of a limit; None where it cannot be known."""
        return next((bound for bound in self.bounds if bound.limit == limit), None)


def bottleneck(tally: Tally, plain: Tally | None) -> Bottleneck | None:
    """What limits a method, compared with plain decoding of the same text where that is known.

    Returns:
        None for a method that drafts nothing, writes nothing or does not show its trees, and of fewer than
        `FEWEST_ROUNDS` rounds.
    """
    rated = tally.rated
    if tally.rounds < FEWEST_ROUNDS or not (tally.knows_tree and tally.drafted and tally.tokens and rated.decode_s):
        return None
    rounds = tally.rounds
    round_s = rated.decode_s / rated.rounds
    plain_rated = plain.rated if plain and plain.rounds >= FEWEST_ROUNDS else Times()
    plain_s = plain_rated.decode_s / plain_rated.timed_tokens if plain_rated.timed_tokens else None
    plain_pass_s = plain_rated.verify_s / plain_rated.rounds if plain_s is not None and plain_rated.verify_s else None
    verify_s = None if rated.verify_s is None else rated.verify_s / rated.rounds
    tokens = len(tally.tokens) / rounds
    bounds = sorted(_bounds(tally, tokens, round_s, plain_pass_s), key=lambda bound: -bound.gain)
    return Bottleneck(
        tokens_per_round=tokens,
        round_s=round_s,
        levels=tally.levels / rounds,
        nodes=tally.drafted / rounds,
        draft_share=_share(rated.draft_s, rated.decode_s),
        verify_share=_share(rated.verify_s, rated.decode_s),
        host_share=_share(_host_s(rated), rated.decode_s),
        verify_growth=verify_s / plain_pass_s if verify_s is not None and plain_pass_s else None,
        break_even=round_s / plain_s if plain_s else None,
        bounds=tuple(bounds),
        distinct_8grams=tally.log.distinct / tally.log.runs if tally.log.runs else None,
    )


def of_method(race: Race, method: str) -> Bottleneck | None:
    """What limits a method of a run, compared with its `ar`; None where nothing can be said."""
    tally = race.tallies.get(method)
    return None if tally is None or method == "ar" else bottleneck(tally, race.tallies.get("ar"))


def _bounds(tally: Tally, tokens: float, round_s: float, plain_pass_s: float | None) -> Iterator[Bound]:
    rated = tally.rated
    yield Bound("agreement", (tally.levels / tally.rounds + 1) / tokens)
    if rated.draft_s is not None:
        yield Bound("draft", _without(rated.draft_s / rated.rounds, round_s))
    if rated.verify_s is not None and plain_pass_s is not None:
        yield Bound("verification", _without(max(0.0, rated.verify_s / rated.rounds - plain_pass_s), round_s))
    if (host_s := _host_s(rated)) is not None:
        yield Bound("host", _without(max(0.0, host_s / rated.rounds), round_s))


def _without(part_s: float, round_s: float) -> float:
    return round_s / (round_s - part_s) if part_s < round_s else float("inf")


def _host_s(rated: Times) -> float | None:
    """Commit and everything else that is neither drafting nor verification."""
    if rated.draft_s is None or rated.verify_s is None:
        return None
    return rated.decode_s - rated.draft_s - rated.verify_s


def _share(part_s: float | None, whole_s: float) -> float | None:
    return None if part_s is None else part_s / whole_s


def verdict(found: Bottleneck, method: str) -> tuple[str, ...]:
    """The same as sentences: how fast it is, what limits it most, what would help, and whether the text misleads."""
    sentences = [_speed(found, method), _limit(found), _remedy(found)]
    if found.repeats:
        sentences.append(
            f"Only {found.distinct_8grams:.0%} of the text's 8-grams are distinct: it repeats itself, which every "
            "draft guesses, so another text would be slower."
        )
    return tuple(sentences)


def explained(race: Race, method: str, name: str) -> tuple[str, ...]:
    """The verdict on a method of a run, and that the speeds which it compares are those of two texts, where they are.

    Args:
        race: The run.
        method: One of its methods.
        name: What the sentences call it.

    Returns:
        Nothing where nothing can be said.
    """
    found, figures = of_method(race, method), race.figures().get(method)
    if found is None or figures is None:
        return ()
    speed, *others = verdict(found, name)
    if figures.first_difference is None:
        return (speed, *others)
    how = " by design" if differs_by_design(figures) else ""
    return (speed, f"Its text differs from ar's{how} from token {figures.first_difference} on.", *others)


def _speed(found: Bottleneck, method: str) -> str:
    if found.break_even is None or found.speedup is None:
        return (
            f"{method} commits {found.tokens_per_round:.2f} tokens a round of {1000 * found.round_s:.2f} ms; "
            f"beside {FEWEST_ROUNDS} rounds of ar or more, it would show whether that is faster than plain decoding."
        )
    cost = (
        f"a round commits {found.tokens_per_round:.2f} tokens and takes the time of {found.break_even:.2f} plain ones"
    )
    if found.speedup >= FULL_SPEED:
        return f"{method} is {found.speedup:.2f} times as fast as plain decoding: {cost}."
    if found.speedup > 1 / FULL_SPEED:
        return f"{method} is as fast as plain decoding: {cost}."
    return f"{method} is slower than plain decoding, {found.speedup:.2f} of its speed: {cost}."


def _limit(found: Bottleneck) -> str:
    bound = found.bounds[0]
    if bound.gain < FULL_SPEED:
        return "Nothing that is known here limits it."
    match bound.limit:
        case "agreement":
            right = (found.tokens_per_round - 1) / found.levels
            why = f"the draft disagrees: of {found.levels:.1f} levels a round {right:.0%} hold"
            gone = "if every guess held"
        case "draft":
            why = f"drafting takes {found.draft_share:.0%} of a round"
            gone = "if it took no time"
        case "verification":
            why = (
                f"verification grows with rows: {found.nodes + 1:.1f} rows take {found.verify_growth:.2f} times as "
                "long as one"
            )
            gone = "if they took as long as one"
        case "host":
            why = f"{found.host_share:.0%} of a round are neither drafting nor verification"
            gone = "without that"
    return f"What limits it most: {why}; {gone}, it would be {bound.gain:.2f} times as fast."


def _remedy(found: Bottleneck) -> str:
    if found.speedup is not None and found.speedup <= 1 / FULL_SPEED and found.tokens_per_round < 2:
        return "What would help: another draft (dynatui tune --drafts ranks candidates); with this one, --methods ar."
    remedies: dict[Limit, str] = {
        "agreement": "a draft that agrees more (dynatui tune --drafts ranks candidates), or smaller trees, which waste "
        "less",
        "draft": "a smaller draft, or shallower trees, since each level is one pass of it",
        "verification": "smaller trees, with fewer nodes a round",
        "host": "a faster path of rounds where there is one (see dynatui doctor), or larger models, beside which this "
        "time is small",
    }
    others = [bound.limit for bound in found.bounds[:2] if bound.gain >= FULL_SPEED]
    return f"What would help: {'; then '.join(remedies[limit] for limit in others) or 'nothing that is known here'}."
