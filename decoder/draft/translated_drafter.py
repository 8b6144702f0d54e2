"""A proposer with a draft model whose tokenizer is not the target's: it tokenizes the text again for each model."""

import re
import sys
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from decoder.draft.draft_passes import DraftPasses
from decoder.draft.growth import Children
from decoder.draft.model_drafter import LevelDrafter, best_children
from decoder.forward.kv_cache import MORE_ROWS
from decoder.forward.language_model import LanguageModel
from decoder.models.pair import Pair, Translation
from decoder.models.text import TextStream, encoded, first_tokens
from decoder.models.tokenizer import TextTokenizer
from decoder.sampling.noise import Estimate
from decoder.tree import TokenTree
from decoder.tree_rules import Growth

CONTEXT_CHARACTERS = 64
"""Number of preceding characters that are tokenized together with a text."""
OPEN_CHARACTERS, SHORTENED_TO = 512, 128
"""Lengths of the end of a text that is tokenized again with each addition: the maximum, and after shortening."""
_WORD_START = re.compile(r"(?<=\S) (?=\S)")


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common prefix of two sequences, which must have the same type."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:  # nearly always true, and faster than comparing tokens one by one
        return shorter
    return next(place for place in range(shorter) if one[place] != other[place])


class Following:
    """Tokenizes texts that follow the text `before`."""

    def __init__(self, tokenizer: TextTokenizer, before: str = "") -> None:
        self._tokenizer = tokenizer
        self.before = before[-CONTEXT_CHARACTERS:]
        self._known = encoded(tokenizer, self.before)

    def tokens(self, text: str) -> list[int]:
        """Tokens of `text` as a continuation of `before`; if a token would span both texts, tokens of `text` alone."""
        whole, count = encoded(self._tokenizer, self.before + text), len(self._known)
        return whole[count:] if whole[:count] == self._known else encoded(self._tokenizer, text)


