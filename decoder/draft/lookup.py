"""Suffix lookup (SuffixDecoding, arXiv:2411.04975): guesses the tokens that followed earlier occurrences of a text's
suffix, ranked by frequency and, if known, the target's sampling noise. Also a proposer that drafts by lookup alone.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from decoder.draft.growth import Children, grow
from decoder.draft.proposer import Proposal, Proposer
from decoder.draft.suffix_automaton import LONGEST
from decoder.sampling.noise import DraftProbabilities, TokenNoise
from decoder.tree import TokenTree
from decoder.tree_rules import Growth, TreeRule

COUNTED = 64
"""Number of latest occurrences of a suffix that are counted."""
SEARCHED = 4096
"""Number of latest occurrences of the text's last two tokens that are searched for longer matches."""
SHORTEST = 2
"""Shortest suffix that is looked up: after a match of a single token, guesses are rarely right."""
FORESEEN = 8
"""Length of the chain guessed after each suffix; lookup uses the suffix whose chain has the most expected tokens."""
_ROOM = 1024


@dataclass(slots=True)
class Continuation:
    """The tokens that followed earlier occurrences of a suffix; the suffix may end with a path of the tree."""

    text: Sequence[int]
    length: int
    places: Sequence[int]
    """Positions of the tokens after earlier occurrences of the suffix, the latest first; not empty."""

    def following(self, most: int) -> list[tuple[int, float]]:
        """The most frequent next tokens with their shares, C(child) / C(parent) in SuffixDecoding; of equally frequent
        tokens, the token that occurred last comes first.
        """
        text = self.text
        tokens = [text[place] for place in self.places]
        if tokens.count(tokens[0]) == len(tokens):
            return [(tokens[0], 1.0)]
        return [(token, count / len(tokens)) for token, count in Counter(tokens).most_common(most)]

    def after(self, token: int) -> "Continuation | None":
        """The continuation after `token`; None if this token never followed the suffix."""
        text, end = self.text, len(self.text) - 1
        places = [place + 1 for place in self.places if place < end and text[place] == token]
        return Continuation(text, self.length + 1, places) if places else None

    def expected_tokens(self) -> float:
        """Expected accepted tokens of the chain of most frequent tokens, with shares as acceptance probabilities."""
        probability, total = 1.0, 0.0
        ahead: Continuation | None = self
        for _ in range(FORESEEN):
            if ahead is None:
                break
            ((token, share),) = ahead.following(1)
            probability *= share
            total += probability
            ahead = ahead.after(token)
        return total


class SuffixIndex:
    def __init__(self, text: Iterable[int] = ()) -> None:
        self._text: list[int] = []
        self._array = np.empty(_ROOM, dtype=np.int32)
        self._pairs = defaultdict[tuple[int, int], list[int]](list)
        """Pair of adjacent tokens -> positions in the text of the second token of the pair."""
        self.extend(text)

    def __len__(self) -> int:
        return len(self._text)

    def extend(self, tokens: Iterable[int]) -> None:
        before = len(self._text)
        self._text.extend(tokens)
        for place in range(max(1, before), len(self._text)):
            self._pairs[self._text[place - 1], self._text[place]].append(place)
        if len(self._text) > len(self._array):
            self._array = np.resize(self._array, 2 * len(self._text))
        self._array[before : len(self._text)] = self._text[before:]

    def suffix_continuations(self) -> list[Continuation]:
        """Continuations of suffixes of the text, the longest suffix first; of suffixes with the same occurrences, only
        the longest. Suffixes above `LONGEST` tokens are left out, since a greater length does not affect acceptance.
        """
        last, tokens = len(self._text) - 1, self._array
        before = self._pairs[self._text[-2], self._text[-1]][-SEARCHED - 1 : -1] if last > 1 else []
        continuations, places = list[Continuation](), np.array(before, dtype=np.intp)
        for length in range(SHORTEST, LONGEST + 1):
            if not len(places):
                break
            longer = places[places >= length]
            longer = longer[tokens[longer - length] == tokens[last - length]]
            if len(longer) < len(places) or length == LONGEST:
                continuations.append(Continuation(self._text, length, (places[: -COUNTED - 1 : -1] + 1).tolist()))
            places = longer
        return continuations[::-1]

    def continuation(self) -> Continuation | None:
        """The continuation with the most `expected_tokens` (ties: the longest suffix); None if no suffix recurs."""
        best, most_expected = None, 0.0
        for ending in self.suffix_continuations():
            if (expected := ending.expected_tokens()) > most_expected:
                best, most_expected = ending, expected
            if most_expected == FORESEEN:
                break
        return best


RANKED = 16


def rank_guesses(ahead: Continuation, position: int, noise: TokenNoise) -> list[tuple[int, float, float]]:
    """Next tokens as (token, log share, log share + noise), best first; `position`: text position of these tokens."""
    following = ahead.following(RANKED)
    tokens = [token for token, _ in following]
    logprobs = [math.log(share) for _, share in following]
    scores = [logprob + more for logprob, more in zip(logprobs, noise(position, tokens), strict=True)]
    return sorted(zip(tokens, logprobs, scores, strict=True), key=lambda guess: -guess[2])


class LookupDrafter(Proposer):
    def __init__(self, probabilities: DraftProbabilities | None = None) -> None:
        """`probabilities` has the target's sampling noise; None if decoding is greedy."""
        self._probabilities = probabilities
        self._past = SuffixIndex()

    def read(self, tokens: Sequence[int]) -> None:
        self._past.extend(tokens)

    def propose(self, text: Sequence[int], rule: TreeRule, room: int) -> Proposal:
        self._past.extend(text[len(self._past) :])
        tree, continuation = TokenTree([text[-1]]), self._past.continuation()
        if continuation is None:
            return Proposal(tree)
        noise = self._probabilities.noise_from(len(text)) if self._probabilities else None
        chosen = grow(tree, rule, _LookupSource(continuation, len(text), noise), room)
        return Proposal(tree if len(chosen) == len(tree) else tree.subtree(chosen))


class _LookupSource:
    def __init__(self, root: Continuation, position: int, noise: TokenNoise | None) -> None:
        """`root`: continuation after the root; `position`: text position of the root's children."""
        self._after: dict[int, Continuation | None] = {0: root}
        self._position = position
        self._noise = noise

    def __call__(self, tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        return [self._children(tree, node, int(growth.wide)) for node in nodes]

    def _children(self, tree: TokenTree, node: int, count: int) -> Children:
        ahead = self._continuation(tree, node)
        if ahead is None:
            return Children([], [])
        if self._noise:
            return _likeliest(rank_guesses(ahead, self._position + tree.depths[node], self._noise), count)
        following = ahead.following(count)
        return Children([token for token, _ in following], [math.log(share) for _, share in following])

    def _continuation(self, tree: TokenTree, node: int) -> Continuation | None:
        # Trees grow level by level, so the parent's continuation is already known.
        if node not in self._after:
            above = self._after.get(tree.parents[node])
            self._after[node] = above.after(tree.tokens[node]) if above else None
        return self._after[node]


def _likeliest(ranking: Sequence[tuple[int, float, float]], count: int) -> Children:
    """The `count` best tokens; their probabilities are normalised over all ranked tokens."""
    *_, best_score = ranking[0]
    whole = best_score + math.log(sum(math.exp(score - best_score) for *_, score in ranking))
    tokens, logprobs, scores = (list(column) for column in zip(*ranking[:count], strict=True))
    return Children(tokens, [score - whole for score in scores], logprobs)
