"""What several processes of a target exclude is refused in one sentence, before anything is loaded."""

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from decoder import RunConfig, load_pair
from decoder.errors import ConfigError
from decoder.tensor_parallel import check
from decoder.tensor_parallel.ranks import VARIABLES, Ranks, ranks_here
from tests import tiny
from tests.decoder.makers import TinyModels
from tests.decoder.tensor_parallel.started_ranks import FIRST_OF_TWO, require_spreadable, start_as, variables
from tests.heads import name as head_of


@pytest.fixture
def _first_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    start_as(FIRST_OF_TWO, monkeypatch)


def test_ranks_are_what_torchrun_tells_and_one_process_of_one_is_as_good_as_alone() -> None:
    found = Ranks(3, 4, local=1, local_count=2)
    assert ranks_here(variables(found)) == found
    assert (FIRST_OF_TWO.leads, found.leads) == (True, False)
    assert ranks_here(variables(Ranks(0, 1, local=0, local_count=1))) is None


@pytest.mark.parametrize("missing", VARIABLES)
def test_a_process_that_nobody_has_told_its_rank_is_alone(missing: str) -> None:
    assert ranks_here({name: value for name, value in variables(FIRST_OF_TWO).items() if name != missing}) is None


def test_a_rank_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="RANK is 'one'"):
        ranks_here(variables(FIRST_OF_TWO) | {"RANK": "one"})


@pytest.mark.parametrize(
    ("family", "count", "said"),
    [
        ("llama", 3, "4 attention heads, which 3 processes"),
        ("llama", 4, "2 key and value heads, which 4 processes"),
        ("neox", 3, "4 attention heads, which 3 processes"),
        ("gpt2", 2, "family gpt2, for which transformers has no tensor-parallel plan"),
    ],
)
def test_a_target_that_cannot_be_shared_is_refused_and_one_whose_heads_divide_is_not(
    family: str, count: int, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        require_spreadable(tiny.FAMILIES[family](), count)
    assert "\n" not in str(refused.value)
    for other in ("llama", "neox", "qwen3"):
        require_spreadable(tiny.FAMILIES[other]())


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

    with pytest.raises(ConfigError, match="has 1 key and value heads, which 2 processes"):
        require_spreadable(Uneven())


def test_the_missing_package_is_named_with_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"need the package accelerate, .*; install dynatui\[tensor-parallel\]"):
        require_spreadable(tiny.FAMILIES["llama"]())


@pytest.mark.parametrize(
    ("device", "present", "said"),
    [
        ("cuda", 1, "2 processes of the target run on this machine, which has only 1 CUDA"),
        ("cpu", 1, "set CUDA_VISIBLE_DEVICES to an empty value"),
        ("cuda:1", 2, "give --device cuda"),
    ],
)
def test_a_device_that_not_every_rank_can_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, device: str, present: int, said: str
) -> None:
    monkeypatch.setattr(check, "choose_device", torch.device)
    monkeypatch.setattr(check, "device_count", lambda: present)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with pytest.raises(ConfigError, match=said):
        check.rank_device(FIRST_OF_TWO, device)
    assert check.rank_device(Ranks(1, 2, local=0, local_count=1), "cuda") == torch.device("cuda", 0)


@pytest.mark.usefixtures("_first_of_two")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"exact": True}, "--exact computes with the whole target"),
        ({"compiled": True}, "--compile compiles the whole"),
        ({"inflate": "500M"}, "--inflate makes the whole"),
        ({"run": RunConfig(("dynatree", "hf", "streaming"))}, "hf, streaming need the whole target"),
    ],
)
def test_a_pair_that_is_asked_for_what_needs_the_whole_target_is_not_loaded(given: dict[str, Any], said: str) -> None:
    loading: list[str] = []
    with pytest.raises(ConfigError, match=f"^{said}"):
        load_pair(device="cpu", report=loading.append, **given)
    assert not any("loading" in step for step in loading)


@pytest.mark.usefixtures("_first_of_two")
def test_a_head_is_refused_before_its_target_is_loaded(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair(head_of("llama", "flat"))
    with pytest.raises(ConfigError, match=r"^a drafting head reads the layers of the whole target.*; leave it out, or"):
        load_pair(str(pair.target), str(pair.draft), device="cpu", report=lambda _: pytest.fail("it is loaded"))
