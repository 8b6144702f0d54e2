"""The stand-ins for a GPU detect work that a GPU would refuse or replay wrongly; rounds contain no such work."""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen2Config

from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.forward.static.hf import ModuleStatic
from decoder.forward.static.static_forward import static_forward, visibility
from decoder.methods.dynatree import DynaTree
from decoder.models.pair import Pair
from decoder.session.cuda_graph import verify
from decoder.session.cuda_graph.capture_guard import NotCapturableError
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import Side, side_of
from decoder.tree_rules import Rules
from tests import tiny
from tests.decoder.makers import TinyModels
from tests.decoder.session.cuda_graph.matching import match, recorded, records, with_slots
from tests.fake_cuda.recording import record

PROMPT = "The tree grows"


# Records


def test_a_record_repeats_operations_on_the_tensors_that_were_there() -> None:
    total, step = torch.zeros(3), torch.ones(3)
    repeated = record(lambda: total.add_(step * 2)[1:].mul_(-1).neg_())
    step.fill_(5)
    repeated()
    repeated()
    assert total.tolist() == [20, 20, 20]


def test_what_is_chosen_by_indices_is_chosen_anew() -> None:
    numbers, places, found = torch.arange(4), torch.tensor([0, 2]), torch.zeros(2, dtype=torch.int64)
    repeated = record(lambda: found.copy_(numbers[places]))
    places.add_(1)
    repeated()
    assert found.tolist() == [1, 3]


def test_to_record_changes_nothing() -> None:
    total = torch.arange(4)
    record(lambda: total.view(2, 2)[1].fill_(7))
    assert total.tolist() == [0, 1, 2, 3]


def test_what_was_made_meanwhile_is_garbage_afterwards() -> None:
    kept: list[Tensor] = []
    number = torch.ones(2)
    repeated = record(lambda: kept.append(number + 1))
    repeated()
    assert (kept[0] > 1e30).all()


@pytest.mark.parametrize(
    "work",
    [
        lambda numbers: numbers[0].item(),
        lambda numbers: int(numbers[0]),
        lambda numbers: bool(numbers.any()),
        lambda numbers: 2.0 in numbers,
        lambda numbers: range(3)[numbers[0].long()],
        lambda numbers: numbers.tolist(),
        lambda numbers: numbers.numpy(),
        lambda numbers: numbers.cpu(),
        lambda numbers: torch.equal(numbers, numbers),
        lambda numbers: numbers.nonzero(),
        lambda numbers: torch.where(numbers > 0),
        lambda numbers: numbers[numbers > 0],
        lambda numbers: numbers.masked_select(numbers > 0),
        lambda numbers: numbers.unique(),
        lambda numbers: numbers.repeat_interleave(numbers.long()),
        lambda numbers: numbers.index_put_((numbers > 0,), numbers[:1]),
        lambda numbers: numbers + torch.tensor([1.0, 2.0]),
        lambda numbers: numbers[[0, 1]],
        lambda numbers: numbers + torch.as_tensor(3.0),
        lambda numbers: torch.asarray([1.0]) + numbers,
        lambda numbers: numbers.new_tensor(3.0),
    ],
)
def test_numbers_that_go_to_the_host_or_come_from_it_are_refused(work: Callable[[Tensor], object]) -> None:
    numbers = torch.ones(2)
    for mode in (torch.inference_mode, torch.no_grad):
        with mode(), pytest.raises(NotCapturableError):
            record(lambda: work(numbers))


def test_memory_that_was_freed_is_noticed() -> None:
    held = {"number": torch.ones(2)}
    total = torch.zeros(2)
    repeated = record(lambda: total.add_(held["number"][:1]))
    repeated()
    held["number"] = torch.ones(2)
    gc.collect()
    with pytest.raises(NotCapturableError, match="freed"):
        repeated()


# Mistakes that plain calls do not reveal


def played(tiny_models: TinyModels, place: Callable[[Engine], Engine]) -> None:
    pair = tiny_models.pair("neox")
    match(place(tiny_models.loaded(pair, "float64")), tiny_models.prompt_tokens(pair, PROMPT), 12, None)


