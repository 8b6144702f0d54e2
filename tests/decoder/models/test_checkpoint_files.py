"""A checkpoint whose configuration or weights cannot be read is told with the file at fault and the remedy."""

import codecs
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from decoder.errors import ModelError
from decoder.models.checkpoints import EMBEDDED_DRAFT, load_config, load_model

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a checkpoint."""
    return Path(shutil.copytree(EMBEDDED_DRAFT, tmp_path / "model"))


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / CONFIG).write_bytes(change((folder / CONFIG).read_bytes()))

    return apply


def of_meta(folder: Path) -> None:
    (folder / CONFIG).rename(folder / "params.json")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lambda folder: (folder / CONFIG).unlink(), "it has no config.json; give a folder with config.json, tokenizer"),
        (of_meta, "it is in Meta's format (params.json without config.json); take the checkpoint in Hugging Face's"),
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
def test_a_configuration_that_cannot_be_read_is_told(folder: Path, fault: Callable[[Path], None], told: str) -> None:
    fault(folder)
    with pytest.raises(ModelError) as refusal:
        load_config(str(folder))
    assert str(refusal.value).startswith(f"cannot load the configuration of {folder}: ")
    assert told in str(refusal.value)


def sharded(folder: Path) -> None:
    weights = load_file(folder / SINGLE)
    (folder / SINGLE).unlink()
    places = {key: SHARDS[number % 2] for number, key in enumerate(sorted(weights))}
    for shard in SHARDS:
        save_file({key: weights[key] for key in places if places[key] == shard}, folder / shard, {"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")


def without_a_shard(folder: Path) -> None:
    sharded(folder)
    (folder / SHARDS[1]).rename(folder / f"{SHARDS[1]}.incomplete")


def without_index(folder: Path) -> None:
    sharded(folder)
    (folder / INDEX).unlink()


def broken_index(folder: Path) -> None:
    sharded(folder)
    (folder / INDEX).write_text("{", encoding="utf-8")


def broken_shard(folder: Path) -> None:
    sharded(folder)
    (folder / SHARDS[1]).write_bytes((folder / SHARDS[1]).read_bytes()[:100])


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / SINGLE), folder / "pytorch_model.bin")
    (folder / SINGLE).unlink()


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lambda folder: (folder / SINGLE).unlink(), "it has no model.safetensors; download the model again"),
        (lambda folder: (folder / SINGLE).write_bytes(b"<html>not found</html>"), "model.safetensors is broken ("),
        (without_a_shard, f"it lacks 1 of its 2 files with weights, for example {SHARDS[1]}; download the model again"),
        (without_index, f"it has 2 files with weights but no {INDEX}, which lists them; download the model again"),
        (broken_index, f"{INDEX} cannot be read; download the model again"),
        (broken_shard, f"{SHARDS[1]} is broken ("),
        (
            pickled,
            "its weights are in pytorch_model.bin only, and reading that could run code; save them as safetensors",
        ),
    ],
)
def test_weights_that_cannot_be_read_are_told(folder: Path, fault: Callable[[Path], None], told: str) -> None:
    fault(folder)
    with pytest.raises(ModelError) as refusal:
        load_model(str(folder), torch.device("cpu"), torch.float32)
    assert str(refusal.value).startswith(f"cannot load the weights of {folder}: ")
    assert told in str(refusal.value)


def test_a_checkpoint_in_several_files_is_read(folder: Path) -> None:
    sharded(folder)
    assert load_model(str(folder), torch.device("cpu"), torch.float32).width
