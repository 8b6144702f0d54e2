"""Writes the embedded pair, or other GPT-NeoX folders, as GGUF files, for tests and comparisons with the torch models.

    python -m benchmarks.gguf_files --output DIR [--type F32|F16|BF16|Q8_0] [FOLDER ...]

Needs the package `gguf` (extra `test`). Files of other families are written by llama.cpp's own converter.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET

TYPES = ("F32", "F16", "BF16", "Q8_0")
NAMES = {
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}
"""Parts of a GPT-NeoX layer, and their names in GGUF."""
WHOLE = {
    "gpt_neox.embed_in.weight": "token_embd.weight",
    "embed_out.weight": "output.weight",
    "lm_head.weight": "output.weight",
    "gpt_neox.final_layer_norm.weight": "output_norm.weight",
    "gpt_neox.final_layer_norm.bias": "output_norm.bias",
}
SPECIAL, NORMAL, UNUSED = 3, 1, 5
"""Types of tokens in GGUF."""


def write(folder: Path, path: Path, kind: str = "F32", **changed: object) -> Path:
    """Writes a GPT-NeoX folder as a GGUF file with matrices of type `kind`; returns the file's path.

    Args:
        folder: Folder with config.json, model.safetensors and tokenizer.json.
        path: Path of the GGUF file to write.
        kind: One of `TYPES`; vectors are float32 in every file.
        changed: Values that replace values of config.json.
    """
    import gguf  # noqa: PLC0415 - only in the extra `test`

    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | changed
    writer = gguf.GGUFWriter(path, "gptneox")
    _add_sizes(writer, config)
    writer.add_file_type(getattr(gguf.LlamaFileType, "ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"))
    add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")), config)
    for name, weight in _renamed(load_file(folder / "model.safetensors"), config):
        numbers = weight.float().numpy()
        own = gguf.GGMLQuantizationType.F32 if numbers.ndim == 1 else gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(numbers, own), raw_dtype=own)
    finish(writer)
    return path


def finish(writer: Any) -> None:
    """Writes the contents of a GGUF writer to its file, and closes the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: Any, config: dict[str, Any]) -> None:
    width, heads = config["hidden_size"], config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_rope_dimension_count(int(config["rope_parameters"]["partial_rotary_factor"] * (width // heads)))
    writer.add_head_count(heads)
    writer.add_parallel_residual(config["use_parallel_residual"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])


def add_tokenizer(writer: Any, tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    """Adds a tokenizer to a GGUF writer, from the contents of a tokenizer.json and a config.json."""
    names: dict[int, str] = {number: text for text, number in tokenizer["model"]["vocab"].items()}
    special = {each["id"]: each["content"] for each in tokenizer["added_tokens"]}
    names |= special
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([names.get(number, f"[PAD{number}]") for number in range(size)])
    kinds = [SPECIAL if number in special else NORMAL if number in names else UNUSED for number in range(size)]
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def _renamed(weights: dict[str, Tensor], config: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    heads = config["num_attention_heads"]
    for name, weight in weights.items():
        if name in WHOLE:
            yield WHOLE[name], weight
            continue
        number, _, rest = name.removeprefix("gpt_neox.layers.").partition(".")
        part, _, kind = rest.rpartition(".")
        by_part = _by_part(weight, heads) if part == "attention.query_key_value" else weight
        yield f"blk.{number}.{NAMES[part]}.{kind}", by_part
    if config["tie_word_embeddings"]:
        yield "output.weight", weights["gpt_neox.embed_in.weight"]


def _by_part(weight: Tensor, heads: int) -> Tensor:
    """Rows of a joint projection in GGUF's order: all queries, all keys, all values. GPT-NeoX orders rows by head."""
    by_head = weight.reshape(heads, 3, -1, *weight.shape[1:])
    return torch.cat([by_head[:, part].flatten(0, 1) for part in range(3)])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write GPT-NeoX folders as GGUF files.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--type", choices=TYPES, default="F32")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="default: the embedded pair")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    for folder in given.folders or (EMBEDDED_TARGET, EMBEDDED_DRAFT):
        print(write(folder, given.output / f"{folder.name}-{given.type}.gguf", given.type))  # noqa: T201 - for the user


if __name__ == "__main__":
    main()
