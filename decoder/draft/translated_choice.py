"""Choice of a draft token if draft and target have different tokens: the most probable token, or the token that the
target's sampling noise favours.

The noise belongs to the target's tokens. A draft token has the noise of its twin, the target token with the same text.
A draft token without a twin is chosen only at positions without noise, or if it is the draft's most probable token.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.retokenized import Following
from decoder.draft.translated_chain import Logprob
from decoder.models.text import Pieces
from decoder.models.token_kinds import REPLACEMENT
from decoder.models.tokenizer import TextTokenizer
from decoder.sampling.draft_probabilities import DraftProbabilities

RANKED = 64
"""Number of the draft's most probable tokens among which the noise chooses."""


class TokenChoice:
    """Chooses the next draft token of a chain."""

    def __init__(
        self, target: TextTokenizer, draft: TextTokenizer, vocabulary: int, probabilities: DraftProbabilities | None
    ) -> None:
        """Prepares for one text.

        Args:
            target: The target's tokenizer.
            draft: The draft's tokenizer.
            vocabulary: Number of token ids of the target.
            probabilities: The target's sampling noise, or the draft's own probabilities; None for greedy decoding.
        """
        self._pieces = Pieces(draft)
        self._after_word = Following(target, "a")
        self._vocabulary = vocabulary
        self._probabilities = probabilities
        self._twins: dict[int, int | None] = {}

    def best(self, logits: Float[Tensor, "1 V"], position: int, sharpness: float, *, torn: bool) -> tuple[int, Logprob]:
        """The chosen draft token and its log-probability.

        Args:
            logits: The draft's logits over its own tokens.
            position: Position of the next target token, whose text begins with the draft token.
            sharpness: Exponent on the draft's probabilities where decoding is greedy.
            torn: Whether the draft token continues an incomplete character, for which there is no noise.
        """
        own = logits.log_softmax(-1, torch.float32)[0]
        probabilities = self._probabilities
        if probabilities is None or probabilities.greedy_from(position):
            return _best((logits.float() * sharpness).log_softmax(-1)[0], own)
        if torn:
            return _best(own, own)
        if not probabilities.noisy:
            scores = probabilities.estimate(logits, [position]).scores(logits).log_softmax(-1, torch.float32)[0]
            return _best(scores, scores)
        ranked: list[int] = own.topk(min(RANKED, len(own))).indices.tolist()
        twins = {token: twin for token in ranked if (twin := self.twin(token)) is not None}
        if ranked[0] not in twins:
            return _best(own, own)
        row = logits.new_full((1, self._vocabulary), -torch.inf, dtype=torch.float32)
        draft_ids, target_ids = list(twins), list(twins.values())
        row[0, target_ids] = logits[0, draft_ids].float()
        scores = probabilities.estimate(row, [position]).scores(row).log_softmax(-1, torch.float32)[0, target_ids]
        chosen = int(scores.argmax())
        return draft_ids[chosen], Logprob(float(scores[chosen]), float(own[draft_ids[chosen]]))

    def twin(self, token: int) -> int | None:
        """The target token with the same text as a draft token; None if there is no such token."""
        if token not in self._twins:
            self._twins[token] = self._twin(self._pieces(token))
        return self._twins[token]

    def _twin(self, piece: str) -> int | None:
        if not piece or REPLACEMENT in piece:
            return None
        tokens: Sequence[int] = self._after_word.tokens(piece)
        return tokens[0] if len(tokens) == 1 and tokens[0] < self._vocabulary else None


def _best(scores: Float[Tensor, "V"], own: Float[Tensor, "V"]) -> tuple[int, Logprob]:
    token = int(scores.argmax())
    return token, Logprob(float(scores[token]), float(own[token]))