class GrowingTokens:
    """Tokens of a growing text. When text is added, only the end of the text is tokenized again."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokens = first_tokens(tokenizer)
        """Tokens of the whole text, after the special tokens with which the tokenizer begins a text."""
        self._tokenizer, self._following = tokenizer, Following(tokenizer)
        self._final, self._open = len(self.tokens), ""
        """Number of tokens at the start that no longer change, and the text of the tokens after them."""

    @property
    def end(self) -> str:
        """The last characters of the text."""
        return (self._following.before + self._open)[-CONTEXT_CHARACTERS:]

    def append(self, text: str) -> None:
        self._open += text
        self.tokens[self._final :] = self._following.tokens(self._open)
        if len(self._open) > OPEN_CHARACTERS:
            last = len(self._open) - SHORTENED_TO
            starts = [found.start() for found in _WORD_START.finditer(self._open, last - SHORTENED_TO, last)]
            start = starts[-1] if starts else last
            first, self._open = self._open[:start], self._open[start:]
            self.tokens[self._final :] = self._following.tokens(first)
            self._final = len(self.tokens)
            self._following = Following(self._tokenizer, self._following.before + first)
            self.tokens += self._following.tokens(self._open)


DRAFTED_A_TOKEN = 8
"""Maximum number of draft tokens per target token of a chain; a draft whose tokens are single bytes may need many."""


class TranslatedDrafter(LevelDrafter):
    """Drafts chains for one text, with a draft model that has its own tokens.

    The last target token of the drafted text may still become part of a longer token, so a token is proposed only when
    another token follows it. Its probability is the product of the probabilities of all draft tokens that begin in it.
    """

    def __init__(self, pair: Pair, draft: LanguageModel, translation: Translation, longest: int) -> None:
        """Begins a text of at most `longest` target tokens."""
        self.passes = DraftPasses(draft, translation.vocabulary, longest)
        self._pair, self._context, self._ends = pair, draft.context, translation.ends
        # Drafting needs each character immediately, even if a later byte could still make its run of bytes invalid.
        self._committed = TextStream(pair.tokenizer, (), longest_run=0)
        self._drafting = TextStream(translation.tokenizer, (), longest_run=0)
        self._own = GrowingTokens(translation.tokenizer)
        self._read = list[int]()
        """The draft's tokens whose keys and values are in the cache."""
        self._taken, self._known = 0, 0
        """Number of target tokens in `_committed`, and approximate number of those that the draft has read."""
        self._drafted, self._text = list[int](), ""
        """The round's draft tokens, and their text."""
        self._tokens, self._logprobs = list[int](), dict[int, tuple[float, float]]()
        """Target tokens of `_text`; (sharpened, own) log-probability of each token in which a draft token begins."""
        self._ended, self._lost = True, False
        """Whether the chain has ended, and whether it has ended because the draft's logits are NaN or infinite."""
        self._ready: Float[Tensor, "1 V"] | None = None
        """Logits after the text, if they were computed before the round's first draft token."""

    @property
    def count(self) -> int:
        return self.passes.count

    @property
    def deepest(self) -> int:
        return sys.maxsize

    def read(self, tokens: Sequence[int]) -> None:
        self._take(tokens)
        if self._has_room(self._own.tokens):
            self._after(self._own.tokens)
            self.passes.count = 0

    def record_choices(self, burst: Sequence[int]) -> None:
        self._known += common_prefix(list(burst), self._tokens)
        self._tokens = []

    def behind(self, text: Sequence[int]) -> int:
        unread = len(text) - self._known
        return max(1, unread) if len(self._own.tokens) + unread < self._context else 0

    def catch_up(self, text: Sequence[int], growth: Growth[float]) -> Children:
        self._begin(text, growth)
        return self._next(0)

    def catch_up_with_guesses(
        self, text: Sequence[int], growth: Growth[float], latest: int
    ) -> tuple[list[Children], list[int]]:
        """See `LevelDrafter`; at positions within the text, guesses and tokens are the draft's own tokens."""
        self._begin(text, growth)
        tokens = self._own.tokens
        if not self._has_room(tokens):
            return [Children([], [])], []
        logits = self._after(tokens, latest)
        self._ready = logits[-1:]
        guesses = best_children(logits[:-1], 1) if len(logits) > 1 else []
        return [*guesses, self._next(0)], tokens[len(tokens) - len(guesses) :]

    def forward_level(self, tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        del growth
        return [self._child(tree, node) for node in nodes]

    def _take(self, tokens: Sequence[int]) -> None:
        self._own.append(self._committed.push(tokens))
        self._known = self._taken = self._taken + len(tokens)

    def _begin(self, text: Sequence[int], growth: Growth[float]) -> None:
        """Begins the round's chain, which stays empty if the text ends within a character."""
        self._take(text[self._taken :])
        self._estimate = Estimate([growth.sharpness]) if growth.sharpness != 1 else None
        self._following = Following(self._pair.tokenizer, self._own.end)
        self._drafting.begin(self._own.tokens)
        self._drafted, self._text, self._tokens, self._logprobs = [], "", [], {}
        self._ended, self._lost, self._ready = bool(self._committed.waiting), False, None

    def _child(self, tree: TokenTree, node: int) -> Children:
        """The token after a node of the chain; none after other nodes, or if tokens of the chain have changed."""
        path = [tree.tokens[ancestor] for ancestor in reversed(tree.ancestors(node)[:-1])]
        children = self._next(len(path))
        return children if path == self._tokens[: len(path)] else Children([], [])

    def _next(self, place: int) -> Children:
        """The chain's token with index `place`; drafts until the chain has a further token or ends."""
        for _ in range(DRAFTED_A_TOKEN * (place + 1) - len(self._drafted)):
            if self._ended or len(self._tokens) > place + 1:
                break
            self._draft_one()
        found = self._tokens[place : place + 1] if self._ended or len(self._tokens) > place + 1 else []
        if not found or found[0] >= self._pair.vocabulary:
            return Children([], [], lost=self._lost)
        ranked, own = self._logprobs.get(place, (0.0, 0.0))
        return Children(found, [ranked], [own] if own != ranked else [])

    def _draft_one(self) -> None:
        tokens = [*self._own.tokens, *self._drafted]
        if not self._has_room(tokens):
            self._ended = True
            return
        logits, self._ready = self._after(tokens) if self._ready is None else self._ready, None
        (best,) = best_children(logits, 1, self._estimate, own=self._estimate is not None)
        if not best.tokens:
            self._ended, self._lost = True, best.lost
            return
        (token,), count = best.tokens, len(self._tokens)
        if token in self._ends:
            self._ended = True
            self._tokens += sorted(self._pair.eos)[:1] if not self._drafting.waiting else []
            self._count(best, count)
            return
        added = self._drafting.push([token])
        self._drafted.append(token)
        if added:
            self._text += added
            self._tokens = self._following.tokens(self._text)
            self._count(best, min(count, len(self._tokens) - 1))
        elif self._drafting.waiting:
            self._count(best, count)
        else:  # a token without text, for example a special token
            self._ended = True

    def _count(self, best: Children, place: int) -> None:
        """Multiplies the probability of the target token at `place` by the probability of a draft token."""
        ranked, own = self._logprobs.get(place, (0.0, 0.0))
        self._logprobs[place] = ranked + best.logprobs[0], own + (best.draft_logprobs or best.logprobs)[0]

    def _has_room(self, tokens: Sequence[int]) -> bool:
        return 0 < len(tokens) < self._context

    def _after(self, tokens: list[int], latest: int = 1) -> Float[Tensor, "N V"]:
        """Logits after the last `latest` of the draft's tokens, or after its unread tokens if they are fewer."""
        self.passes.cache.cut(min(common_prefix(self._read, tokens), len(tokens) - 1))
        self.passes.reserve(-(-len(tokens) // MORE_ROWS) * MORE_ROWS)
        self._read = [*tokens]
        return self.passes.after_latest(tokens, latest)[0] if latest > 1 else self.passes.after_text(tokens)
