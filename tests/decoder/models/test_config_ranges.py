"""Numbers and files of a checkpoint that are not what they should be: one sentence, before memory is taken."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from decoder.errors import LONGEST_QUOTE, ConfigError, ModelError, PairError
from decoder.models.checkpoint_files import LARGEST, check_ranges, largest
from decoder.models.checkpoints import load_config, load_model, load_tokenizer
from decoder.models.gguf.file import gguf_file
from tests.decoder.makers import TinyModels

CPU = torch.device("cpu")
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 9976576152\n"


@pytest.fixture
def copied(tiny_models: TinyModels, tmp_path: Path) -> Callable[..., Path]:
    """A copy of a tiny model whose config.json has these fields."""

    def copy(family: str = "llama", **fields: Any) -> Path:
        folder = tmp_path / family
        shutil.copytree(tiny_models.pair(family).target, folder)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))
        return folder

    return copy


@pytest.mark.parametrize("family", ["llama", "qwen3", "neox", "gpt2"])
@pytest.mark.parametrize("field", ["num_hidden_layers", "n_layer", "num_attention_heads", "hidden_size", "vocab_size"])
def test_a_size_beyond_its_range_is_refused_before_a_library_reads_it(
    copied: Callable[..., Path], family: str, field: str
) -> None:
    folder = copied(family, **{field: 10**9})
    with pytest.raises(PairError, match=f"says that {field} is 1000000000, but it must be 1 to {largest(field)}"):
        load_config(str(folder))


@pytest.mark.parametrize("number", [1e308, -1e39])
def test_a_number_that_float32_cannot_hold_is_refused(copied: Callable[..., Path], number: float) -> None:
    folder = copied(rope_parameters={"rope_type": "default", "rope_theta": number})
    with pytest.raises(
        PairError, match=r"says that rope_theta is .*e\+\d+, but it must be between -3.4e\+38 and 3.4e\+38"
    ):
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


def test_custom_code_is_refused_and_never_run(copied: Callable[..., Path]) -> None:
    code = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    folder = copied("llama", auto_map=code, model_type="own")
    for file in ("configuration_own.py", "modeling_own.py"):
        (folder / file).write_text('raise SystemExit("it ran")')
    with pytest.raises(ModelError, match="needs custom code of the model, and dynatui runs no code of models; choose"):
        load_config(str(folder))


def test_weights_that_are_not_finite_in_float32_are_not_told_to_use_float32(copied: Callable[..., Path]) -> None:
    from decoder.models.compatibility import probe  # noqa: PLC0415 - beside its only use

    folder = copied("llama")
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][:] = float("inf")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for dtype, remedy in (
        (torch.float32, "its weights may hold such numbers"),
        (torch.bfloat16, "give --dtype float32"),
    ):
        with pytest.raises(PairError, match=f"not finite in .*; {remedy}"):
            probe(load_model(str(folder), CPU, dtype))
