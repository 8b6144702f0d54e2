"""Suffix lookup: the tokens that followed earlier occurrences of a text's suffix, weighted by frequency
(SuffixDecoding, arXiv:2411.04975). The index holds the positions of each pair of tokens, from which longer matches are
found by comparison: a tree or automaton with counts would update those of all suffixes with every token, which is
quadratic in a text such as "aaaa".
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from decoder.draft.suffix_automaton import LONGEST

COUNTED = 64
"""Only this many latest occurrences of a suffix are counted."""
SEARCHED = 4096
"""Only this many latest occurrences of the text's last two tokens are searched for longer matches."""
SHORTEST = 2
"""After a match of a single token, guesses are rarely right."""
FORESEEN = 8
"""Tokens of the chain guessed after each suffix: lookup uses the suffix whose chain has the most expected tokens."""
_ROOM = 1024


@dataclass(slots=True)
class Continuation:
    """The tokens that followed a suffix, which may include a path of the tree, earlier in the text."""

    text: Sequence[int]
    length: int
    places: Sequence[int]
    """Where the tokens after earlier occurrences are, the latest first; not empty."""

    def following(self, most: int) -> list[tuple[int, float]]:
        """The most frequent next tokens with their share, C(child) / C(parent) in SuffixDecoding; of equal ones, the
        latest first.
        """
        text = self.text
        tokens = [text[place] for place in self.places]
        if tokens.count(tokens[0]) == len(tokens):
            return [(tokens[0], 1.0)]
        return [(token, count / len(tokens)) for token, count in Counter(tokens).most_common(most)]

    def after(self, token: int) -> "Continuation | None":
        """None if this token never followed the suffix."""
        text, end = self.text, len(self.text) - 1
        places = [place + 1 for place in self.places if place < end and text[place] == token]
        return Continuation(text, self.length + 1, places) if places else None

    def expected_tokens(self) -> float:
        """Of a chain of most frequent tokens, each accepted with a probability equal to its share."""
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
        """Positions of the second token of each pair."""
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
        """Longest suffix first; of suffixes with the same occurrences, only the longest. Acceptance does not depend on
        lengths beyond `LONGEST`, so that longer ones are not considered.
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
        """That of the most `expected_tokens`, then of the longest suffix; None if no suffix occurs earlier."""
        best, most_expected = None, 0.0
        for ending in self.suffix_continuations():
            if (expected := ending.expected_tokens()) > most_expected:
                best, most_expected = ending, expected
            if most_expected == FORESEEN:
                break
        return best
