"""Repetition in a text: the length of its longest suffix that occurs in it before.

A guess that continues a repetition is far likelier to be right than its draft probability says, the more so the longer
it is. A suffix automaton (Blumer and others, 1985) gives the length for the text and for every path of a tree, in a
time that does not depend on the length of the text. Knows tokens as numbers, and neither models nor trees.
"""

from collections.abc import Iterable

FAMILIARITIES = 6
"""Kinds of pieces by their length: under 2 tokens, from 2, 4, 8, 16 and 32 tokens on."""
Place = tuple[int, int]
"""The longest end of a text, or of a text and a path, that has been in the text before: the automaton's state, which
stands for all pieces that end at the same places of the text, and the tokens of this piece."""
LONGEST = 1 << FAMILIARITIES - 1
"""Tokens from which on longer pieces are of one kind."""
KINDS = tuple(max(1, length.bit_length()) - 1 for length in range(LONGEST + 1))
"""Familiarity of a piece, by its number of tokens."""


class SuffixAutomaton:
    """All pieces of one text."""

    def __init__(self, text: Iterable[int] = ()) -> None:
        self._next: list[dict[int, int]] = [{}]
        """By state: the state of its pieces with one token more."""
        self._shorter = [-1]
        """By state: that of the longest end of its pieces which is found at further places; -1 for the empty piece."""
        self._longest = [0]
        """By state: tokens of its longest piece."""
        self._whole = 0
        self.extend(text)

    @property
    def here(self) -> Place:
        """At the end of the text."""
        state = max(0, self._shorter[self._whole])
        return state, self._longest[state]

    def ahead(self, place: Place, tokens: Iterable[int]) -> tuple[list[Place], list[int]]:
        """Where each of some next tokens leads: a place a token, and how familiar each token is there.

        Then the likeliest of all others: where none of these goes on as the text did before, another does.
        """
        start, longest = place
        places, familiar, others = list[Place](), list[int](), KINDS[min(longest + 1, LONGEST)]
        for token in tokens:
            state, length = start, longest
            # Ever shorter pieces, down to the empty one, until one was followed by this token.
            while (further := self._next[state].get(token)) is None and state:
                state = self._shorter[state]
                length = self._longest[state]
            if further is None:
                further, length = 0, -1
            elif state == start:
                others = 0
            places.append((further, length + 1))
            familiar.append(KINDS[min(length + 1, LONGEST)])
        familiar.append(others)
        return places, familiar

    def extend(self, tokens: Iterable[int]) -> None:
        """The text grows."""
        for token in tokens:
            self._append(token)

    def _append(self, token: int) -> None:
        state = self._whole
        self._whole = self._new({}, 0, self._longest[state] + 1)
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = self._whole
            state = self._shorter[state]
        if state >= 0:
            self._shorter[self._whole] = self._parted(state, token)

    def _parted(self, state: int, token: int) -> int:
        """The state of this state's longest piece and the token, apart from longer pieces, which end elsewhere too."""
        joint, length = self._next[state][token], self._longest[state] + 1
        if self._longest[joint] == length:
            return joint
        apart = self._new(dict(self._next[joint]), self._shorter[joint], length)
        self._shorter[joint] = apart
        while state >= 0 and self._next[state].get(token) == joint:
            self._next[state][token] = apart
            state = self._shorter[state]
        return apart

    def _new(self, further: dict[int, int], shorter: int, longest: int) -> int:
        self._next.append(further)
        self._shorter.append(shorter)
        self._longest.append(longest)
        return len(self._next) - 1
