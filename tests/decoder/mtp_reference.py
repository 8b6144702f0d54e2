"""An MTP layer as transformers' `MtpModel` computes it: over the whole text, without a cache or a tree.

Each new question goes over the whole text once more, and its answer is kept.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import modeling_layers

from tests import reference
from tests.sampled_reference import SampledOracle

HAS_REFERENCE = hasattr(modeling_layers, "MtpModel")
"""Whether this release of transformers has `MtpModel`; 5.19 brought it."""


@dataclass
class MtpOracle(SampledOracle):
    """The reference's view of a target, and of its MTP layer in place of a draft: give the target as `draft` too."""

    _states: dict[reference.Path, Tensor] = field(default_factory=dict)
    _outputs: dict[tuple[reference.Path, int], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = self.target.config
        if not getattr(config, "num_mtp_layers", None):  # families that `MtpModel` reads if told what is in the file
            config.num_mtp_layers, config.mtp_layer_types = 1, ["full_attention"]
        # Its names are looked for by these patterns, in which the layer's number is that of the published checkpoints.
        self.target._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{config.num_hidden_layers}\.", r"^mtp\."]
        self.mtp: Any = modeling_layers.MtpModel.from_pretrained(self.target).to(self.target.dtype).eval()

    def _draft_scores(self, text: reference.Path, drafted: int) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = self.mtp.shared_head(self.output(text, drafted))[0]
            return logits

    def output(self, text: reference.Path, drafted: int) -> Tensor:
        """The layer's last row after a text whose `drafted` last tokens are guesses, shape (1, width)."""
        if (text, drafted) not in self._outputs:
            positions = torch.arange(1, len(text))[None]
            with torch.inference_mode():
                rows = self.mtp.forward_layer(
                    0, self.hidden(text, drafted)[None], positions, None, input_ids=torch.tensor([text[1:]])
                )
            self._outputs[text, drafted] = rows[0, -1:]
        return self._outputs[text, drafted]

    def hidden(self, text: reference.Path, drafted: int) -> Tensor:
        """The target's states before each token of a text but the first; before a guess, the layer's own output."""
        if not drafted:
            return self.states(text[:-1])
        return torch.cat([self.hidden(text[:-1], drafted - 1), self.output(text[:-1], drafted - 1)])

    def states(self, text: reference.Path) -> Tensor:
        """The target's states after its final norm, as a plain module computes them."""
        if text not in self._states:
            with torch.inference_mode():
                output = self.target.base_model(input_ids=torch.tensor([text]), use_cache=False)
            self._states[text] = output.last_hidden_state[0]
        return self._states[text]
