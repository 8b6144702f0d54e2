"""A target and a draft that share one tokenizer. What is learnt about them stands in `decoder.engine`."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from decoder.forward.language_model import LanguageModel
from decoder.models.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Pair:
    """A target and a draft that share one tokenizer."""

    target: LanguageModel
    draft: LanguageModel
    tokenizer: TextTokenizer
    vocabulary: int
    """Ids below this are used: the smaller of the two logits widths."""
    eos: frozenset[int]
    context: int
    """Tokens that both models can hold."""

    def known(self, logits: Float[Tensor, "N W"]) -> Float[Tensor, "N V"]:
        """Logits without the ids that only one of the models has."""
        return logits if logits.shape[1] == self.vocabulary else logits[:, : self.vocabulary]

    def observed(self) -> "Pair":
        """The same with hidden rows, where its models can show them."""
        return replace(self, target=self.target.observed(), draft=self.draft.observed())

    def streaming(self, sinks: int, window: int) -> "Pair":
        """The same with models of which each token sees `sinks` first tokens of a text and `window` latest ones.

        Raises:
            PairError: The positions of one are not rotary.
        """
        return replace(self, target=self.target.streaming(sinks, window), draft=self.draft.streaming(sinks, window))

    @property
    def target_name(self) -> str:
        """Hub id or folder name of the target."""
        return self.target.name

    @property
    def draft_name(self) -> str:
        """Hub id or folder name of the draft."""
        return self.draft.name

    @property
    def device(self) -> str:
        """Where both run, for example cuda:0."""
        return str(self.target.device)

    @property
    def dtype(self) -> str:
        """The target's, for example bfloat16."""
        return str(self.target.dtype).removeprefix("torch.")

    @property
    def draft_dtype(self) -> str:
        """The draft's."""
        return str(self.draft.dtype).removeprefix("torch.")
