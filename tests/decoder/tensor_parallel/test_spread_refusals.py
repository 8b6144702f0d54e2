"""Settings that exclude tensor parallelism are refused in one sentence, before anything is loaded."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from decoder import RunConfig, load_pair
from decoder.errors import ConfigError
from decoder.tensor_parallel import check, target
from decoder.tensor_parallel.ranks import VARIABLES, Ranks, in_group, ranks_of
from tests import tiny
from tests.decoder.makers import TinyModels
from tests.eagle3_checkpoints import name as head_of

TWO = Ranks(0, 2, local=0, local_count=2)


@pytest.fixture
def _first_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TWO.variables().items():
        monkeypatch.setenv(name, value)


def test_ranks_are_what_torchrun_tells() -> None:
    found = Ranks(3, 4, local=1, local_count=2)
    assert in_group(found.variables())
    assert ranks_of(4, found.variables()) == found
    assert (TWO.leads, found.leads) == (True, False)


@pytest.mark.parametrize("missing", VARIABLES)
def test_a_process_that_nobody_has_told_its_rank_is_refused(missing: str) -> None:
    variables = {name: value for name, value in TWO.variables().items() if name != missing}
    with pytest.raises(ConfigError, match="torchrun --nproc-per-node 2"):
        ranks_of(2, variables)


def test_another_number_of_processes_than_asked_for_is_refused() -> None:
    with pytest.raises(ConfigError, match="--tensor-parallel is 4, but WORLD_SIZE says that 2"):
        ranks_of(4, TWO.variables())


def test_a_rank_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="RANK is 'one'"):
        ranks_of(2, TWO.variables() | {"RANK": "one"})


@pytest.mark.parametrize(
    ("family", "count", "said"),
    [
        ("llama", 3, "4 attention heads, which 3 processes"),
        ("llama", 4, "2 key and value heads, which 4 processes"),
        ("neox", 3, "4 attention heads, which 3 processes"),
        ("gpt2", 2, "family gpt2, for which transformers has no tensor-parallel plan"),
    ],
)
def test_a_target_that_cannot_be_shared_is_refused(family: str, count: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        check.require_plan("tiny", tiny.FAMILIES[family](), count)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("family", ["llama", "neox", "qwen3"])
def test_a_target_whose_heads_divide_is_not(family: str) -> None:
    check.require_plan("tiny", tiny.FAMILIES[family](), 2)


def test_a_target_whose_layers_differ_is_refused_for_any_of_them() -> None:
    """In transformers, a number that differs between layers has no single value."""

    class Uneven:
        base_model_tp_plan: ClassVar = {"layers.*.self_attn.q_proj": "colwise"}
        model_type = "uneven"
        num_attention_heads = 4
        per_layer_config = (SimpleNamespace(num_key_value_heads=4), SimpleNamespace(num_key_value_heads=1))

        def get_text_config(self) -> "Uneven":
            return self

        @property
        def num_key_value_heads(self) -> int:
            raise RuntimeError("it differs from layer to layer")

    with pytest.raises(ConfigError, match="uneven has 1 key and value heads, which 2 processes"):
        check.require_plan("uneven", Uneven(), 2)


def test_more_processes_than_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "device_count", lambda: 1)
    with pytest.raises(
        ConfigError, match="2 processes of --tensor-parallel run on this machine, which has only 1 CUDA"
    ):
        check.require_devices("cuda", TWO)
    check.require_devices("cuda", Ranks(1, 2, local=0, local_count=1))


def test_a_cpu_beside_accelerators_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with pytest.raises(ConfigError, match="set CUDA_VISIBLE_DEVICES to an empty value"):
        check.require_devices("cpu", TWO)


def test_one_device_for_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="give --device cuda"):
        target.rank_device(TWO, "cuda:1")


def test_the_missing_package_is_named_with_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"needs the package accelerate, .*; install dynatui\[tensor-parallel\]"):
        check.require_packages()


@pytest.mark.usefixtures("_first_of_two")
def test_a_head_is_refused_before_its_target_is_loaded(tiny_models: TinyModels) -> None:
    loading: list[str] = []
    pair = tiny_models.pair(head_of("llama", "flat"))
    with pytest.raises(ConfigError, match=r"^a drafting head reads .*; give a draft model or --draft lookup, or leave"):
        load_pair(str(pair.target), str(pair.draft), device="cpu", tensor_parallel=2, report=loading.append)
    assert loading == []


@pytest.mark.parametrize("count", [0, -1])
def test_no_process_at_all_is_refused(count: int) -> None:
    with pytest.raises(
        ConfigError, match=f"^tensor_parallel is {count}, which is not a valid number of processes; give 1"
    ):
        load_pair(device="cpu", tensor_parallel=count)


@pytest.mark.usefixtures("_first_of_two")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"exact": True}, "--exact computes with the whole target"),
        ({"compiled": True}, "--compile compiles the whole"),
        ({"run": RunConfig(("dynatree", "hf", "streaming"))}, "hf, streaming need the whole target"),
    ],
)
def test_a_pair_that_is_asked_for_what_needs_the_whole_target_is_not_loaded(given: dict[str, Any], said: str) -> None:
    loading: list[str] = []
    with pytest.raises(ConfigError, match=f"^{said}"):
        load_pair(tensor_parallel=2, report=loading.append, **given)
    assert not loading
