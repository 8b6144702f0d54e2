"""Suffix lookup: continuations of earlier occurrences of a text's suffix.

What prompt lookup decoding copies, and SuffixDecoding (arXiv:2411.04975) weighs by how often it followed. The places
of each pair of tokens are kept, and compared further in the text itself: counts in a suffix tree or automaton would
have to be raised along all suffixes with every token, which is quadratic in a text such as "aaaa". Knows tokens as
numbers, and neither models nor trees.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from decoder.draft.suffix_automaton import LONGEST

COUNTED = 64
"""Most earlier occurrences of a suffix that count, the latest ones."""
SEARCHED = 4096
"""Most occurrences of the last two tokens that are compared further, the latest ones."""
SHORTEST = 2
"""Least tokens of a suffix: continuations of a single token are right too seldom to be worth a lookup."""
FORESEEN = 8
"""Tokens ahead by which ends of different lengths are compared."""
_ROOM = 1024


@dataclass(slots=True)
class Continuation:
    """Continuations at earlier occurrences of a suffix of the text, or of the text and a path."""

    text: Sequence[int]
    length: int
    """Tokens of that end, path included."""
    places: Sequence[int]
    """Places of the tokens that followed, the latest first; at least one."""

    def following(self, most: int) -> list[tuple[int, float]]:
        """The `most` most frequent next tokens, each with its share of all occurrences; ties by the latest.

        The share is SuffixDecoding's C(child) / C(parent), where what the text ends with does not count.
        """
        text, places = self.text, self.places
        if len(places) == 1:
            return [(text[places[0]], 1.0)]
        counts = Counter(text[place] for place in places)
        return [(token, count / len(places)) for token, count in counts.most_common(most)]

    def after(self, token: int) -> "Continuation | None":
        """Continuations after this next token; None where there are none yet."""
        text, end = self.text, len(self.text) - 1
        places = [place + 1 for place in self.places if place < end and text[place] == token]
        return Continuation(text, self.length + 1, places) if places else None

    def expected_tokens(self) -> float:
        """Expected right tokens among the next `FORESEEN`, taking shares as probabilities.

        Only the most frequent ones are drafted.
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


class Past:
    """A text that grows, in which its own end is looked for."""

    def __init__(self, text: Iterable[int] = ()) -> None:
        self._text: list[int] = []
        self._array = np.empty(_ROOM, dtype=np.int32)
        self._pairs = defaultdict[tuple[int, int], list[int]](list)
        """By two tokens that follow each other: where the second stands, rising."""
        self.extend(text)

    def __len__(self) -> int:
        return len(self._text)

    def extend(self, tokens: Iterable[int]) -> None:
        """The text grows."""
        before = len(self._text)
        self._text.extend(tokens)
        for place in range(max(1, before), len(self._text)):
            self._pairs[self._text[place - 1], self._text[place]].append(place)
        if len(self._text) > len(self._array):
            self._array = np.resize(self._array, 2 * len(self._text))
        self._array[before : len(self._text)] = self._text[before:]

    def endings(self) -> list[Continuation]:
        """Continuations of the text's suffixes, longest suffix first; of suffixes at the same places only the longest.

        A suffix has `SHORTEST` tokens or more; beyond `LONGEST` tokens no probability depends on its length.
        """
        last, tokens = len(self._text) - 1, self._array
        before = self._pairs[self._text[-2], self._text[-1]][-SEARCHED - 1 : -1] if last > 1 else []
        found, places = list[Continuation](), np.array(before, dtype=np.intp)
        for length in range(SHORTEST, LONGEST + 1):
            if not len(places):
                break
            longer = places[places >= length]
            longer = longer[tokens[longer - length] == tokens[last - length]]
            if len(longer) < len(places) or length == LONGEST:
                found.append(Continuation(self._text, length, (places[: -COUNTED - 1 : -1] + 1).tolist()))
            places = longer
        return found[::-1]

    def continuation(self) -> Continuation | None:
        """That of the end which is expected to bring most tokens, ties by the longest; None where there is none."""
        best, most = None, 0.0
        for ending in self.endings():
            if (expected := ending.expected_tokens()) > most:
                best, most = ending, expected
            if most == FORESEEN:
                break
        return best
