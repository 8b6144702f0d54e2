"""An EAGLE-3 head in training: computes all rows of a text at once, and unrolls several drafted levels from the head's
own outputs.

Source: training-time test of EAGLE-3 (arXiv 2503.01840, section 3.2). Weights and configuration are saved in the flat
published layout, which `decoder.models.eagle3` reads. Knows no trees.
"""

import json
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from decoder.training.loop import Loss
from decoder.training.overlap import overlap_loss
from decoder.training.recipe import HeadRecipe

EPS = 1e-6
ROPE_THETA = 10_000.0


class _RmsNorm(nn.RMSNorm):
    def forward(self, rows: Float[Tensor, "*N X"]) -> Float[Tensor, "*N X"]:
        """The rows normalised in float32, whatever the dtype of autocast."""
        return super().forward(rows.float())


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(2 * width, width, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(width, width, bias=False)


class _Mlp(nn.Module):
    def __init__(self, width: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, intermediate, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(intermediate, width, bias=False)

    def forward(self, rows: Float[Tensor, "B N X"]) -> Float[Tensor, "B N X"]:
        """Gated linear unit with SiLU."""
        down: Tensor = self.down_proj(functional.silu(self.gate_proj(rows)) * self.up_proj(rows))
        return down


class _Layer(nn.Module):
    def __init__(self, recipe: HeadRecipe) -> None:
        super().__init__()
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = (
            _RmsNorm(recipe.hidden, EPS) for _ in range(3)
        )
        self.self_attn = _Attention(recipe.hidden, recipe.heads)
        self.mlp = _Mlp(recipe.hidden, recipe.intermediate)


class TrainedHead(nn.Module):
    """An EAGLE-3 head with the parameter names of published checkpoints."""

    def __init__(self, recipe: HeadRecipe, target_width: int, vocabulary: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.recipe, self.target_width, self.vocabulary = recipe, target_width, vocabulary
        self.embed_tokens = nn.Embedding(vocabulary, recipe.hidden)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.fc = nn.Linear(len(recipe.layers) * target_width, recipe.hidden, bias=False)
        self.midlayer = _Layer(recipe)
        self.norm = _RmsNorm(recipe.hidden, EPS)
        self.lm_head = nn.Linear(recipe.hidden, vocabulary, bias=False)
        for projection in (self.midlayer.self_attn.o_proj, self.midlayer.mlp.down_proj):
            nn.init.zeros_(projection.weight)

    def forward(
        self, states: Float[Tensor, "B N Y"], tokens: Int[Tensor, "B N"], steps: int
    ) -> list[Float[Tensor, "B N V"]]:
        """Logits of each of the `steps` unrolled levels.

        Row j combines token j + 1 of the text with a hidden state at position j and predicts token j + 2. At level 0
        the hidden state is the target's; at each later level it is the head's own output in row j - 1 of the
        preceding level. So rows 0 to k - 1 of level k are not drafts.

        Args:
            states: Concatenated target states at positions 0 to N - 1.
            tokens: Token ids at positions 1 to N.
            steps: Number of levels.
        """
        embedded, hidden = self.midlayer.input_layernorm(self.embed_tokens(tokens)), self.fc(states)
        turn = _rotation(tokens.shape[1], self.recipe.hidden // self.recipe.heads, states.device)
        keys, values, logits = list[Tensor](), list[Tensor](), list[Tensor]()
        for _ in range(steps):
            given = torch.cat([embedded, self.midlayer.hidden_norm(hidden)], -1)
            outputs = hidden + self._attended(given, keys, values, turn)
            outputs = outputs + self.midlayer.mlp(self.midlayer.post_attention_layernorm(outputs))
            logits.append(self.lm_head(self.norm(outputs)))
            hidden = functional.pad(outputs, (0, 0, 1, 0))[:, :-1]
        return logits

    def _attended(
        self, given: Float[Tensor, "B N 2X"], keys: list[Tensor], values: list[Tensor], turn: tuple[Tensor, Tensor]
    ) -> Float[Tensor, "B N X"]:
        """Attention of a level's rows; the level's keys and values are appended to `keys` and `values`.

        Row j of level k (both counted from 0) sees rows 0 to j - k of the text, which is level 0. It also sees its
        drafted ancestors and itself: row j - k + m of each level m from 1 to k.
        """
        attention, level = self.midlayer.self_attn, len(keys)
        queries, key, value = (
            projection(given).unflatten(-1, (attention.heads, -1)).transpose(1, 2)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        queries = _turned(queries, turn)
        keys.append(_turned(key, turn))
        values.append(value)
        scores = (queries @ keys[0].mT) * queries.shape[-1] ** -0.5
        scores = scores.masked_fill(~_text_visible(scores.shape[-1], level, scores.device), -torch.inf)
        own = [
            (queries * _shifted(keys[number], level - number)).sum(-1, keepdim=True) * queries.shape[-1] ** -0.5
            for number in range(1, level + 1)
        ]
        weights = torch.cat([scores, *own], -1).float().softmax(-1).to(value.dtype)
        rows = weights[..., : scores.shape[-1]] @ values[0]
        for number in range(1, level + 1):
            share = weights[..., scores.shape[-1] + number - 1, None]
            rows = rows + share * _shifted(values[number], level - number)
        attended: Tensor = attention.o_proj(rows.transpose(1, 2).flatten(2))
        return attended

    def save(self, folder: Path, context: int) -> None:
        """Writes configuration and weights, in bfloat16, in the flat published layout."""
        folder.mkdir(parents=True, exist_ok=True)
        recipe = self.recipe
        config = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": recipe.hidden,
            "target_hidden_size": self.target_width,
            "intermediate_size": recipe.intermediate,
            "num_hidden_layers": 1,
            "num_attention_heads": recipe.heads,
            "num_key_value_heads": recipe.heads,
            "hidden_act": "silu",
            "max_position_embeddings": context,
            "rms_norm_eps": EPS,
            "rope_theta": ROPE_THETA,
            "vocab_size": self.vocabulary,
            "draft_vocab_size": self.vocabulary,
            "eagle_aux_hidden_state_layer_ids": list(recipe.layers),
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
        }
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        weights = {name: tensor.to("cpu", torch.bfloat16).contiguous() for name, tensor in self.state_dict().items()}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def head_loss(target: Any, recipe: HeadRecipe, temperature: float) -> Loss:
    """Loss function of a head: the overlap loss averaged over the unrolled levels, with `step_weight` ** level as
    weights. The function takes token ids of shape (rows, window + 1).
    """

    def loss(head: Any, ids: Tensor) -> Tensor:
        with torch.no_grad():
            read = target(ids[:, :-1], output_hidden_states=True)
            states = torch.cat([read.hidden_states[layer] for layer in recipe.layers], -1)[:, :-1]
        total, weights = torch.zeros((), device=ids.device), 0.0
        for level, logits in enumerate(head(states, ids[:, 1:-1], recipe.steps)):
            weight = recipe.step_weight**level
            total = total + weight * overlap_loss(logits[:, level:], read.logits[:, 1 + level :], temperature)
            weights += weight
        return total / weights

    return loss


def _text_visible(rows: int, level: int, device: torch.device) -> Bool[Tensor, "N N"]:
    """Mask of the text's rows that each row of a level sees. Rows that are not drafts see the text's first row, so that
    no softmax is empty.
    """
    visible = torch.ones((rows, rows), dtype=torch.bool, device=device).tril(-level)
    visible[:, 0] = True
    return visible


def _shifted(rows: Float[Tensor, "B H N D"], places: int) -> Float[Tensor, "B H N D"]:
    """Rows moved by `places`: row j of the result is row j - `places`, or zeros if there is no such row."""
    return functional.pad(rows, (0, 0, places, 0))[..., : rows.shape[-2], :]


def _rotation(rows: int, head_size: int, device: torch.device) -> tuple[Float[Tensor, "N R"], Float[Tensor, "N R"]]:
    """Cosines and sines of rotary positions 0 to `rows` - 1."""
    exponents = torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size
    angles = torch.arange(rows, device=device, dtype=torch.float32)[:, None] * ROPE_THETA**-exponents
    return angles.cos(), angles.sin()


def _turned(heads: Float[Tensor, "B H N D"], turn: tuple[Tensor, Tensor]) -> Float[Tensor, "B H N D"]:
    """Attention heads rotated to their positions; `turn` has the cosines and sines of `_rotation`."""
    cosine, sine = (part.to(heads.dtype) for part in turn)
    one, other = heads.chunk(2, -1)
    return torch.cat([one * cosine - other * sine, other * cosine + one * sine], -1)
