"""A chain of draft tokens, translated through its text into a chain of the target's tokens.

Draft tokens are added one at a time. A target token is certain once a further draft token has left it unchanged, since
the last token of a text may still become part of a longer token. This module knows tokenizers, but neither models nor
noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.draft.retokenized import Following, common_prefix
from decoder.models.text import TextStream


@dataclass(frozen=True)
class Logprob:
    """Log-probability of a token."""

    ranked: float
    """Log-probability that the growth rule uses."""
    own: float
    """The draft's own log-probability; differs from `ranked` if `ranked` is sharpened or includes the
    noise of coupled sampling."""

    def __add__(self, other: "Logprob") -> "Logprob":
        return Logprob(self.ranked + other.ranked, self.own + other.own)


CERTAIN = Logprob(0.0, 0.0)


class TranslatedChain:
    """Target tokens of one round's chain, as far as they are certain.

    A target token's probability is the product of the probabilities of all draft tokens whose text begins within the
    target token. A draft token whose text spans several target tokens counts only in the first of these tokens, where
    the target may first differ from the draft.
    """

    def __init__(self, draft: TextStream, target: TextStream, following: Following) -> None:
        """Begins after a committed text.

        Args:
            draft: Stream that has decoded the text from the draft's tokens.
            target: Stream that has decoded the text from the target's tokens. If the text ends within a character, the
                translation must begin with the tokens of this incomplete character.
            following: Tokenizes, with the target's tokenizer, text that follows the complete characters of the
                committed text.
        """
        self.tokens: list[int] = []
        """Certain target tokens."""
        self.logprobs: list[Logprob] = []
        self.ended = False
        """Whether no further target token can be translated."""
        self._draft, self._target, self._following = draft.copy(), target.copy(), following
        self._begun = tuple(target.waiting)
        self._text, self._length = "", 0
        """Text of the draft tokens, and the number of its characters that the certain target tokens cover."""
        self._starts: list[tuple[int, Logprob]] = []
        """(index of the first character, log-probability) of each draft token not yet included in a target token's
        probability.
        """
        self._possible: Sequence[int] = ()
        """Target tokens of the text so far; the last ones may still change."""

    @property
    def possible(self) -> int:
        """Number of target tokens of the text so far, certain or not."""
        return len(self._possible)

    @property
    def torn(self) -> bool:
        """Whether the text so far ends in an incomplete character."""
        return bool(self._draft.waiting)

    def add(self, token: int, logprob: Logprob) -> None:
        """Adds a draft token; a token without text, for example a special token, ends the chain."""
        start = len(self._text)
        added = self._draft.push([token])
        if not added and not self.torn:
            self.ended = True
            return
        self._starts.append((start, logprob))
        if added:
            self._text += added
            before, self._possible = self._possible, self._translated()
            self._settle(common_prefix(before, self._possible))

    def end(self, token: int | None, logprob: Logprob) -> None:
        """Ends the chain where the draft ends the text; `token` is the target's end-of-text token, None if unknown."""
        self._settle(len(self._possible))
        if token is not None and not self.torn and not self.ended:
            self.tokens.append(token)
            self.logprobs.append(logprob)
        self.ended = True

    def _translated(self) -> Sequence[int]:
        """Target tokens of the text so far, without tokens of an incomplete character that are already committed."""
        tokens = self._following.tokens(self._text)
        begun = len(self._begun)
        if tuple(tokens[:begun]) != self._begun:
            self.ended = True
            return ()
        return tokens[begun:]

    def _settle(self, count: int) -> None:
        """Marks the first `count` target tokens of the text so far as certain. If a token that was already certain has
        changed, the chain ends instead.
        """
        if list(self._possible[: len(self.tokens)]) != self.tokens:
            self.ended = True
            return
        for token in self._possible[len(self.tokens) : count]:
            start = self._length
            self._length += len(self._target.push([token]))
            self.tokens.append(token)
            self.logprobs.append(self._counted(start, self._length))

    def _counted(self, start: int, end: int) -> Logprob:
        """Product of the probabilities of the draft tokens whose text begins before `end` or at `start`. Draft tokens
        that are already included in a target token's probability do not count.
        """
        total = CERTAIN
        while self._starts and (self._starts[0][0] <= start or self._starts[0][0] < end):
            total += self._starts.pop(0)[1]
        return total
