"""A proposer with a draft model that has another tokenizer than the target. It drafts chains, which are translated
through text.

The draft reads the text in its own tokens. When the text grows, nearly all earlier tokens stay the same, and the rows
of these tokens stay in the draft's KV cache. A wrong translation only lowers acceptance, since the target decides every
token. The proposer drafts chains instead of trees, since each further guess after a token would need its own
translation. This module knows nothing of the target's logits.
"""

import math
import sys
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

from decoder.draft.draft_passes import MORE_ROWS
from decoder.draft.growth import Children
from decoder.draft.model_drafter import LevelDrafter, best_children
from decoder.draft.retokenized import CONTEXT_CHARACTERS, Following, GrowingTokens, common_prefix
from decoder.draft.translated_chain import TranslatedChain
from decoder.draft.translated_choice import TokenChoice
from decoder.forward.language_model import LanguageModel
from decoder.models.pair import Pair
from decoder.models.text import TextStream
from decoder.models.translation import Translation
from decoder.sampling.draft_probabilities import DraftProbabilities
from decoder.tree import TokenTree
from decoder.tree_rules import Growth

DRAFTED_A_TOKEN = 8
"""Maximum number of draft tokens per target token of a chain; a draft whose tokens are single bytes may need many."""


class OwnPasses:
    """Forward passes of a draft model over one text in its own tokens."""

    def __init__(self, model: LanguageModel, vocabulary: int, capacity: int) -> None:
        self.cache = model.new_cache(capacity)
        self.count = 0
        """Number of forward passes so far, without prompt passes."""
        self.read: list[int] = []
        """Tokens whose keys and values are in the cache."""
        self._model = model
        self._vocabulary = vocabulary
        self._capacity = capacity

    def has_room(self, tokens: int) -> bool:
        """Whether a text of this length leaves room for another token in the draft's context."""
        return tokens < self._model.context

    def reserve(self, rows: int) -> None:
        """Reserves cache rows."""
        if rows > self._capacity:
            self._capacity = rows
            self.cache.reserve(rows)

    def after(self, tokens: Sequence[int], latest: int = 1) -> Float[Tensor, "N V"]:
        """Logits after the last `latest` tokens of a text, which must not be empty. Tokens that were already read have
        no logits, except that the last token always has logits. Cache rows are kept for the longest common prefix of
        this text and the text of the previous call.
        """
        kept = min(common_prefix(self.read, tokens), len(tokens) - 1)
        self.cache.cut(kept)
        if len(tokens) > self._capacity:
            self.reserve(len(tokens) + MORE_ROWS)
        start = max(kept, len(tokens) - latest)
        if start == len(tokens) - 1:
            logits = self._model.read(self.cache, tokens[kept:])[None]
        else:
            if start > kept:
                self._model.read(self.cache, tokens[kept:start])
            positions = range(start, len(tokens))
            visible = np.tri(len(positions), dtype=np.bool_)
            logits = self._model.forward(self.cache, tokens[start:], positions, visible)
            self.cache.keep(positions)
        self.read[kept:] = tokens[kept:]
        self.count += 1
        return logits[:, : self._vocabulary]


