"""A target model and its draft, without their measured costs, which `decoder.engine` keeps."""

from dataclasses import dataclass, replace

from decoder.errors import ConfigError
from decoder.forward.language_model import LanguageModel
from decoder.heads.protocol import StatesReader
from decoder.models.names import LOOKUP
from decoder.models.tokenizer import TextTokenizer
from decoder.models.translation import Translation


@dataclass(frozen=True)
class Pair:
    """A target model and its draft: a model, a drafting head, or suffix lookup."""

    target: LanguageModel
    draft: LanguageModel | None
    """Draft model; None if a drafting head or suffix lookup drafts (for suffix lookup, `head` is None too)."""
    tokenizer: TextTokenizer
    eos: frozenset[int]
    context: int
    """Context length of the pair, in tokens: the shorter one of the models' context lengths. With a translated draft,
    it is the target's context length; the draft then drafts only while its own context has room.
    """
    head: StatesReader | None = None
    """Drafting head, which drafts from the target's layer states in place of a draft model; None if no head drafts."""
    translation: Translation | None = None
    """Tokens of a draft model with its own tokenizer; None if the draft model shares the target's tokenizer, or if
    there is no draft model.
    """

    @property
    def vocabulary(self) -> int:
        """Number of token ids of a text: the width of the target's logits, whatever the draft has."""
        return self.target.width

    def observed(self) -> "Pair":
        """The same pair, whose models also record their hidden states if they can."""
        return replace(self, target=self.target.observed(), draft=self.draft and self.draft.observed())

    def streaming(self, sinks: int, window: int) -> "Pair":
        """The same pair, in which tokens attend only to the first `sinks` and the latest `window` tokens of a text.

        Raises:
            PairError: The positions of a model are not rotary, or the model caches states or whole paths in place of
                rows.
            ConfigError: The draft has its own tokenizer.
        """
        target, draft = self.target.streaming(sinks, window), self.draft and self.draft_model.streaming(sinks, window)
        return replace(self, target=target, draft=draft)

    @property
    def looks_up(self) -> bool:
        """Whether suffix lookup drafts: the pair has neither a draft model nor a drafting head."""
        return self.draft is None and self.head is None

    @property
    def models(self) -> dict[str, LanguageModel]:
        """Models by role: target, and draft if there is one."""
        return {"target": self.target} | ({"draft": self.draft} if self.draft else {})

    @property
    def draft_model(self) -> LanguageModel:
        """The draft model, for callers that need a draft model with the target's tokens.

        Raises:
            ConfigError: The pair has no draft model, or the draft model has its own tokenizer.
        """
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
        """Whose context that of the pair is, for messages: a model's name in the genitive."""
        names = (model.name for model in self.models.values() if model.context == self.context)
        return f"{next(names, self.target.name)}'s"

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
        """Dtype of the target in words, for example bfloat16 or GGUF Q8_0."""
        return self.target.precision

    @property
    def draft_dtype(self) -> str:
        """Dtype of the draft model or head; the target's dtype if suffix lookup drafts."""
        if self.head:
            return str(self.head.dtype).removeprefix("torch.")
        return (self.draft or self.target).precision
