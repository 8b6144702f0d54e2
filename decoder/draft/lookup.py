"""Suffix lookup: the tokens that followed earlier occurrences of a text's suffix.

Prompt lookup decoding copies one continuation; SuffixDecoding (arXiv:2411.04975) weights continuations by frequency.
The index holds the positions of each pair of tokens; longer matches are found by comparison with the text. A suffix
tree or automaton with frequency counts is not used: every new token would update the counts of all suffixes, which
takes quadratic time in a text such as "aaaa". This module knows token ids, but neither models nor trees.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from decoder.draft.suffix_automaton import LONGEST

COUNTED = 64
"""Largest number of a suffix's earlier occurrences whose next tokens are counted. If a suffix has more occurrences, the
latest ones are used.
"""
SEARCHED = 4096
"""Longer matches are searched at the earlier occurrences of the text's last two tokens. This is the largest number of
occurrences that are searched; if there are more, the latest ones are used.
"""
SHORTEST = 2
"""Smallest length of a suffix, in tokens; after a match of a single token, guesses are rarely right."""
FORESEEN = 8
"""Length, in tokens, of the chain that is guessed after each suffix in order to compare suffixes: lookup uses the
suffix whose chain has the largest expected number of accepted tokens.
"""
_ROOM = 1024


@dataclass(slots=True)
class Continuation:
    """Continuations of a suffix: the tokens that followed the suffix earlier in the text. The suffix may include a path
    of the tree.
    """

    text: Sequence[int]
    length: int
    """Length of the suffix in tokens, including the path of the tree."""
    places: Sequence[int]
    """Positions of the tokens that followed earlier occurrences of the suffix, the latest position first; not empty."""

    def following(self, most: int) -> list[tuple[int, float]]:
        """The `most` most frequent next tokens, each with its share of the occurrences; equally frequent tokens are
        ordered by their latest occurrence.

        The share is C(child) / C(parent) in SuffixDecoding. The occurrence of the suffix at the end of the text is not
        counted.
        """
        text = self.text
        tokens = [text[place] for place in self.places]
        if tokens.count(tokens[0]) == len(tokens):
            return [(tokens[0], 1.0)]
        return [(token, count / len(tokens)) for token, count in Counter(tokens).most_common(most)]

    def after(self, token: int) -> "Continuation | None":
        """Continuations of the suffix with `token` appended; None if this token never followed the suffix."""
        text, end = self.text, len(self.text) - 1
        places = [place + 1 for place in self.places if place < end and text[place] == token]
        return Continuation(text, self.length + 1, places) if places else None

    def expected_tokens(self) -> float:
        """Expected number of accepted tokens of a chain of up to `FORESEEN` tokens. Each token of the chain is the most
        frequent next token, and is assumed to be accepted with a probability equal to its share.
        """
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
    """Index of a growing text for lookups of its suffixes."""

    def __init__(self, text: Iterable[int] = ()) -> None:
        self._text: list[int] = []
        self._array = np.empty(_ROOM, dtype=np.int32)
        self._pairs = defaultdict[tuple[int, int], list[int]](list)
        """Positions of the second token of each pair of adjacent tokens, ascending."""
        self.extend(text)

    def __len__(self) -> int:
        return len(self._text)

    def extend(self, tokens: Iterable[int]) -> None:
        """Appends tokens to the text."""
        before = len(self._text)
        self._text.extend(tokens)
        for place in range(max(1, before), len(self._text)):
            self._pairs[self._text[place - 1], self._text[place]].append(place)
        if len(self._text) > len(self._array):
            self._array = np.resize(self._array, 2 * len(self._text))
        self._array[before : len(self._text)] = self._text[before:]

    def suffix_continuations(self) -> list[Continuation]:
        """Continuations of each of the text's suffixes, the longest suffix first.

        Of suffixes with the same earlier occurrences, only the longest is listed. Only suffixes of `SHORTEST` to
        `LONGEST` tokens are considered, since acceptance probabilities do not depend on lengths beyond `LONGEST`.
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
        """Continuations of the suffix with the largest `expected_tokens`; if several suffixes are equally good,
        continuations of the longest of these. None if no suffix occurs earlier.
        """
        best, most_expected = None, 0.0
        for ending in self.suffix_continuations():
            if (expected := ending.expected_tokens()) > most_expected:
                best, most_expected = ending, expected
            if most_expected == FORESEEN:
                break
        return best
