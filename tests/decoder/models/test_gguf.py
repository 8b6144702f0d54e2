"""GGUF files: metadata is read without llama.cpp, each broken file is refused in one sentence, and the tokenizer
encodes and decodes texts as the tokenizer it was converted from.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder.errors import ConfigError
from decoder.models.checkpoints import EMBEDDED_TARGET, load_config, load_model, load_tokenizer, looks_like_a_path
from decoder.models.compatibility import SAMPLE, check_config, tokenizers_of
from decoder.models.gguf_file import GgufFile, gguf_file, gguf_words, is_gguf, row_bytes
from decoder.models.gguf_model import GgufTokenizer
from decoder.models.text import TextStream, fed_text
from decoder.models.tokenizer import TextTokenizer
from tests.gguf_pair import GgufPair, needs_llama_cpp
from tests.tiny import train_tokenizer

STRING, UINT32, ARRAY = 8, 4, 9


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
        (b"PK\3\4" + bytes(40), "is not a GGUF file"),
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
    with pytest.raises(ConfigError, match=f"{re.escape(why)}.*; download the file again"):
        load_config(str(tmp_path / "m.gguf"))
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


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        (("v.patch_embd.weight",), "has no weights of a language model"),
        (("token_embd.weight", "rope_factors_long.weight"), "longrope"),
    ],
)
def test_weights_of_something_else_are_refused(tensors: tuple[str, ...], why: str) -> None:
    check_config("m", file_of({}))
    with pytest.raises(ConfigError, match=why):
        check_config("m", file_of({}, tensors))


def test_memory_of_a_token_counts_shared_heads_once() -> None:
    assert row_bytes(file_of({})) == 2 * 2 * (16 + 16) * 2
    assert row_bytes(file_of({"llama.attention.head_count_kv": [2, 1]})) == (2 + 1) * (16 + 16) * 2
    assert row_bytes(replace(file_of({"llama.attention.key_length": 32}), in_float32=True)) == 2 * 2 * (32 + 16) * 4
    assert row_bytes(file_of({"llama.attention.head_count": None})) is None


@needs_llama_cpp
def test_a_file_is_described_for_the_doctor(gguf_pair: GgufPair) -> None:
    words = gguf_words(str(gguf_pair.draft("Q8_0")))
    assert words.startswith("books-1m-Q8_0.gguf: gptneox, Q8_0, weights of 2 MiB, keys and values: 2 KiB per token")


@needs_llama_cpp
def test_what_llama_cpp_refuses_is_refused_with_its_reason(gguf_pair: GgufPair, tmp_path: Path) -> None:
    whole, path = gguf_pair.draft().read_bytes(), tmp_path / "m.gguf"
    for content, why in (
        (whole[:-1000], "corrupted or incomplete"),
        (whole.replace(b"gptneox", b"gptneoy"), "unknown model architecture"),
        (whole.replace(b"blk.1.ffn_up.weight", b"blk.9.ffn_up.weight"), "blk.1.ffn_up.weight' not found"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=why):
            load_model(str(path), torch.device("cpu"), torch.float32)


TEXTS = (SAMPLE, "", "Call me Ishmael.", "naïve café — “quoted” 你好 🙂", "a<|endoftext|>b", "  two  blanks\n\n")


@pytest.fixture(scope="module")
def tokenizer(gguf_pair: GgufPair) -> TextTokenizer:
    return load_tokenizer(str(gguf_pair.target()))


@needs_llama_cpp
@pytest.mark.parametrize("text", TEXTS)
def test_texts_have_the_same_tokens(tokenizer: TextTokenizer, text: str) -> None:
    other = load_tokenizer(str(EMBEDDED_TARGET))
    ids = tokenizer(text).input_ids
    assert ids == other(text).input_ids
    for skip in (False, True):
        assert tokenizer.decode(ids, skip_special_tokens=skip) == other.decode(ids, skip_special_tokens=skip)


@needs_llama_cpp
def test_a_character_in_pieces_is_shown_when_it_is_whole(tokenizer: TextTokenizer) -> None:
    stream, text = TextStream(tokenizer, tokenizer("x").input_ids), "🙂你"
    pieces = [stream.push([token]) for token in tokenizer(text).input_ids]
    assert "".join(pieces) == text
    assert "" in pieces


@needs_llama_cpp
def test_both_forms_share_a_tokenizer(gguf_pair: GgufPair) -> None:
    for names in ((gguf_pair.target(), EMBEDDED_TARGET), (EMBEDDED_TARGET, gguf_pair.draft())):
        _, of_draft = tokenizers_of(*map(str, names))
        assert of_draft is None


@needs_llama_cpp
def test_another_tokenizer_is_known_as_the_draft_s_own(gguf_pair: GgufPair, tmp_path: Path) -> None:
    train_tokenizer().save_pretrained(tmp_path)
    _, of_draft = tokenizers_of(str(gguf_pair.target()), str(tmp_path))
    assert of_draft is not None


@needs_llama_cpp
def test_a_file_without_a_chat_template_says_so_and_one_with_it_is_rendered(tokenizer: TextTokenizer) -> None:
    assert isinstance(tokenizer, GgufTokenizer)
    assert tokenizer.chat_template is None
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    try:
        assert fed_text(tokenizer, "Hello", chat=True) == ("<|endoftext|>[user] Hello", True)
    finally:
        tokenizer.chat_template = None


@needs_llama_cpp
def test_ends_of_text_are_those_of_the_file(tokenizer: TextTokenizer) -> None:
    assert isinstance(tokenizer, GgufTokenizer)
    assert tokenizer.ends() == [0]
