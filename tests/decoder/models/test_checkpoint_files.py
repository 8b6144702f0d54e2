"""A checkpoint whose configuration, weights, tokenizer or numbers are not what they should be is refused in one
sentence with the file at fault and the remedy, before memory is taken.
"""

import codecs
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from decoder.errors import LONGEST_QUOTE, ConfigError, ModelError, PairError
from decoder.models import hub as tokenizer_files
from decoder.models.checkpoint_files import LARGEST, check_ranges, largest
from decoder.models.checkpoints import (
    EMBEDDED_DRAFT,
    EMBEDDED_TARGET,
    load_config,
    load_model,
    load_tokenizer,
    looks_like_a_path,
)
from decoder.models.compatibility import probe
from decoder.models.gguf_file import gguf_file
from tests.decoder.makers import TinyModels
from tests.head_files import in_two_files, reconfigure, rewrite

CPU = torch.device("cpu")
CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SHARD = "model-2-of-2.safetensors"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 9976576152\n"
Fault = Callable[[Path], Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a checkpoint."""
    return Path(shutil.copytree(EMBEDDED_DRAFT, tmp_path / "model"))


@pytest.fixture
def copied(tiny_models: TinyModels, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a tiny model whose config.json has these fields."""

    def copy(family: str = "llama", **fields: Any) -> Path:
        folder = Path(shutil.copytree(tiny_models.pair(family).target, tmp_path / family))
        reconfigure(folder, fields)
        return folder

    return copy


@pytest.mark.parametrize(
    ("name", "is_folder"),
    [
        *((name, False) for name in ("gpt2", "owner/model", "owner/model@refs/pr/1")),
        *((name, True) for name in ("./model", "../model", "/model", "~/model", "models/owner/model")),
        *((name, True) for name in ("models/owner/model@main", "models\\model")),
    ],
)
def test_a_hub_id_has_at_most_one_slash_inside(name: str, is_folder: bool) -> None:  # noqa: FBT001 - a case
    assert looks_like_a_path(name) is is_folder


# Configurations


def rewritten(change: Callable[[bytes], bytes]) -> Fault:
    return lambda folder: (folder / CONFIG).write_bytes(change((folder / CONFIG).read_bytes()))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lambda folder: (folder / CONFIG).unlink(), "it has no config.json; give a folder with config.json, tokenizer"),
        (
            lambda folder: (folder / CONFIG).rename(folder / "params.json"),
            "it is in Meta's format (params.json without config.json); take the checkpoint in Hugging Face's",
        ),
        (
            rewritten(lambda text: codecs.BOM_UTF16_LE + text.decode().encode("utf-16-le")),
            "a byte order mark (UTF-16), and JSON is UTF-8 without one; iconv -f UTF-16 -t UTF-8",
        ),
        (
            rewritten(lambda text: codecs.BOM_UTF8 + text),
            "a byte order mark (UTF-8), and JSON is UTF-8 without one; remove",
        ),
        (rewritten(lambda text: text[:40]), "config.json is not JSON (Unterminated string"),
        (rewritten(lambda _: b"[1]"), "config.json is not a JSON object; download the model again"),
        (
            rewritten(lambda text: text.replace(b'"model_type"', b'"kind"')),
            'config.json does not say the "model_type", "llama" for example; add it',
        ),
    ],
)
def test_a_configuration_that_cannot_be_read_is_told(folder: Path, fault: Fault, told: str) -> None:
    fault(folder)
    with pytest.raises(ModelError, match=re.escape(told)) as refusal:
        load_config(str(folder))
    assert str(refusal.value).startswith(f"cannot load the configuration of {folder}: ")


@pytest.mark.parametrize("family", ["llama", "qwen3", "neox", "gpt2"])
@pytest.mark.parametrize("field", ["num_hidden_layers", "n_layer", "num_attention_heads", "hidden_size", "vocab_size"])
def test_a_size_beyond_its_range_is_refused_before_a_library_reads_it(
    copied: Callable[..., Path], family: str, field: str
) -> None:
    with pytest.raises(PairError, match=f"says that {field} is 1000000000, but it must be 1 to {largest(field)}"):
        load_config(str(copied(family, **{field: 10**9})))


