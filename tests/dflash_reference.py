"""Slow and plain reference of a DFlash head, written from the published layouts and the publishers' training code.

Like that of EAGLE-3 heads; each block is computed from the whole text.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests import reference
from tests.eagle3_reference import NEVER, Network, Rows, sigmoid, silu, states_of
from tests.sampled_reference import SampledOracle


class Checkpoint(Network):
    def __init__(self, folder: Path, target: Any) -> None:
        super().__init__(folder)
        self.flash = {**self.config, **self.config.get("dflash_config", {})}
        self.nested = "speculators_model_type" in self.config
        self.second = "candidate_selector.hidden_projection.weight" in self.weights
        kind = self.config.get("speculators_model_type") or self.config["architectures"][0]
        self.from_anchor = self.config.get("sample_from_anchor", kind in ("dspark", "Qwen3DSparkModel"))
        self.block = self.flash["block_size"]
        embedded, output = target.get_input_embeddings().weight, target.get_output_embeddings().weight
        self.embedding = self.weights.get("embed_tokens.weight", embedded.detach().double().numpy())
        self.output = self.weights.get("lm_head.weight", output.detach().double().numpy())

    def layers(self, count: int) -> list[int]:
        """Numbers of the layers whose inputs the head reads, for a target of `count` layers."""
        if self.nested:
            return list(self.config["aux_hidden_state_layer_ids"])
        own = self.layer["num_hidden_layers"]
        usual = [round(1 + place * (count - 4) / (own - 1)) for place in range(own)]
        return [layer + 1 for layer in self.flash.get("target_layer_ids", usual)]

    def rows(self, anchor: int, states: list[Rows]) -> Rows:
        """Outputs of the last layer for the block after a text whose target states are given, shape (block, width)."""
        context = self.norm(self.times(np.concatenate(states, -1), "fc"), "hidden_norm")
        tokens = [anchor] + [self.flash["mask_token_id"]] * (self.block - 1)
        rows: Rows = self.embedding[tokens] * self.flash.get("input_embedding_scale", 1.0)
        start, block = len(context), range(self.block)
        for number in range(self.layer["num_hidden_layers"]):
            at = f"layers.{number}"
            seen = [[self.sees(number, start, start + row, key) for key in range(start + self.block)] for row in block]
            rows = rows + self.around(
                self.norm(rows, f"{at}.input_layernorm"),
                f"{at}.attention_conv",
                lambda given, at=at, seen=seen: self.attention(given, context, f"{at}.self_attn", np.array(seen)),
            )
            rows = rows + self.around(
                self.norm(rows, f"{at}.post_attention_layernorm"),
                f"{at}.mlp_conv",
                lambda given, at=at: self.mlp(given, f"{at}.mlp"),
            )
        return rows

    def around(self, rows: Rows, name: str, sublayer: Any) -> Rows:
        """Output of a sublayer, whose input and output are convolved if the head has convolutions."""
        if not self.second:
            found: Rows = sublayer(rows)
            return found
        return self.convolved(sublayer(self.convolved(rows, rows, name, 0)), rows, name, 1)

    def convolved(self, rows: Rows, given: Rows, name: str, side: int) -> Rows:
        """Convolution of `rows`; the dynamic part of its kernels is computed from the rows `given`."""
        base = self.weights[f"{name}.base_kernel"][side]
        taps, width = base.shape
        group = self.flash["conv_group_size"]
        dynamic = self.times(given, f"{name}.kernel_projection").reshape(len(rows), 2, taps, width // group)
        found = np.zeros_like(rows)
        for row in range(len(rows)):
            for tap in range(min(taps, row + 1)):
                for column in range(width):
                    kernel = base[tap, column] + dynamic[row, side, tap, column // group]
                    found[row, column] += kernel * rows[row - tap, column]
        return found

    def sees(self, number: int, start: int, row: int, key: int) -> bool:
        """Whether a row of the block that begins at `start` attends to a key; all three are text positions."""
        sliding = self.layer["layer_types"][number] == "sliding_attention"
        window = self.layer["sliding_window"]
        if self.nested:
            second = self.config["speculators_model_type"] == "dflash2"
            causal = sliding and not self.config.get("sliding_window_non_causal", second)
            if key < start:
                return not sliding or key >= start - window
            return not causal or key <= row
        named = [self.flash.get(name) for name in ("is_causal", "causal", "causal_head")]
        causal = next((given for given in named if given is not None), sliding)
        return (not causal or key <= row) and (not sliding or abs(row - key) < window)

    def own_logits(self, hidden: Rows) -> Rows:
        logits = hidden @ self.output.T * self.flash.get("output_multiplier", 1.0)
        cap = self.flash.get("final_logit_softcapping")
        found: Rows = logits if cap is None else cap * np.tanh(logits / cap)
        return found

    def logits(self, rows: Rows, path: list[int]) -> Rows:
        """Logits over the target's vocabulary after a path from the anchor; `rows` are the block's rows."""
        hidden, place = self.norm(rows, "norm"), len(path) - self.from_anchor
        return self.over_target_ids(self.corrected(rows, hidden, place, path))

    def corrected(self, rows: Rows, hidden: Rows, place: int, path: list[int]) -> Rows:
        """Logits of one row over the head's own vocabulary, corrected for the path before it."""
        base = self.own_logits(hidden[place])
        if "markov_head.markov_w1.weight" in self.weights:
            return base + self.markov(hidden, place, path)
        if self.second:
            before = self.weights["candidate_selector.predecessor_codebook"][path[-1]]
            given = before * self.times(hidden[place], "candidate_selector.hidden_projection")
            best = np.argsort(-base)[: self.flash["selector_top_k"]]
            found = np.full(len(base), NEVER)
            found[best] = base[best] + self.weights["candidate_selector.successor_codebook"][best] @ given
            return found
        if "ar_approximation.d.weight" in self.weights:
            before = self.norm(self.embedding[path[-1]], "ar_approximation.norm", 1e-6)
            up, gate = np.split(self.times(np.concatenate([before, hidden[place]]), "ar_approximation.ug"), 2)
            return self.own_logits(self.norm(rows[place] + self.times(silu(gate) * up, "ar_approximation.d"), "norm"))
        return base

    def markov(self, hidden: Rows, place: int, path: list[int]) -> Rows:
        kind = self.config["markov_head_type"]
        first = self.weights["markov_head.markov_w1.weight"]
        if kind == "vanilla":
            return self.times(first[path[-1]], "markov_head.markov_w2")
        if kind == "gated":
            before = first[path[-1]]
            gate = sigmoid(self.times(np.concatenate([hidden[place], before]), "markov_head.gate_proj"))
            return self.times(gate * before, "markov_head.markov_w2")
        # As in training, the anchor is the token before row 0, and also before row 1 if row 0 predicts no token.
        tokens = path if self.from_anchor else [path[0], *path]
        state, out = np.zeros(first.shape[1]), np.zeros(first.shape[1])
        for row, token in enumerate(tokens[: place + 1]):
            joint = self.times(np.concatenate([state, first[token], hidden[row]]), "markov_head.joint_proj")
            gate, new, out = np.split(joint, 3)
            state = sigmoid(gate) * state + (1 - sigmoid(gate)) * np.tanh(new)
        return self.times(np.tanh(out), "markov_head.markov_w2")


@dataclass
class DflashOracle(SampledOracle):
    """Reference for a target with a DFlash head as draft; `draft` must be the target."""

    folder: Path = Path()
    _blocks: dict[reference.Path, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoint = Checkpoint(self.folder, self.target)
        self.layers = self.checkpoint.layers(self.target.config.num_hidden_layers)

    def _draft_scores(self, text: reference.Path, drafted: int) -> torch.Tensor:
        root = text[: len(text) - drafted]
        if root not in self._blocks:
            self._blocks[root] = self.checkpoint.rows(root[-1], states_of(self.target, self.layers, root[:-1]))
        return torch.from_numpy(self.checkpoint.logits(self._blocks[root], list(text[len(root) - 1 :])))
