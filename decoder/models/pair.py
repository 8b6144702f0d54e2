"""A target, and a draft that shares its tokenizer or none. What is learnt about them stands in `decoder.engine`."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from decoder.errors import ConfigError
from decoder.forward.eagle3.head import Head
from decoder.forward.language_model import LanguageModel
from decoder.models.names import LOOKUP
from decoder.models.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Pair:
    """A target, and a draft that shares its tokenizer or none."""

    target: LanguageModel
    draft: LanguageModel | None
    """None: `head` drafts, or where that is None too, lookups in the text's own past."""
    tokenizer: TextTokenizer
    vocabulary: int
    """Ids below this are used: the smaller of the logits widths."""
    eos: frozenset[int]
    context: int
    """Tokens that the models can hold."""
    head: Head | None = None
    """EAGLE-3 head, in place of a draft model."""

    def known(self, logits: Float[Tensor, "N W"]) -> Float[Tensor, "N V"]:
        """Logits without the ids that only one of the models has."""
        return logits if logits.shape[1] == self.vocabulary else logits[:, : self.vocabulary]

    def observed(self) -> "Pair":
        """The same with hidden rows, where its models can show them."""
        return replace(self, target=self.target.observed(), draft=self.draft and self.draft.observed())

    def streaming(self, sinks: int, window: int) -> "Pair":
        """The same with models of which each token sees `sinks` first tokens of a text and `window` latest ones.

        Raises:
            PairError: The positions of one are not rotary.
        """
        target, draft = self.target.streaming(sinks, window), self.draft and self.draft.streaming(sinks, window)
        return replace(self, target=target, draft=draft)

    @property
    def models(self) -> dict[str, LanguageModel]:
        """Its models by their roles."""
        return {"target": self.target} | ({"draft": self.draft} if self.draft else {})

    @property
    def draft_model(self) -> LanguageModel:
        """The draft, for what cannot do without one.

        Raises:
            ConfigError: There is none.
        """
        if self.draft is None:
            raise ConfigError(
                f"this needs a whole model as draft, and {self.target.name} is drafted for by {self.draft_name}; "
                "name a model by --draft"
            )
        return self.draft

    @property
    def target_name(self) -> str:
        """Hub id or folder name of the target."""
        return self.target.name

    @property
    def draft_name(self) -> str:
        """Hub id or folder name of the draft, or `LOOKUP`."""
        drafting = self.draft or self.head
        return drafting.name if drafting else LOOKUP

    @property
    def device(self) -> str:
        """Device of the target, for example cuda:0."""
        return str(self.target.device)

    @property
    def dtype(self) -> str:
        """The target's, for example bfloat16."""
        return str(self.target.dtype).removeprefix("torch.")

    @property
    def draft_dtype(self) -> str:
        """The draft's; without one the target's."""
        return str((self.draft or self.head or self.target).dtype).removeprefix("torch.")
