"""Training of an EAGLE-3 head: one pass computes all rows of a text, and unrolls several drafted levels from the head's
own outputs, as in the training-time test of EAGLE-3 (arXiv 2503.01840, section 3.2). The trained head is saved in the
flat layout in which EAGLE-3 heads are published.
"""

import json
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from decoder.heads.eagle3 import Head
from decoder.heads.parts import OFFSETS
from decoder.models.head_config import shape_of
from dynatui.lab.training import HeadRecipe
from dynatui.lab.training.loop import Loss, overlap_loss


class TrainedHead(nn.Module):
    def __init__(self, recipe: HeadRecipe, target_width: int, vocabulary: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.config: dict[str, Any] = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": recipe.hidden,
            "target_hidden_size": target_width,
            "intermediate_size": recipe.intermediate,
            "num_hidden_layers": 1,
            "num_attention_heads": recipe.heads,
            "num_key_value_heads": recipe.heads,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_theta": 10_000.0,
            "vocab_size": vocabulary,
            "draft_vocab_size": vocabulary,
            "eagle_aux_hidden_state_layer_ids": list(recipe.layers),
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
        }
        shape = shape_of("head", self.config)
        assert shape is not None, "the configuration is that of an EAGLE-3 head"  # noqa: S101 - for mypy
        self.head = Head("head", shape, recipe.layers)
        nn.init.normal_(self.head.embed_tokens.weight, std=0.02)
        for name, weight in self.head.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(weight)

    def forward(
        self, states: Float[Tensor, "B N Y"], tokens: Int[Tensor, "B N"], steps: int
    ) -> list[Float[Tensor, "B N V"]]:
        """Logits of each of the `steps` unrolled levels.

        Row j combines token j + 1 of the text with a hidden state at position j and predicts token j + 2. At level 0
        the hidden state is the target's; at each later level it is the head's own output in row j - 1 of the
        preceding level. So rows 0 to k - 1 of level k have no valid input, and `head_loss` ignores them. `states` are
        concatenated target states at positions 0 to N - 1, and `tokens` are at positions 1 to N.
        """
        head, attend = self.head, _Levels()
        hidden, logits = head.fused(states), list[Tensor]()
        rotation = head.rotation(torch.arange(tokens.shape[1], device=tokens.device))
        for _ in range(steps):
            outputs = head.through(tokens, hidden, rotation, attend)
            logits.append(head.lm_head(head.norm(outputs)))
            hidden = functional.pad(outputs, (0, 0, 1, 0))[:, :-1]
        return logits

    def save(self, folder: Path, context: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = self.config | {"max_position_embeddings": context}
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        weights = {
            name.replace("layers.0.", "midlayer."): tensor.to("cpu", torch.bfloat16).contiguous()
            for name, tensor in self.head.state_dict().items()
            if name != OFFSETS
        }
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


class _Levels:
    """Attention of the unrolled levels of a text; each call adds a level.

    Row j of level k (counted from 0) attends to rows 0 to j - k of the text, which is level 0. Row j also attends to
    its drafted ancestors and itself: row j - k + m of each level m from 1 to k.
    """

    def __init__(self) -> None:
        self._keys, self._values = list[Tensor](), list[Tensor]()

    def __call__(self, _: int, queries: Tensor, keys: Tensor, values: Tensor) -> Float[Tensor, "B H N D"]:
        level, scale = len(self._keys), queries.shape[-1] ** -0.5
        self._keys.append(keys)
        self._values.append(values)
        scores = (queries @ self._keys[0].mT) * scale
        scores = scores.masked_fill(~_text_visible(scores.shape[-1], level, scores.device), -torch.inf)
        own = [
            (queries * _shifted(self._keys[number], level - number)).sum(-1, keepdim=True) * scale
            for number in range(1, level + 1)
        ]
        weights = torch.cat([scores, *own], -1).float().softmax(-1).to(values.dtype)
        rows = weights[..., : scores.shape[-1]] @ self._values[0]
        for number in range(1, level + 1):
            share = weights[..., scores.shape[-1] + number - 1, None]
            rows = rows + share * _shifted(self._values[number], level - number)
        return rows


def head_loss(target: Any, recipe: HeadRecipe, temperature: float) -> Loss:
    """The overlap loss averaged over the unrolled levels, with `step_weight` ** level as weights."""

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
    """Row j is true at the rows of the text to which row j of this level attends: 0 to j - `level`. Row 0 is always
    visible, so that no row of the mask is empty; outputs of rows j < `level` are not used.
    """
    visible = torch.ones((rows, rows), dtype=torch.bool, device=device).tril(-level)
    visible[:, 0] = True
    return visible


def _shifted(rows: Float[Tensor, "B H N D"], places: int) -> Float[Tensor, "B H N D"]:
    """Rows moved by `places`: row j of the result is row j - `places`, or zeros if there is no such row."""
    return functional.pad(rows, (0, 0, places, 0))[..., : rows.shape[-2], :]