class TranslatedDrafter(LevelDrafter):
    """A `Proposer` of one text; its trees are chains."""

    def __init__(
        self,
        pair: Pair,
        draft: LanguageModel,
        translation: Translation,
        longest: int,
        probabilities: DraftProbabilities | None,
    ) -> None:
        """Begins a text of at most `longest` target tokens; see `ModelDrafter` for `probabilities`."""
        self.passes = OwnPasses(draft, translation.vocabulary, longest)
        self._pair = pair
        self._translation = translation
        self._choice = TokenChoice(pair.tokenizer, translation.tokenizer, pair.vocabulary, probabilities)
        # Guesses need every character at once, even if a later byte could still make its run invalid.
        self._committed = TextStream(pair.tokenizer, (), longest_run=0)
        self._drafting = TextStream(translation.tokenizer, (), longest_run=0)
        self._before = ""
        """Last `CONTEXT_CHARACTERS` characters of the text, without an incomplete character."""
        self._own = GrowingTokens(translation.tokenizer)
        self._taken = 0
        """Number of target tokens that are in `_committed`."""
        self._known = 0
        """Approximate number of target tokens whose text the draft has read."""
        self._drafted: list[int] = []
        """The draft's own tokens that were drafted in this round; they follow the tokens of the text."""
        self._chain: TranslatedChain | None = None
        self._lost = False
        """Whether the round's chain has ended since the draft's logits are NaN or infinite."""
        self._sharpness = 1.0
        """Exponent on the draft's probabilities in the round's chain; see `Growth`."""
        self._ready: Float[Tensor, "1 V"] | None = None
        """Logits after the text, if they were computed before the round's first draft token."""

    def read(self, tokens: Sequence[int]) -> None:
        self._take(tokens)
        if self._own.tokens and self.passes.has_room(len(self._own.tokens)):
            self.passes.after(self._own.tokens)
            self.passes.count = 0

    def record_choices(self, burst: Sequence[int]) -> None:
        if self._chain:
            self._known += common_prefix(burst, self._chain.tokens)
            self._chain = None

    @property
    def count(self) -> int:
        return self.passes.count

    @property
    def deepest(self) -> int:
        return sys.maxsize

    def behind(self, text: Sequence[int]) -> int:
        """See `LevelDrafter`; counts target tokens, since a round without drafting does not translate them."""
        unread = len(text) - self._known
        return max(1, unread) if self.passes.has_room(len(self._own.tokens) + unread) else 0

    def catch_up(self, text: Sequence[int], growth: Growth[float]) -> Children:
        """See `LevelDrafter`; returns one token, or none if the draft's text cannot be translated."""
        self._take(text[self._taken :])
        return self._next(self._begun(growth), 0)

    def catch_up_with_guesses(
        self, text: Sequence[int], growth: Growth[float], latest: int
    ) -> tuple[list[Children], list[int]]:
        """See `LevelDrafter`; the guesses for tokens that the text already has, and these tokens, are the draft's own
        tokens, with one guess per position.
        """
        self._take(text[self._taken :])
        tokens, chain = self._own.tokens, self._begun(growth)
        if not tokens or not self.passes.has_room(len(tokens)):
            return [Children([], [])], []
        logits = self.passes.after(tokens, latest)
        self._ready = logits[-1:]
        guesses = best_children(logits[:-1], 1) if len(logits) > 1 else []
        return [*guesses, self._next(chain, 0)], tokens[len(tokens) - len(guesses) :]

    def forward_level(self, tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        """See `LevelDrafter`; returns one token after the chain's last node, and none after other nodes."""
        del growth
        return [self._after(tree, node) for node in nodes]

    def _begun(self, growth: Growth[float]) -> TranslatedChain:
        """Begins the round's chain after the text."""
        self._sharpness = growth.sharpness
        self._drafted, self._ready, self._lost = [], None, False
        self._drafting.begin(self._own.tokens)
        self._chain = TranslatedChain(self._drafting, self._committed, Following(self._pair.tokenizer, self._before))
        return self._chain

    def _take(self, tokens: Sequence[int]) -> None:
        """Adds committed target tokens to the text."""
        added = self._committed.push(tokens)
        self._taken += len(tokens)
        self._known = self._taken
        self._own.append(added)
        self._before = (self._before + added)[-CONTEXT_CHARACTERS:]

    def _after(self, tree: TokenTree, node: int) -> Children:
        chain, depth = self._chain, tree.depths[node]
        path = [tree.tokens[ancestor] for ancestor in reversed(tree.ancestors(node)[:-1])]
        if chain is None or path != chain.tokens[:depth]:
            return Children([], [])
        return self._next(chain, depth)

    def _next(self, chain: TranslatedChain, place: int) -> Children:
        """The chain's target token at a place; drafts until this token is certain, or until the chain ends."""
        for _ in range(DRAFTED_A_TOKEN * (place + 1) - len(self._drafted)):
            if len(chain.tokens) > place or chain.ended:
                break
            self._draft_one(chain)
        if len(chain.tokens) <= place or chain.tokens[place] >= self._pair.vocabulary:
            return Children([], [], lost=self._lost)
        logprob = chain.logprobs[place]
        own = [logprob.own] if logprob.own != logprob.ranked else []
        return Children([chain.tokens[place]], [logprob.ranked], own)

    def _draft_one(self, chain: TranslatedChain) -> None:
        tokens = [*self._own.tokens, *self._drafted]
        if not tokens or not self.passes.has_room(len(tokens)):
            chain.ended = True
            return
        logits = self.passes.after(tokens) if self._ready is None else self._ready
        self._ready = None
        position = self._taken + chain.possible
        token, logprob = self._choice.best(logits, position, self._sharpness, torn=chain.torn)
        if not math.isfinite(logprob.ranked) or not math.isfinite(logprob.own):
            chain.ended = self._lost = True
            return
        if token in self._translation.ends:
            chain.end(min(self._pair.eos, default=None), logprob)
            return
        self._drafted.append(token)
        chain.add(token, logprob)
