"""Repetition in a text: a guess that continues one is more likely to be accepted than its draft probability suggests,
the more so the longer it is. A suffix automaton (Blumer and others, 1985) finds the length for the text and for every
path of a tree, in time independent of the text's length.
"""

from collections.abc import Iterable

FAMILIARITIES = 6
"""Classes of substrings of 0-1, 2-3, 4-7, 8-15, 16-31, and 32 or more tokens."""
SuffixMatch = tuple[int, int]
"""(state, length) of the longest suffix, of the text or of a path after it, that occurs earlier in the text. A state
stands for all substrings with the same end positions.
"""
LONGEST = 1 << FAMILIARITIES - 1
FAMILIARITY = tuple(max(1, length.bit_length()) - 1 for length in range(LONGEST + 1))
"""Class of a substring, by its length."""


class SuffixAutomaton:
    def __init__(self, text: Iterable[int] = ()) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._shorter = [-1]
        """Suffix link of each state; -1 for the root."""
        self._longest = [0]
        self._whole = 0
        self.extend(text)

    @property
    def here(self) -> SuffixMatch:
        state = max(0, self._shorter[self._whole])
        return state, self._longest[state]

    def ahead(self, match: SuffixMatch, tokens: Iterable[int]) -> tuple[list[SuffixMatch], list[int]]:
        """The match and the class of each candidate next token. The last class is of all others: 0 if a candidate
        continues the match, else that of a token that does.
        """
        start, longest = match
        matches, familiar, rest_class = list[SuffixMatch](), list[int](), FAMILIARITY[min(longest + 1, LONGEST)]
        for token in tokens:
            state, length = start, longest
            # The loop tries shorter and shorter suffixes of the match, down to the empty suffix, until it finds a
            # suffix that the token has followed in the text.
            while (further := self._next[state].get(token)) is None and state:
                state = self._shorter[state]
                length = self._longest[state]
            if further is None:
                further, length = 0, -1
            elif state == start:
                rest_class = 0
            matches.append((further, length + 1))
            familiar.append(FAMILIARITY[min(length + 1, LONGEST)])
        familiar.append(rest_class)
        return matches, familiar

    def extend(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self._append(token)

    def _append(self, token: int) -> None:
        state = self._whole
        self._whole = self._new_state({}, 0, self._longest[state] + 1)
        while state >= 0 and token not in self._next[state]:
            self._next[state][token] = self._whole
            state = self._shorter[state]
        if state >= 0:
            self._shorter[self._whole] = self._split(state, token)

    def _split(self, state: int, token: int) -> int:
        """State of the longest substring of `state` and the token, split off if the token's state also stands for
        longer ones.
        """
        joint, length = self._next[state][token], self._longest[state] + 1
        if self._longest[joint] == length:
            return joint
        clone = self._new_state(dict(self._next[joint]), self._shorter[joint], length)
        self._shorter[joint] = clone
        while state >= 0 and self._next[state].get(token) == joint:
            self._next[state][token] = clone
            state = self._shorter[state]
        return clone

    def _new_state(self, further: dict[int, int], shorter: int, longest: int) -> int:
        self._next.append(further)
        self._shorter.append(shorter)
        self._longest.append(longest)
        return len(self._next) - 1