@pytest.mark.parametrize("number", [1e308, -1e39])
def test_a_number_that_float32_cannot_hold_is_refused(copied: Callable[..., Path], number: float) -> None:
    folder = copied(rope_parameters={"rope_type": "default", "rope_theta": number})
    range_ = r"says that rope_theta is .*e\+\d+, but it must be between -3.4e\+38 and 3.4e\+38"
    with pytest.raises(PairError, match=range_):
        load_config(str(folder))


@given(
    st.recursive(
        st.integers(min_value=-(10**30), max_value=10**30),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*LARGEST, "other"]), inner),
    )
)
def test_every_whole_number_at_any_depth_has_a_range(value: object) -> None:
    def numbers(key: str, each: object) -> list[tuple[str, int]]:
        if isinstance(each, int):
            return [(key, each)]
        pairs = each.items() if isinstance(each, dict) else [(key, part) for part in each]  # type: ignore[attr-defined]
        return [pair for name, part in pairs for pair in numbers(name, part)]

    if all(abs(number) <= largest(key) for key, number in numbers("", value)):
        check_ranges("model", json.dumps(value).encode())
    else:
        with pytest.raises(PairError, match="but it must be 1 to"):
            check_ranges("model", json.dumps(value).encode())


def test_quotations_of_names_and_numbers_have_a_length() -> None:
    with pytest.raises(PairError) as refused:
        check_ranges("model", b'{"%s": %s}' % (b"n" * 10**6, b"9" * 3000))
    assert len(str(refused.value)) < 4 * LONGEST_QUOTE


def test_custom_code_is_refused_and_never_run(copied: Callable[..., Path]) -> None:
    code = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    folder = copied("llama", auto_map=code, model_type="own")
    for file in ("configuration_own.py", "modeling_own.py"):
        (folder / file).write_text('raise SystemExit("it ran")')
    with pytest.raises(ModelError, match="needs custom code of the model, and dynatui runs no code of models; choose"):
        load_config(str(folder))


# Weights


def in_parts(folder: Path) -> None:
    in_two_files(folder, lambda key: len(key) % 2 > 0)


def without_a_shard(folder: Path) -> None:
    in_parts(folder)
    (folder / SHARD).rename(folder / f"{SHARD}.incomplete")


def without_index(folder: Path) -> None:
    in_parts(folder)
    (folder / INDEX).unlink()


def broken_index(folder: Path) -> None:
    in_parts(folder)
    (folder / INDEX).write_text("{", encoding="utf-8")


def broken_shard(folder: Path) -> None:
    in_parts(folder)
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:100])


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / SINGLE), folder / "pytorch_model.bin")
    (folder / SINGLE).unlink()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lambda folder: (folder / SINGLE).unlink(), "it has no model.safetensors; download the model again"),
        (lambda folder: (folder / SINGLE).write_bytes(b"<html>not found</html>"), "model.safetensors is broken ("),
        (without_a_shard, f"it lacks 1 of its 2 files with weights, for example {SHARD}; download the model again"),
        (without_index, f"it has 2 files with weights but no {INDEX}, which lists them; download the model again"),
        (broken_index, f"{INDEX} cannot be read; download the model again"),
        (broken_shard, f"{SHARD} is broken ("),
        (
            pickled,
            "its weights are in pytorch_model.bin only, and reading this file could run code; save them as safetensors",
        ),
    ],
)
def test_weights_that_cannot_be_read_are_told(folder: Path, fault: Fault, told: str) -> None:
    fault(folder)
    with pytest.raises(ModelError, match=re.escape(told)) as refusal:
        load_model(str(folder), CPU, torch.float32)
    assert str(refusal.value).startswith(f"cannot load the weights of {folder}: ")


def test_a_checkpoint_in_several_files_is_read(folder: Path) -> None:
    in_parts(folder)
    assert load_model(str(folder), CPU, torch.float32).width


