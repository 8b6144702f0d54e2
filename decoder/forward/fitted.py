"""A draft model under the token ids of a target that has more or fewer of them.

Logits get one column for each of the target's ids. An id that the draft lacks is never proposed; where the text has
one, the draft reads another token in its place. Both affect proposals alone: the target decides every token. Knows
neither tokenizers nor trees.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from decoder.forward.kv_cache import Ints, KvCache, Mask
from decoder.forward.language_model import LanguageModel
from decoder.forward.protocol import Forward

NEVER = -1e4
"""Logit of tokens that a draft cannot predict: their probability is 0, but recorded log-probabilities stay finite."""


@dataclass(frozen=True)
class Fit:
    known: int
    width: int
    instead: int
    """The id that the draft reads in place of an id that it lacks."""

    def read(self, tokens: Sequence[int]) -> Sequence[int]:
        return [token if token < self.known else self.instead for token in tokens]

    def read_on_device(self, tokens: Int[Tensor, "N"]) -> Int[Tensor, "N"]:
        """`read` for a tensor, without a wait for the device."""
        return tokens if self.known >= self.width else tokens.masked_fill(tokens >= self.known, self.instead)

    def logits(self, own: Float[Tensor, "*N W"]) -> Float[Tensor, "*N V"]:
        """The draft's logits over the target's ids."""
        lacking = self.width - own.shape[-1]
        return own[..., : self.width] if lacking <= 0 else functional.pad(own, (0, lacking), value=NEVER)


def fit(model: LanguageModel, width: int) -> Fit | None:
    """None if the model has as many ids."""
    return None if model.width == width else Fit(model.width, width, _read_instead(model))


def fitted(model: LanguageModel, width: int) -> Forward:
    conversion = fit(model, width)
    return _Fitted(model, conversion) if conversion else model


def _read_instead(model: LanguageModel) -> int:
    """The first end-of-text token: it ends a part of a text, as most tokens that are added to a model do."""
    named = model.eos if isinstance(model.eos, list) else [model.eos]
    return next((token for token in named if isinstance(token, int) and 0 <= token < model.width), 0)


@dataclass(eq=False)
class _Fitted(Forward):
    model: LanguageModel
    conversion: Fit

    def new_cache(self, capacity: int) -> KvCache:
        return self.model.new_cache(capacity)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        return self.conversion.logits(self.model.forward(cache, self.conversion.read(tokens), positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        return self.conversion.logits(self.model.read(cache, self.conversion.read(tokens)))
