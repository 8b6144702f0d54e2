"""Plain Python reference of lookups, which compares every position of the text with the text's end.

It shares only the bounds with the engine's code.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

from decoder.draft.lookup import COUNTED, FORESEEN, RANKED, SHORTEST
from decoder.draft.suffix_automaton import LONGEST
from tests.reference import Margin, Path, Rules, most_probable

Follower = tuple[int, float]
"""A next token, and its share of all continuations."""
Noise = Callable[[int, int], float]
"""(position, token) -> noise added to the logarithm of the token's probability."""


def places(text: Sequence[int], length: int) -> list[int]:
    """Positions after earlier occurrences of the last `length` tokens, the latest first."""
    end = list(text[len(text) - length :])
    found = [place for place in range(length, len(text)) if list(text[place - length : place]) == end]
    return found[::-1][:COUNTED]


def followers(text: Sequence[int], length: int, path: Sequence[int]) -> list[Follower]:
    """Next tokens after the suffix of `length` tokens and a path, the most frequent first, ties by the latest."""
    seen = list[int]()
    for place in places(text, length):
        end = place + len(path)
        if end < len(text) and list(text[place:end]) == list(path):
            seen.append(text[end])
    distinct = list(dict.fromkeys(seen))
    ranked = sorted(distinct, key=lambda token: (-seen.count(token), distinct.index(token)))
    return [(token, seen.count(token) / len(seen)) for token in ranked]


def expected_tokens(text: Sequence[int], length: int) -> float:
    """Expected correct tokens of the most frequent continuation."""
    path, shares = list[int](), list[float]()
    while len(path) < FORESEEN and (found := followers(text, length, path)):
        path.append(found[0][0])
        shares.append(found[0][1])
    return sum(accumulate(shares, lambda one, other: one * other))


def ending(text: Sequence[int]) -> int:
    """Length of the chosen suffix: the one with the most expected tokens, ties by the longest; 0 for none."""
    lengths = [length for length in range(SHORTEST, min(LONGEST, len(text) - 1) + 1) if places(text, length)]
    return max(lengths, key=lambda length: (expected_tokens(text, length), length), default=0)


def chances(found: Sequence[Follower], position: int, noise: Noise | None) -> list[Follower]:
    """Next tokens with the log of their share or, given noise, of their probability to be chosen; best first."""
    if noise is None:
        return [(token, math.log(share)) for token, share in found]
    weights = {token: share * math.exp(noise(position, token)) for token, share in found[:RANKED]}
    whole = sum(weights.values())
    return [(token, math.log(weights[token] / whole)) for token in sorted(weights, key=lambda token: -weights[token])]


def tree(text: Sequence[int], rules: Rules, room: int, noise: Noise | None = None) -> dict[Path, float]:
    """Drafted nodes in breadth-first order, the root first, each with the logarithm of its path probability."""
    length = ending(text)

    def children(node: Path, logp: float) -> dict[Path, float]:
        if not length or len(node) >= min(rules.deepest, room) or not rules.expands(node, logp):
            return {}
        found = chances(followers(text, length, node), len(text) + len(node), noise)
        width = rules.breadth([logprob for _, logprob in found]) if found else 0
        return {(*node, token): logp + logprob for token, logprob in found[:width]}

    grown: dict[Path, float] = {(): 0.0}
    level = dict(grown)
    while level and (rules.best or len(grown) <= rules.n_max):
        below = dict[Path, float]()
        for node, logp in level.items():
            free = len(grown) + len(below)
            found = list(children(node, logp).items())
            below |= dict(found if rules.best else found[: max(0, rules.n_max + 1 - free)])
        level = _best(below, rules.n_max) if rules.best else below
        grown |= level
    del grown[()]
    return {(): 0.0} | (_best(grown, rules.n_max) if rules.best else grown)


def _best(nodes: dict[Path, float], count: int) -> dict[Path, float]:
    kept = most_probable(list(nodes), nodes, count, Margin())
    return {node: nodes[node] for node in kept}
