"""Tokenizer and token ids of a draft whose tokens differ from the target's; its guesses are translated through text."""

from dataclasses import dataclass

from decoder.models.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Translation:
    """Tokens of a draft model that does not share the target's tokenizer."""

    tokenizer: TextTokenizer
    """The draft's own tokenizer."""
    vocabulary: int
    """Number of token ids that both the draft's tokenizer and its logits have."""
    ends: frozenset[int]
    """End-of-text tokens of the draft."""
