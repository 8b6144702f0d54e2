"""A target and a draft that decode together, and what was learnt about them."""

from dataclasses import dataclass, field

import torch

from decoder.draft.tree_size.acceptance_model import Calibration
from decoder.draft.tree_size.cost_model import Costs
from decoder.forward.language_model import LanguageModel
from decoder.models.tokenizer import TextTokenizer
from decoder.session.cuda_graph.slots import Seats


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
    exact: bool = False
    """Whether every method writes what `ar` writes, bit for bit: the target's rows do not depend on each other."""
    seats: Seats = field(default_factory=Seats, compare=False, repr=False)
    """Where texts are decoded on an accelerator."""
    costs: dict[int, Costs] = field(default_factory=dict, compare=False, repr=False)
    """What rounds have cost so far, by the length of the text as a power of two; shared by all texts."""
    threads: int = field(default_factory=torch.get_num_threads, compare=False, repr=False)
    """Most that torch may compute with: as many as it was given before any were tried out."""
    calibration: Calibration = field(default_factory=Calibration, compare=False, repr=False)
    """How likely the draft's guesses are right, as far as is known; shared by all texts."""

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
        """For example bfloat16."""
        return str(self.target.dtype).removeprefix("torch.")
