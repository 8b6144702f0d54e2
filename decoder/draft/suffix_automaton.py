"""Finds repetitions in a text. A guess that continues a repetition is accepted more often than its draft probability
suggests; the longer the repetition, the larger the difference. A suffix automaton (Blumer and others, 1985) finds the
length of the repetition for the text and every path of a tree, in time independent of the text's length.
"""

from collections.abc import Iterable

FAMILIARITIES = 6
"""Number of familiarity classes: repetitions of 0-1, 2-3, 4-7, 8-15, 16-31, and 32 or more tokens."""
SuffixMatch = tuple[int, int]
"""(state, length) of the longest suffix that occurs earlier in the text: a suffix of the text, or of the text followed
by a path of a tree. A state stands for all substrings with the same end positions.
"""
LONGEST = 1 << FAMILIARITIES - 1
FAMILIARITY = tuple(max(1, length.bit_length()) - 1 for length in range(LONGEST + 1))
"""Familiarity class of a repetition, by its length."""


class SuffixAutomaton:
    def __init__(self, text: Iterable[int] = ()) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._shorter = [-1]
        """For each state, its suffix link: the state of the longest suffix in another state; -1 for the root."""
        self._longest = [0]
        self._whole = 0
        self.extend(text)

    @property
    def here(self) -> SuffixMatch:
        state = max(0, self._shorter[self._whole])
        return state, self._longest[state]

    def ahead(self, match: SuffixMatch, tokens: Iterable[int]) -> tuple[list[SuffixMatch], list[int]]:
        """The match after each candidate next token, and the token's familiarity class. The last class is for all other
        tokens: 0 if a candidate continues `match`, otherwise the class of a token that would continue it.
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
        """State of the longest substring of `state` followed by the token. If the token leads to a state that also
        stands for longer substrings, a new state is split off.
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
