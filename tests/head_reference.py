"""Slow and plain references of drafting heads, written only from the papers, the published layouts and training code.

They compute in numpy and float64, one attention head at a time, without a KV cache or a tree: each new text, and each
block, is computed from the beginning of the text, and results are kept by text. The target's states are read by hooks
on a plain module. No code is shared with the engine.
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


def sigmoid(rows: Rows) -> Rows:
    found: Rows = 1 / (1 + np.exp(-rows))
    return found


def silu(rows: Rows) -> Rows:
    return rows * sigmoid(rows)


@cache
def turns(count: int, half: int, theta: float) -> NDArray[np.complex128]:
    """Rotary embedding of each position and pair of components as complex factors, shape (count, half)."""
    found: NDArray[np.complex128] = np.exp(1j * np.outer(np.arange(count), theta ** -(np.arange(half) / half)))
    return found


class Network:
    """Configuration and weights of a head of any kind in a folder, and what all kinds compute alike."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.layer = self.config.get("transformer_layer_config", self.config)
        self.theta = self.layer.get("rope_theta") or self.layer["rope_parameters"]["rope_theta"]
        self.weights = {
            name.removeprefix("model.").replace("midlayer.", "layers.0."): rows.astype(np.float64)
            for name, rows in load_file(folder / "model.safetensors").items()
        }

    def norm(self, rows: Rows, name: str, eps: float | None = None) -> Rows:
        scale = np.sqrt((rows**2).mean(-1, keepdims=True) + (eps or self.layer["rms_norm_eps"]))
        found: Rows = rows / scale * self.weights[f"{name}.weight"]
        return found

    def times(self, rows: Rows, name: str) -> Rows:
        found: Rows = rows @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)
        return found

    def mlp(self, rows: Rows, at: str) -> Rows:
        gated = silu(self.times(rows, f"{at}.gate_proj")) * self.times(rows, f"{at}.up_proj")
        return self.times(gated, f"{at}.down_proj")

    def attention(self, rows: Rows, before: Rows, at: str, seen: NDArray[np.bool_]) -> Rows:
        """Output of attention to the rows before, and to the rows themselves, as far as they are seen."""
        heads, kept = self.layer["num_attention_heads"], self.layer["num_key_value_heads"]
        queries = self.times(rows, f"{at}.q_proj")
        keys, values = (self.times(np.concatenate([before, rows]), f"{at}.{part}_proj") for part in "kv")
        width, found = queries.shape[1] // heads, []
        for head in range(heads):
            shared = head * kept // heads
            query = self.placed(queries[:, head * width : (head + 1) * width], f"{at}.q_norm", len(before))
            key = self.placed(keys[:, shared * width : (shared + 1) * width], f"{at}.k_norm", 0)
            scores = np.where(seen, query @ key.T / np.sqrt(width), -np.inf)
            chances = np.exp(scores - scores.max(-1, keepdims=True))
            value = values[:, shared * width : (shared + 1) * width]
            found.append(chances @ value / chances.sum(-1, keepdims=True))
        return self.times(np.concatenate(found, -1), f"{at}.o_proj")

    def placed(self, rows: Rows, norm: str, first: int) -> Rows:
        """Rotated rows of one attention head; the first of them is at the position `first`."""
        if self.layer.get("model_type") == "qwen3":
            rows = self.norm(rows, norm)
        half = rows.shape[1] // 2
        turned = (rows[:, :half] + 1j * rows[:, half:]) * turns(first + len(rows), half, self.theta)[first:]
        return np.concatenate([turned.real, turned.imag], -1)

    def over_target_ids(self, own: Rows) -> Rows:
        """Logits over the target's vocabulary from those over the head's own."""
        if "d2t" not in self.weights:
            return own
        found = np.full((*own.shape[:-1], self.layer["vocab_size"]), NEVER)
        for index, offset in enumerate(self.weights["d2t"]):
            found[..., index + int(offset)] = own[..., index]
        return found


class RowCheckpoint(Network):
    """An EAGLE-3 or P-EAGLE head."""

    def flag(self, name: str) -> bool:
        return bool(self.config.get(name, False))

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
        for number in range(self.layer["num_hidden_layers"]):
            at = f"layers.{number}"
            given = given if number == 0 else self.norm(residual, f"{at}.input_layernorm")
            residual = residual + self.attention(given, given[:0], f"{at}.self_attn", np.tri(len(given)) > 0)
            residual = residual + self.mlp(self.norm(residual, f"{at}.post_attention_layernorm"), f"{at}.mlp")
        return residual

    @property
    def mask_token(self) -> int | None:
        """Token of P-EAGLE's mask rows; None in an EAGLE-3 head."""
        return next((self.config[name] for name in ("mask_token_id", "pard_token") if name in self.config), None)

    def mask_state(self) -> Rows:
        """Hidden state of P-EAGLE's mask rows, shape (1, width)."""
        return self.fused(np.split(self.weights["mask_hidden"][0], 3, -1))

    def logits(self, outputs: Rows) -> Rows:
        """Logits over the target's vocabulary, shape (rows, vocabulary)."""
        return self.over_target_ids(self.times(self.norm(outputs, "norm"), "lm_head"))


@dataclass
class RowOracle(SampledOracle):
    """Reference for a target with an EAGLE-3 or P-EAGLE head as draft; `draft` must be the target."""

    folder: Path = Path()
    _states: dict[reference.Path, list[Rows]] = field(default_factory=dict)
    _hidden: dict[tuple[reference.Path, int], Rows] = field(default_factory=dict)
    _outputs: dict[tuple[reference.Path, int], Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoint = RowCheckpoint(self.folder)
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


class BlockCheckpoint(Network):
    """A DFlash head."""

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
class BlockOracle(SampledOracle):
    """Reference for a target with a DFlash head as draft; `draft` must be the target."""

    folder: Path = Path()
    _blocks: dict[reference.Path, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoint = BlockCheckpoint(self.folder, self.target)
        self.layers = self.checkpoint.layers(self.target.config.num_hidden_layers)

    def _draft_scores(self, text: reference.Path, drafted: int) -> torch.Tensor:
        root = text[: len(text) - drafted]
        if root not in self._blocks:
            self._blocks[root] = self.checkpoint.rows(root[-1], states_of(self.target, self.layers, root[:-1]))
        return torch.from_numpy(self.checkpoint.logits(self._blocks[root], list(text[len(root) - 1 :])))
