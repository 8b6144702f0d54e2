"""Survival rates of chains of every length, from one chain drafted at every place (token index) of each text.

At which places rounds begin depends on the length K of the chains: after a round that begins at place t and accepts k
tokens, the next round begins at t + k + 1. So each place is scored once, with a chain of 16, and the rounds of each K
are computed. Given the text, S_i(t) is the probability that the first i tokens drafted at t are accepted (0 or 1 unless
acceptance is random), and r(t) is the expected number of rounds that begin at t:

    r(t + k + 1) += r(t) (S_k(t) - S_k+1(t)) for k < K, and r(t) S_K(t) for k = K
    s_i = sum of r(t) S_i(t) / sum of r(t),  L(K) = 1 + s_1 + ... + s_K

Prefill gives the text's first token, so the first round begins at place 1. A round counts only if the text has K tokens
from its place on, so that no chain reaches beyond the end of a text. This module does not depend on models.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from operator import itemgetter
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from decoder.analysis.interval import quotient_ends
from dynatui.servers.profile_file import Acceptance, Chain, Ends, Grouped, Stopped, Trees

Reals: TypeAlias = NDArray[np.float64]
Whole: TypeAlias = NDArray[np.int64]
FIRST = 1
"""Place of the text at which the first round begins."""
P_MINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
CONTEXTS: Mapping[str, float] = {"<1k": 1 << 10, "<4k": 1 << 12, "<16k": 1 << 14, ">=16k": math.inf}
"""Name of a group of rounds -> upper bound of the number of tokens before its rounds."""
RANKS = (2, 3, 4)
CONTINUED = 4
"""Number of levels of a chain that are judged after a rejected token whose sibling is the target's token."""


@dataclass(frozen=True)
class ScoredPlaces:
    """Chains of at most L tokens that one draft proposes at each of N places of one text, given the text before."""

    accepted: Reals
    """Shape (N, L): probability that a token is accepted if all before it in the chain are; 0 if it is not drafted."""
    drafted: Whole
    """Shape (N,): length of each chain."""
    known: int
    """Number of tokens from place 0 to the end of the text, N or more."""
    context: int
    """Number of tokens before place 0."""
    drawn: Reals | None = None
    """As `accepted`, for tokens drawn from the draft's distribution; None if no tokens were drawn."""
    ranks: Whole | None = None
    """Shape (N, L): rank of the target's token in the draft's distribution, from 1; None without probabilities."""
    confidence: Reals | None = None
    """Shape (N, L): draft probability of each drafted token, accepted or not; None without probabilities."""


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """Expected counts of rounds with chains of one length K; `TextCounts.trees` also uses it for other counts."""

    rounds: float
    accepted: tuple[float, ...]
    """Rounds whose first 1, ..., K tokens were accepted."""
    drafted: tuple[float, ...] = ()
    """Rounds that drafted at least 1, ..., K tokens."""


ByLength: TypeAlias = tuple[Counts, ...]
"""Counts for chains of 1, 2, ... tokens."""


class TextCounts(msgspec.Struct, frozen=True):
    """Counts of one draft on one text."""

    greedy: dict[str, ByLength]
    """Name in `CONTEXTS` -> counts of chains of the draft's most probable tokens."""
    drawn: dict[str, ByLength] | None
    stopped: ByLength
    """Counts of the longest chains if they end before improbable tokens, for each threshold in `P_MINS`."""
    trees: tuple[Counts, Counts] | None
    """First: rounds with a rejected token, and for each of `RANKS`, those in which the draft's token of this rank is
    the target's instead. Second: of all the latter, those whose chain has `CONTINUED` further levels, and of these,
    those whose next 1, 2, ... tokens are the target's too.
    """


def counted(places: ScoredPlaces) -> TextCounts:
    return TextCounts(
        greedy=_by_context(places, places.accepted),
        drawn=None if places.drawn is None else _by_context(places, places.drawn),
        stopped=() if places.confidence is None else tuple(_stopped(places, places.confidence, p) for p in P_MINS),
        trees=None if places.ranks is None else _trees(places, places.ranks),
    )


def _begun_rounds(survival: Reals) -> Reals:
    """Expected number of rounds that begin at each place, shape (N,): r(t) from S_1 to S_K of shape (N, K)."""
    count, k = survival.shape
    ending = -np.diff(survival, axis=1, prepend=1, append=0)
    begun = np.zeros(max(count, FIRST) + k + 1)
    begun[FIRST] = 1
    for place in range(FIRST, count):
        begun[place + 1 : place + k + 2] += begun[place] * ending[place]
    return begun[:count]


def _rows(places: ScoredPlaces, k: int) -> int:
    """Number of places from which a chain of `k` tokens ends within the text."""
    return max(0, min(len(places.accepted), places.known - k + 1))


def _counts(begun: Reals, survival: Reals, lengths: Whole) -> Counts:
    drafts = lengths[:, None] > np.arange(survival.shape[1])
    return Counts(float(begun.sum()), tuple((begun @ survival).tolist()), tuple((begun @ drafts).tolist()))


def _by_context(places: ScoredPlaces, accepted: Reals) -> dict[str, ByLength]:
    survival = accepted.cumprod(axis=1)
    context = np.searchsorted(list(CONTEXTS.values()), places.context + np.arange(len(accepted)), side="right")
    found = dict[str, list[Counts]]()
    for k in range(1, accepted.shape[1] + 1):
        rows = _rows(places, k)
        begun = _begun_rounds(survival[:rows, :k])
        for number, name in enumerate(CONTEXTS):
            within = begun * (context[:rows] == number)
            found.setdefault(name, []).append(_counts(within, survival[:rows, :k], places.drafted[:rows]))
    return {name: tuple(by_length) for name, by_length in found.items() if any(each.rounds for each in by_length)}