@pytest.mark.parametrize("field", ["hidden_size", "intermediate_size", "vocab_size"])
def test_weights_of_other_shapes_are_refused_before_they_are_made(
    copied: Callable[..., Path], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied("qwen3", **{field: 2**16})
    monkeypatch.setattr("decoder.models.hf_checkpoints.AutoModelForCausalLM", None)
    with pytest.raises(ModelError, match="weights differ in shape from the configuration"):
        load_model(str(folder), CPU, torch.float32)


def test_a_configuration_of_many_more_weights_than_the_files_hold_is_refused(copied: Callable[..., Path]) -> None:
    folder = copied("qwen3", num_hidden_layers=50, layer_types=["full_attention"] * 50)
    with pytest.raises(ModelError, match=r"describes [\d,]+ weights, but its files hold [\d,]+"):
        load_model(str(folder), CPU, torch.float32)


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [(torch.float32, "its weights may hold such numbers"), (torch.bfloat16, "give --dtype float32")],
    ids=str,
)
def test_weights_that_are_not_finite_in_float32_are_not_told_to_use_float32(
    copied: Callable[..., Path], dtype: torch.dtype, remedy: str
) -> None:
    folder = copied("llama")
    rewrite(folder, lambda weights: weights | {"lm_head.weight": torch.full_like(weights["lm_head.weight"], torch.inf)})
    with pytest.raises(PairError, match=f"not finite in .*; {remedy}"):
        probe(load_model(str(folder), CPU, dtype))


@pytest.mark.parametrize("part", ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_git_lfs_pointer_is_named_with_its_remedy(copied: Callable[..., Path], family: str, part: str) -> None:
    folder = copied(family)
    (folder / part).write_text(POINTER)
    with pytest.raises(ModelError, match=f"{part} of .* is a Git LFS pointer, not the file itself; run git lfs pull"):
        load_model(str(folder), CPU, torch.float32) if part.endswith("safetensors") else load_tokenizer(str(folder))


def test_a_pointer_to_a_file_that_is_not_read_refuses_nothing(copied: Callable[..., Path]) -> None:
    folder = copied("llama")
    (folder / "pytorch_model.bin").write_text(POINTER)
    assert load_model(str(folder), CPU, torch.float32).layers == 2


def test_a_gguf_file_that_is_a_pointer_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text(POINTER)
    with pytest.raises(ConfigError, match="is a Git LFS pointer, not the file itself; run git lfs pull"):
        gguf_file(str(tmp_path / "model.gguf"))


# Tokenizers


def folder_with(home: Path, *parts: str) -> Path:
    (home / "config.json").write_bytes((EMBEDDED_TARGET / "config.json").read_bytes())
    for part in parts:
        (home / part).write_bytes(b"no tokenizer")
    return home


def test_a_folder_without_tokenizer_says_which_file_is_missing(tmp_path: Path) -> None:
    missing = "there is neither tokenizer.json nor tokenizer.model beside it; copy the tokenizer's files there$"
    with pytest.raises(ModelError, match=missing):
        load_tokenizer(str(folder_with(tmp_path)))


NEEDS = "its only file is {}, and reading it takes {}; pip install 'dynatui[sentencepiece]'"


@pytest.mark.parametrize(
    ("part", "missing", "fault"),
    [
        *(
            (part, missing, NEEDS.format(part, packages))
            for part in ("tokenizer.model", "spiece.model")
            for missing, packages in (
                (("sentencepiece", "google.protobuf"), "the packages sentencepiece and protobuf"),
                (("google.protobuf",), "the package protobuf"),
            )
        ),
        ("tokenizer.model", (), "tokenizer.model cannot be read as a SentencePiece model; download it again"),
        ("tokenizer.json", (), ""),  # the reason of its library stays
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_told_with_the_packages_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, missing: tuple[str, ...], fault: str
) -> None:
    monkeypatch.setattr(tokenizer_files, "_installed", lambda module: module not in missing)
    assert tokenizer_files.tokenizer_fault(folder_with(tmp_path, part)) == fault
