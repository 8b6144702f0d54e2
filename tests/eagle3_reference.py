"""Slow and plain reference of an EAGLE-3 or P-EAGLE head, written only from the papers and the published layouts.

It computes in numpy and float64, one attention head at a time, without a KV cache or a tree: each new text is computed
from its beginning, and results are kept by text. The target's states are read by hooks on a plain module. No code is
shared with the engine.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests import reference
from tests.sampled_reference import SampledOracle

Rows: TypeAlias = NDArray[np.float64]
NEVER = -1e4


@cache
def turns(count: int, half: int, theta: float) -> NDArray[np.complex128]:
    """Rotary embedding of each position and pair of components as complex factors, shape (count, half)."""
    found: NDArray[np.complex128] = np.exp(1j * np.outer(np.arange(count), theta ** -(np.arange(half) / half)))
    return found


class Checkpoint:
    """Configuration and weights in a folder, in either layout."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.layer = config.get("transformer_layer_config", config)
        self.config = config
        read = load_file(folder / "model.safetensors")
        own = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in read.items()}
        self.weights = {name: own[name] if name == "d2t" else own[name].astype(np.float64) for name in own}

    def flag(self, name: str) -> bool:
        return bool(self.config.get(name, False))

    def norm(self, rows: Rows, name: str) -> Rows:
        scale = np.sqrt((rows**2).mean(-1, keepdims=True) + self.layer["rms_norm_eps"])
        found: Rows = rows / scale * self.weights[f"{name}.weight"]
        return found

    def times(self, rows: Rows, name: str) -> Rows:
        found: Rows = rows @ self.weights[f"{name}.weight"].T
        return found

    def fused(self, states: list[Rows]) -> Rows:
        if self.flag("fc_norm"):
            states = [self.norm(state, f"fc_norm.{place}") for place, state in enumerate(states)]
        side_by_side = np.concatenate(states, -1)
        if self.flag("norm_before_fc"):
            side_by_side = self.norm(side_by_side, "input_norm")
        return self.times(side_by_side, "fc")

    def outputs(self, embedded: Rows, hidden: Rows) -> Rows:
        """Outputs of the last layer for all rows of one text; each row attends to itself and to earlier rows."""
        normed = self.norm(hidden, "layers.0.hidden_norm")
        residual = normed if self.flag("norm_before_residual") else hidden
        given = np.concatenate([self.norm(embedded, "layers.0.input_layernorm"), normed], -1)
        residual = self.after_layer("layers.0", residual, given)
        for number in range(1, self.layer["num_hidden_layers"]):
            name = f"layers.{number}"
            residual = self.after_layer(name, residual, self.norm(residual, f"{name}.input_layernorm"))
        return residual

    def after_layer(self, name: str, residual: Rows, given: Rows) -> Rows:
        residual = residual + self.times(self.attention(name, given), f"{name}.self_attn.o_proj")
        inner = self.norm(residual, f"{name}.post_attention_layernorm")
        gate = self.times(inner, f"{name}.mlp.gate_proj")
        up = self.times(inner, f"{name}.mlp.up_proj")
        return residual + self.times(gate / (1 + np.exp(-gate)) * up, f"{name}.mlp.down_proj")

    def attention(self, name: str, given: Rows) -> Rows:
        heads, kept = self.layer["num_attention_heads"], self.layer["num_key_value_heads"]
        queries, keys, values = (self.times(given, f"{name}.self_attn.{part}_proj") for part in "qkv")
        width, found = queries.shape[1] // heads, []
        for head in range(heads):
            shared = head * kept // heads
            query = self.placed(queries[:, head * width : (head + 1) * width], f"{name}.self_attn.q")
            key = self.placed(keys[:, shared * width : (shared + 1) * width], f"{name}.self_attn.k")
            value = values[:, shared * width : (shared + 1) * width]
            scores = np.where(np.tri(len(given)) > 0, query @ key.T / np.sqrt(width), -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            found.append(weights @ value / weights.sum(-1, keepdims=True))
        return np.concatenate(found, -1)

    def placed(self, rows: Rows, name: str) -> Rows:
        if self.layer.get("model_type") == "qwen3":
            rows = self.norm(rows, f"{name}_norm")
        half = rows.shape[1] // 2
        turned = (rows[:, :half] + 1j * rows[:, half:]) * turns(len(rows), half, self.layer["rope_theta"])
        return np.concatenate([turned.real, turned.imag], -1)

    @property
    def mask_token(self) -> int | None:
        """Token of P-EAGLE's mask rows; None in an EAGLE-3 head."""
        return next((self.config[name] for name in ("mask_token_id", "pard_token") if name in self.config), None)

    def mask_state(self) -> Rows:
        """Hidden state of P-EAGLE's mask rows, shape (1, width)."""
        return self.fused(np.split(self.weights["mask_hidden"][0], 3, -1))

    def logits(self, outputs: Rows) -> Rows:
        """Logits over the target's vocabulary, shape (rows, vocabulary)."""
        own = self.times(self.norm(outputs, "norm"), "lm_head")
        if "d2t" not in self.weights:
            return own
        found = np.full((len(own), self.layer["vocab_size"]), NEVER)
        for index, offset in enumerate(self.weights["d2t"]):
            found[:, index + offset] = own[:, index]
        return found


@dataclass
class Eagle3Oracle(SampledOracle):
    """Reference for a target with an EAGLE-3 or P-EAGLE head as draft; `draft` must be the target."""

    folder: Path = Path()
    _states: dict[reference.Path, list[Rows]] = field(default_factory=dict)
    _hidden: dict[tuple[reference.Path, int], Rows] = field(default_factory=dict)
    _outputs: dict[tuple[reference.Path, int], Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoint = Checkpoint(self.folder)
        config, layers = self.checkpoint.config, self.target.config.num_hidden_layers
        nested = config.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids") or []
        named = config.get("eagle_aux_hidden_state_layer_ids") or [layer + 1 for layer in nested]
        self.layers = named or [2, layers // 2, layers - 3]

    def _draft_scores(self, text: reference.Path, drafted: int) -> torch.Tensor:
        return torch.from_numpy(self.checkpoint.logits(self.output(text, drafted))[0])

    def output(self, text: reference.Path, drafted: int) -> Rows:
        """Last output row of the head after a text whose last `drafted` tokens are guesses, shape (1, width)."""
        if (text, drafted) not in self._outputs:
            tokens = list(text[1:])
            if drafted and self.checkpoint.mask_token is not None:
                tokens[-drafted:] = [self.checkpoint.mask_token] * drafted
            found = self.checkpoint.outputs(self.embedded(tokens), self.hidden(text, drafted))
            self._outputs[text, drafted] = found[-1:]
        return self._outputs[text, drafted]

    def hidden(self, text: reference.Path, drafted: int) -> Rows:
        """Hidden input for each token of a text but the first, shape (tokens - 1, width).

        It is the target's fused states before the token; for a guess, the head's own output (P-EAGLE: the mask state).
        """
        if (text, drafted) not in self._hidden:
            self._hidden[text, drafted] = self._given(text, drafted)
        return self._hidden[text, drafted]

    def _given(self, text: reference.Path, drafted: int) -> Rows:
        if not drafted:
            return self.checkpoint.fused(self.states(text[:-1]))
        if self.checkpoint.mask_token is not None:
            return np.concatenate([self.hidden(text[:-1], drafted - 1), self.checkpoint.mask_state()])
        output = self.output(text[:-1], drafted - 1)
        carried = self.checkpoint.norm(output, "norm") if self.checkpoint.flag("norm_output") else output
        return np.concatenate([self.hidden(text[:-1], drafted - 1), carried])

    def embedded(self, tokens: list[int]) -> Rows:
        own = self.checkpoint.weights.get("embed_tokens.weight")
        rows = self.target.get_input_embeddings().weight.detach().numpy() if own is None else own
        return rows[tokens].astype(np.float64)

    def states(self, text: reference.Path) -> list[Rows]:
        """Inputs of the target layers that the head reads, as a plain module computes them."""
        if text not in self._states:
            self._states[text] = states_of(self.target, self.layers, text)
        return self._states[text]


def states_of(target: Any, layers: list[int], text: reference.Path) -> list[Rows]:
    """Inputs of the given layers of a target over a text, as a plain module computes them."""
    body = target.base_model
    parts = body.h if hasattr(body, "h") else body.layers
    found: list[Rows] = []

    def remember(_part: Any, given: Any) -> None:
        found.append(given[0][0].double().numpy())

    hooks = [parts[layer].register_forward_pre_hook(remember) for layer in layers]
    with torch.inference_mode():
        target(torch.tensor([text]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return found