def with_start(patch: pytest.MonkeyPatch, start_of: Callable[[Tensor], float]) -> None:
    """Patches the mask of the verification so that its first visible position comes from `start_of`."""
    right = verify.tree_bias

    def seen(side: Side, columns: Tensor, own: Tensor, above: Tensor) -> Tensor:
        return right(side, columns, torch.full_like(own, start_of(own[0])), above)

    patch.setattr(verify, "tree_bias", seen)


def test_a_number_that_the_host_put_in_is_stale_in_the_next_round(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_start(monkeypatch, lambda start: ctypes.c_int64.from_address(start.data_ptr()).value)
    played(tiny_models, with_slots)
    with pytest.raises(AssertionError):
        played(tiny_models, recorded)


def test_a_number_that_is_read_back_is_noticed(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    with_start(monkeypatch, lambda start: start.item())
    played(tiny_models, with_slots)
    with pytest.raises(NotCapturableError):
        played(tiny_models, recorded)


def test_a_tensor_that_another_takes_the_place_of_is_noticed(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = DeviceState.begin

    def elsewhere(state: DeviceState, *text: Any) -> None:
        state.text = torch.zeros_like(state.text)
        right(state, *text)

    monkeypatch.setattr(DeviceState, "begin", elsewhere)
    for place in (with_slots, recorded):
        pair = place(tiny_models.loaded(tiny_models.pair("neox"), "float64"))
        match(pair, [1, 2, 3], 12, None)
        if place is with_slots:
            match(pair, [1, 2, 3], 12, None)
            continue
        with pytest.raises(NotCapturableError, match="freed"):
            match(pair, [1, 2, 3], 12, None)


# Rounds


def test_a_text_grows_from_one_range_of_slots_to_the_next_within_its_records(tiny_models: TinyModels) -> None:
    pair = recorded(tiny_models.loaded(tiny_models.pair("long"), "float64"))
    rounds = [match(pair, [7 * place % 260 for place in range(start)], 60, DynaTree()) for start in (150, 240, 350)]
    assert records(pair) < sum(map(len, rounds)) / 2


@pytest.mark.parametrize("rules", [None, DynaTree(selection="best", n_max=9)], ids=["ar", "best"])
def test_the_module_of_another_family_is_repeated_too(tiny_models: TinyModels, rules: Rules | None) -> None:
    pair = qwen2(tiny_models)
    match(recorded(pair, by_module=True), [1, 2, 3, 4], 30, rules)


def qwen2(tiny_models: TinyModels) -> Engine:
    settings = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2Config(**tiny._common(settings | {"intermediate_size": 64}))
    target = tiny.build(config, seed=1)
    models = [LanguageModel.of_module(module.double(), "qwen2") for module in (tiny.kin(target, seed=2), target)][::-1]
    loaded: Engine = tiny_models.loaded(tiny_models.pair("llama"), "float64")
    return Engine(
        Pair(
            target=models[0],
            draft=models[1],
            tokenizer=loaded.pair.tokenizer,
            eos=frozenset(),
            context=models[0].context,
        )
    )


def side(model: LanguageModel, engine: Engine, *, by_module: bool) -> Side:
    passes = ModuleStatic(model.hf.module) if by_module else static_forward(model)
    return side_of(model, passes, passes.new_store(1500), engine.pair)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["neox", "llama"])
def test_native_layers_are_as_right_in_half_precision_as_the_module_is(
    tiny_models: TinyModels, family: str, dtype: str
) -> None:
    right = logits(tiny_models, family, "float64", by_module=True)
    native, module = (logits(tiny_models, family, dtype, by_module=by_module) for by_module in (False, True))
    assert 0 < float((native - right).abs().max()) < 2 * float((module - right).abs().max())


@torch.inference_mode()
def logits(tiny_models: TinyModels, family: str, dtype: str, *, by_module: bool) -> Tensor:
    engine: Engine = tiny_models.loaded(tiny_models.pair(family), dtype)
    target, places = side(engine.pair.target, engine, by_module=by_module), torch.arange(12)
    bias = visibility(places[0], torch.ones(12, 12).tril().bool(), 256, target.store.dtype)
    return target.logits(places + 3, places, places, bias).double()
