"""An MTP layer as transformers' `MtpModel` computes it: over the whole text, without a cache or a tree.

Each row is computed from the whole text before it, and is kept for later calls.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import modeling_layers

from tests import reference
from tests.sampled_reference import SampledOracle

HAS_REFERENCE = hasattr(modeling_layers, "MtpModel")
"""Whether this release of transformers has `MtpModel`, which was added in 5.19."""


@dataclass
class MtpOracle(SampledOracle):
    """Reference for a target that drafts with its own MTP layer; `draft` must be the target."""

    _states: dict[reference.Path, Tensor] = field(default_factory=dict)
    _outputs: dict[tuple[reference.Path, int], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = self.target.config
        # `MtpModel` needs these fields, which the configurations of some families lack.
        usual = {"num_mtp_layers": 1, "mtp_layer_types": ["full_attention"], "mtp_mlp_layer_types": ["sparse"]}
        for field_name, value in usual.items():
            setattr(config, field_name, getattr(config, field_name, None) or value)
        # `MtpModel` finds the weights by these patterns, which have the layer's number in published checkpoints.
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
        """The hidden state before each token of a text except the first: the target's state, or before the `drafted`
        last tokens the layer's own output.
        """
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
