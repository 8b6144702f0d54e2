"""Metadata of GGUF files is read without llama.cpp, and each broken file is refused in one sentence."""

import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoder.errors import ConfigError
from decoder.forward.llama_cpp.context import Context, LlamaModel
from decoder.models.checkpoints import load_config, load_model, looks_like_a_path
from decoder.models.compatibility import check_config
from decoder.models.gguf.file import GgufFile, gguf_file, is_gguf
from decoder.models.gguf.words import gguf_words, row_bytes, state_bytes
from tests.gguf_pair import GgufPair, GgufStates, needs_llama_cpp
from tests.gguf_states import LAYERS

STRING, UINT32, ARRAY = 8, 4, 9
HEADERS = 64
"""Largest overhead, in bytes, of a row and a state in llama.cpp's copy of its memory."""


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    return struct.pack("<I", value)


def header(entries: int, tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


ARCHITECTURE = text("general.architecture") + number(STRING) + text("llama")


def file_of(values: Mapping[str, Any], tensors: tuple[str, ...] = ("token_embd.weight",)) -> GgufFile:
    """A file with the metadata of a supported model, changed by `values`."""
    usual: dict[str, Any] = {
        "general.architecture": "llama",
        "general.file_type": 15,
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.context_length": 128,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b"],
    }
    return GgufFile(
        Path("x.gguf"), usual | dict(values), dict.fromkeys(tensors, 1), in_float32=False, file_bytes=3 << 20
    )


def test_a_name_that_ends_in_gguf_is_a_file() -> None:
    assert is_gguf("model.GGUF")
    assert not is_gguf("owner/model-gguf")
    assert looks_like_a_path("model.gguf")


@needs_llama_cpp
def test_metadata_is_read(gguf_pair: GgufPair) -> None:
    file = gguf_file(str(gguf_pair.draft("Q8_0")))
    assert (file.architecture, file.quantisation, file.in_float32) == ("gptneox", "Q8_0", False)
    assert file.size("context_length") == 2048
    assert len(file.tokens) == 2048
    assert file.tokens[0] == "<|endoftext|>"
    # 2048 tokens of 192 numbers; Q8_0 stores 32 numbers in 34 bytes.
    assert file.tensors["token_embd.weight"] == 2048 * 192 * 34 // 32
    assert gguf_file(str(gguf_pair.draft())).in_float32


@needs_llama_cpp
def test_a_file_that_was_replaced_is_read_again(gguf_pair: GgufPair, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for kind in ("F32", "Q8_0"):
        path.write_bytes(gguf_pair.draft(kind).read_bytes())
        assert gguf_file(str(path)).quantisation == kind


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "ends within its metadata"),
        (b"PK\3\4" + bytes(40), "is no GGUF file"),
        (header(0, version=1), "is GGUF version 1; only versions 2 and 3 can be read"),
        (header(1) + ARCHITECTURE[:-2], "ends within its metadata"),
        (header(2) + ARCHITECTURE, "ends within its metadata"),
        (header(1 << 40), "entries, more than any model has"),
        (header(1) + struct.pack("<Q", 1 << 50), "has a name of"),
        (header(1) + text("a") + number(77), "has a value of the unknown type 77"),
        (header(1) + text("a") + number(STRING) + struct.pack("<Q", 1 << 40), "ends within its metadata"),
        (header(1) + text("a") + number(ARRAY) + number(ARRAY) + struct.pack("<Q", 1), "has a list of lists"),
        (
            header(1, 1) + ARCHITECTURE + text("t") + number(1) + struct.pack("<QIQ", 4, 0, 1 << 20),
            "ends within its weights",
        ),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ConfigError, match=f"{re.escape(why)}.*; download the file again") as error:
        load_config(str(tmp_path / "m.gguf"))
    assert error.value.exit_code == 2


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*none\.gguf"):
        load_config(str(tmp_path / "none.gguf"))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"general.architecture": ""}, "does not name its architecture"),
        ({"split.count": 4}, "is one of 4 parts of a model; merge all parts"),
        ({"tokenizer.ggml.model": None}, "has no tokenizer"),
        ({"tokenizer.ggml.model": "none"}, "has no tokenizer"),
        ({"tokenizer.ggml.tokens": []}, "has no tokenizer"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "has a tokenizer that names a token twice"),
        ({"llama.block_count": 0}, "says that block_count is 0"),
        ({"llama.context_length": 1 << 40}, "says that context_length is"),
        ({"llama.embedding_length": "wide"}, "says that embedding_length is 0"),
        ({"llama.attention.head_count": 0}, "has no attention heads"),
        ({"llama.attention.head_count": [4, 0]}, "has no attention heads"),
        ({"llama.attention.causal": False}, "is an encoder (llama)"),
    ],
)
def test_what_cannot_be_decoded_is_refused(values: Mapping[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"^m {re.escape(why)}"):
        check_config("m", file_of(values))


def test_weights_of_something_else_are_refused() -> None:
    with pytest.raises(ConfigError, match="has no weights of a language model"):
        check_config("m", file_of({}, ("v.patch_embd.weight",)))
    with pytest.raises(ConfigError, match="longrope"):
        check_config("m", file_of({}, ("token_embd.weight", "rope_factors_long.weight")))


def test_a_plain_decoder_passes() -> None:
    check_config("m", file_of({}))


def test_memory_of_a_token_counts_shared_heads_once() -> None:
    assert row_bytes(file_of({})) == 2 * 2 * (16 + 16) * 2
    assert row_bytes(file_of({"llama.attention.head_count_kv": [2, 1]})) == (2 + 1) * (16 + 16) * 2
    assert row_bytes(replace(file_of({"llama.attention.key_length": 32}), in_float32=True)) == 2 * 2 * (32 + 16) * 4
    assert row_bytes(file_of({"llama.attention.head_count": None})) is None


@needs_llama_cpp
@pytest.mark.parametrize("architecture", LAYERS)
def test_memory_of_a_state_is_what_llama_cpp_takes_for_a_sequence(gguf_states: GgufStates, architecture: str) -> None:
    file = gguf_file(str(gguf_states.target(architecture)))
    context, sizes = Context(LlamaModel(file.path), 100, 2, half=False, threads=1), list[int]()
    for sequence in range(2):
        context.decode([5], [0], [[sequence]], [True])
        sizes.append(len(context.state()))
    of_row = row_bytes(file) or 0
    assert state_bytes(file) <= sizes[1] - sizes[0] - of_row < state_bytes(file) + HEADERS


def test_a_model_without_states_takes_no_memory_for_them() -> None:
    assert state_bytes(file_of({})) == 0


@needs_llama_cpp
def test_a_file_is_described_for_the_doctor(gguf_pair: GgufPair) -> None:
    words = gguf_words(str(gguf_pair.draft("Q8_0")))
    assert words.startswith("books-1m-Q8_0.gguf: gptneox, Q8_0, weights of 2 MiB, keys and values: 2 KiB per token")


@needs_llama_cpp
def test_what_llama_cpp_refuses_is_refused_with_its_reason(gguf_pair: GgufPair, tmp_path: Path) -> None:
    import torch  # noqa: PLC0415 - only this test needs it

    whole, path = gguf_pair.draft().read_bytes(), tmp_path / "m.gguf"
    for content, why in (
        (whole[:-1000], "corrupted or incomplete"),
        (whole.replace(b"gptneox", b"gptneoy"), "unknown model architecture"),
        (whole.replace(b"blk.1.ffn_up.weight", b"blk.9.ffn_up.weight"), "blk.1.ffn_up.weight' not found"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=why):
            load_model(str(path), torch.device("cpu"), torch.float32)
