"""A target model and its draft, without measured costs, which `decoder.engine` adds."""

from dataclasses import dataclass, replace

from decoder.errors import ConfigError
from decoder.forward.language_model import LanguageModel
from decoder.heads.parts import StatesReader
from decoder.models.names import LOOKUP
from decoder.models.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Translation:
    tokenizer: TextTokenizer
    vocabulary: int
    """Number of token ids that both the draft's tokenizer and its logits have."""
    ends: frozenset[int]


@dataclass(frozen=True)
class Pair:
    target: LanguageModel
    draft: LanguageModel | None
    """None if a drafting head or suffix lookup drafts."""
    tokenizer: TextTokenizer
    eos: frozenset[int]
    context: int
    """Smaller context length of the two models, in tokens. With a translated draft, the target's context length; the
    draft then drafts only up to its own context length.
    """
    head: StatesReader | None = None
    """Drafting head, which drafts from the target's layer states in place of a draft model."""
    translation: Translation | None = None
    """Set if the draft model has a tokenizer of its own; else None."""

    @property
    def vocabulary(self) -> int:
        """Width of the target's logits, whatever the draft's width."""
        return self.target.width

    def observed(self) -> "Pair":
        """This pair with models that also record their hidden states, as far as the models support it."""
        return replace(self, target=self.target.observed(), draft=self.draft and self.draft.observed())

    def streaming(self, sinks: int, window: int) -> "Pair":
        """This pair with models whose tokens attend only to the first `sinks` and the latest `window` tokens of a text.

        Raises:
            PairError: A model does not use RoPE, or keeps states or computes whole paths in place of a KV cache.
            ConfigError: The draft has its own tokenizer.
        """
        target, draft = self.target.streaming(sinks, window), self.draft and self.draft_model.streaming(sinks, window)
        return replace(self, target=target, draft=draft)

    @property
    def looks_up(self) -> bool:
        return self.draft is None and self.head is None

    @property
    def models(self) -> dict[str, LanguageModel]:
        """Target and draft model by the roles "target" and "draft"."""
        return {"target": self.target} | ({"draft": self.draft} if self.draft else {})

    @property
    def draft_model(self) -> LanguageModel:
        """The draft model; raises ConfigError if there is none, or it has its own tokenizer."""
        if self.translation:
            raise ConfigError(
                f"a draft with the tokens of {self.target.name} is needed, but {self.draft_name} has a tokenizer of "
                "its own; name a model of the target's family with --draft"
            )
        if self.draft is None:
            raise ConfigError(
                f"a whole model is needed as draft, but the draft of {self.target.name} is {self.draft_name}; "
                "name a model with --draft"
            )
        return self.draft

    @property
    def limit(self) -> str:
        """Genitive of the name of the model whose context length limits the pair, for messages."""
        names = (model.name for model in self.models.values() if model.context == self.context)
        return f"{next(names, self.target.name)}'s"

    @property
    def target_name(self) -> str:
        return self.target.name

    @property
    def draft_name(self) -> str:
        drafting = self.draft or self.head
        return drafting.name if drafting else LOOKUP

    @property
    def device(self) -> str:
        """Name of the target's device, for example cuda:0."""
        return str(self.target.device)

    @property
    def dtype(self) -> str:
        """Precision of the target in words, for example bfloat16 or GGUF Q8_0."""
        return self.target.precision

    @property
    def draft_dtype(self) -> str:
        """Dtype of the draft in words; the target's dtype if suffix lookup drafts."""
        if self.head:
            return str(self.head.dtype).removeprefix("torch.")
        return (self.draft or self.target).precision
