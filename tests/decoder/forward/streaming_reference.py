"""A slow reference of StreamingLLM's attention: no cache, and keys are rotated anew for every token.

Each token selects the first `sinks` tokens of the text and the latest `window` tokens, including itself. It numbers
them from 0, rotates their keys and its own query by these numbers, and attends. The engine's code is not used.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def selected(token: int, sinks: int, window: int) -> list[int]:
    """Tokens that a token sees, oldest first."""
    return [other for other in range(token + 1) if other < sinks or other > token - window]


def turned(heads: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Rotated heads, shape (N, H, D); dimension i of the first rotated half is paired with i of the second half."""
    angles = positions[:, None].double() * frequencies.double()
    cosine, sine = angles.cos()[:, None], angles.sin()[:, None]
    count = len(frequencies)
    one, other, rest = heads[..., :count], heads[..., count : 2 * count], heads[..., 2 * count :]
    return torch.cat((one * cosine - other * sine, other * cosine + one * sine, rest), -1)


def attended(queries: Tensor, keys: Tensor, values: Tensor, frequencies: Tensor, sinks: int, window: int) -> Tensor:
    """Attention output of each token, shape (N, H * D)."""
    groups = queries.shape[1] // keys.shape[1]
    rows = []
    for token in range(len(queries)):
        seen = selected(token, sinks, window)
        places = torch.arange(len(seen))
        query = turned(queries[token : token + 1], places[-1:], frequencies)[0]
        key = turned(keys[seen], places, frequencies).repeat_interleave(groups, 1)
        value = values[seen].repeat_interleave(groups, 1)
        scores = torch.einsum("hd,nhd->hn", query, key) / queries.shape[-1] ** 0.5
        rows.append(torch.einsum("hn,nhd->hd", scores.softmax(-1), value).flatten())
    return torch.stack(rows)


def neox_layer(layer: Any, rows: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    heads = layer.attention.config.num_attention_heads
    product = layer.attention.query_key_value(layer.input_layernorm(rows)).view(len(rows), heads, 3, -1)
    found = layer.attention.dense(attend(*product.unbind(2)))
    result: Tensor = rows + found + layer.mlp(layer.post_attention_layernorm(rows))
    return result


def llama_layer(layer: Any, rows: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """One layer of Llama, or of Qwen 3, which also normalises queries and keys."""
    own, given = layer.self_attn, layer.input_layernorm(rows)

    def heads(projection: Any, norm: str = "") -> Tensor:
        found = projection(given).view(len(rows), -1, own.head_dim)
        normed: Tensor = getattr(own, norm)(found) if hasattr(own, norm) else found
        return normed

    found = attend(heads(own.q_proj, "q_norm"), heads(own.k_proj, "k_norm"), heads(own.v_proj))
    rows = rows + own.o_proj(found)
    result: Tensor = rows + layer.mlp(layer.post_attention_layernorm(rows))
    return result


@torch.inference_mode()
def logits(module: Any, tokens: Sequence[int], sinks: int, window: int) -> Tensor:
    """Logits after every token of a text, by a module in float64; shape (N, V)."""
    body, neox = module.base_model, hasattr(module.base_model, "embed_in")
    frequencies = body.rotary_emb.inv_freq

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attended(queries, keys, values, frequencies, sinks, window)

    rows = (body.embed_in if neox else body.embed_tokens)(torch.tensor(tokens))
    for layer in body.layers:
        rows = (neox_layer if neox else llama_layer)(layer, rows, attend)
    found: Tensor = module.get_output_embeddings()((body.final_layer_norm if neox else body.norm)(rows))
    return found
