"""A target and a draft that share one tokenizer. What is learnt about them stands in `decoder.engine`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from decoder.errors import ConfigError
from decoder.forward.eagle3.head import Head
from decoder.forward.language_model import LanguageModel
from decoder.models.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Pair:
    """A target and a draft that share one tokenizer."""

    target: LanguageModel
    draft: LanguageModel | None
    """The draft model; None where `head` drafts."""
    tokenizer: TextTokenizer
    vocabulary: int
    """Ids below this are used: the smaller of the two logits widths."""
    eos: frozenset[int]
    context: int
    """Tokens that both models can hold."""
    head: Head | None = None
    """What drafts from the target's own states, in place of a draft model."""

    @property
    def models(self) -> Mapping[str, LanguageModel]:
        """Its whole models, by role."""
        return {"target": self.target} | ({"draft": self.draft} if self.draft else {})

    @property
    def draft_model(self) -> LanguageModel:
        """The draft model, for what cannot do without one; raises ConfigError where there is none."""
        if self.draft is None:
            raise ConfigError(
                f"this needs a whole model as draft, and {self.draft_name} is an EAGLE-3 head; name a model by --draft"
            )
        return self.draft

    def known(self, logits: Float[Tensor, "N W"]) -> Float[Tensor, "N V"]:
        """Logits without the ids that only one of the models has."""
        return logits if logits.shape[1] == self.vocabulary else logits[:, : self.vocabulary]

    def observed(self) -> "Pair":
        """The same with hidden rows, where its models can show them."""
        return replace(self, target=self.target.observed(), draft=self.draft_model.observed())

    def streaming(self, sinks: int, window: int) -> "Pair":
        """The same with models of which each token sees `sinks` first tokens of a text and `window` latest ones.

        Raises:
            PairError: The positions of one are not rotary.
        """
        target, draft = (model.streaming(sinks, window) for model in (self.target, self.draft_model))
        return replace(self, target=target, draft=draft)

    @property
    def target_name(self) -> str:
        """Hub id or folder name of the target."""
        return self.target.name

    @property
    def draft_name(self) -> str:
        """Hub id or folder name of the draft."""
        return self._drafting.name

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
        return str(self._drafting.dtype).removeprefix("torch.")

    @property
    def _drafting(self) -> LanguageModel | Head:
        drafting = self.draft or self.head
        assert drafting is not None, "one of them drafts"  # noqa: S101 - a programmer's mistake
        return drafting