def _stopped(places: ScoredPlaces, confidence: Reals, p_min: float) -> Counts:
    longest = confidence.shape[1]
    rows = _rows(places, longest)
    sure = (confidence[:rows] >= p_min).cumprod(axis=1)
    lengths = np.minimum(sure.sum(axis=1), places.drafted[:rows])
    survival = (places.accepted[:rows] * sure).cumprod(axis=1)
    return _counts(_begun_rounds(survival), survival, lengths)


def _trees(places: ScoredPlaces, ranks: Whole) -> tuple[Counts, Counts]:
    longest = ranks.shape[1]
    rows = _rows(places, longest)
    accepted = places.accepted[:rows]
    begun = _begun_rounds(accepted.cumprod(axis=1))
    missed = (accepted < 1).any(axis=1)
    level = (accepted < 1).argmax(axis=1)
    rank = np.where(missed, ranks[np.arange(rows), level], 0)
    goes_on = np.isin(rank, RANKS) & (level + CONTINUED < longest)
    after = np.minimum(level[:, None] + 1 + np.arange(CONTINUED), longest - 1)
    survived = np.take_along_axis(accepted, after, axis=1).cumprod(axis=1)
    siblings = tuple(float(begun @ (rank == each)) for each in RANKS)
    continued = tuple(((begun * goes_on) @ survived).tolist())
    return Counts(float(begun @ missed), siblings), Counts(float(begun @ goes_on), continued)


def grouped(texts: Sequence[Mapping[str, ByLength]], categories: Sequence[str], seed: int) -> Grouped | None:
    """Acceptance over all texts, by context, and by category of the prompts ("" for none); None without a round."""
    whole = [tuple(map(_sum, zip(*text.values(), strict=True))) for text in texts]
    every = _acceptance(whole, seed)
    if every is None:
        return None
    by_category = sorted(zip(categories, whole, strict=True), key=itemgetter(0))
    by_context = [(name, text[name]) for name in CONTEXTS for text in texts if name in text]
    return Grouped(**structs.asdict(every), by_category=_each(by_category, seed), by_context=_each(by_context, seed))


def _each(texts: Iterable[tuple[str, ByLength]], seed: int) -> dict[str, Acceptance]:
    """Acceptance by name; `texts` must be sorted by name, and texts without a name are left out."""
    groups = groupby(texts, key=itemgetter(0))
    found = {name: _acceptance([text for _, text in group], seed) for name, group in groups if name}
    return {name: acceptance for name, acceptance in found.items() if acceptance}


def _sum(counts: Iterable[Counts]) -> Counts:
    rounds, accepted, drafted = zip(*map(structs.astuple, counts), strict=True)
    return Counts(sum(rounds), tuple(np.sum(accepted, axis=0).tolist()), tuple(np.sum(drafted, axis=0).tolist()))


def _acceptance(texts: Sequence[ByLength], seed: int) -> Acceptance | None:
    """Acceptance over `texts`, in which a text without rounds is an empty tuple; None if no text has a round."""
    by_length = ([each for each in same if each.rounds] for same in zip(*filter(None, texts), strict=True))
    chains = [_chain(counts, seed) for counts in takewhile(bool, by_length)]
    return Acceptance(**structs.asdict(chains[-1]), shorter=tuple(chains[:-1])) if chains else None


def _chain(texts: Sequence[Counts], seed: int) -> Chain:
    total = _sum(texts)
    drafted = _rates(total.drafted, total.rounds)
    intervals: tuple[Ends, ...] = ()
    of_length = None
    if len(texts) > 1:
        rounds, accepted = np.array([[each.rounds] for each in texts]), np.array([each.accepted for each in texts])
        columns = np.hstack([accepted, accepted.sum(axis=1, keepdims=True)])
        *ends, (low, high) = quotient_ends(columns, rounds, seed=seed).T.tolist()
        intervals = tuple((min(1.0, low), min(1.0, high)) for low, high in ends)
        of_length = 1 + low, 1 + high
    return Chain(
        rounds=total.rounds,
        survival=_rates(total.accepted, total.rounds),
        intervals=intervals,
        length_interval=of_length,
        drafted=() if np.allclose(drafted, 1) else drafted,
    )


def _rates(part: Sequence[float], whole: float) -> tuple[float, ...]:
    """Shares of `whole`, limited to 1 and to the preceding rate, which rounding errors could exceed."""
    return tuple(np.minimum.accumulate(np.minimum(np.divide(part, whole), 1)).tolist())


def stopped(texts: Sequence[ByLength]) -> tuple[Stopped, ...]:
    totals = zip(P_MINS, map(_sum, zip(*filter(None, texts), strict=True)), strict=False)
    return tuple(
        Stopped(
            p_min=p_min,
            rounds=total.rounds,
            survival=_rates(total.accepted, total.rounds),
            drafted=sum(total.drafted) / total.rounds,
        )
        for p_min, total in totals
        if total.rounds
    )


def trees(texts: Iterable[tuple[Counts, Counts] | None]) -> Trees | None:
    """Rates over all texts; None if no chain has a rejected token."""
    known = [text for text in texts if text and text[0].rounds]
    if not known:
        return None
    missed, continued = (_sum(same) for same in zip(*known, strict=True))
    return Trees(
        mismatches=missed.rounds,
        siblings=tuple(min(1.0, right / missed.rounds) for right in missed.accepted),
        continuation=_rates(continued.accepted, continued.rounds) if continued.rounds else (),
    )
