"""Passes of fixed shape have the logits of Hugging Face modules, in every dtype and with attention windows; the host's
rounds take them too; tapped passes store the layer states that `LayerStates` of ordinary passes hold.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from decoder import load_pair
from decoder.forward.families.model import Heads, RotationMatrices, rotate_heads
from decoder.forward.families.native import NativeModel, aligned
from decoder.forward.families.registry import FIXED, NEOX
from decoder.forward.hf_module import HfModule, OnDemand
from decoder.forward.language_model import LanguageModel
from decoder.forward.static_forward import StaticForward, static_in_place
from decoder.forward.static_hf import ModuleStatic
from decoder.forward.taps import LayerStates
from decoder.models.checkpoints import load_model
from decoder.models.pair import Pair
from decoder.session.cuda_graph.draft import DraftPart
from decoder.session.cuda_graph.heads import TappedTarget
from decoder.session.cuda_graph.slots import BEYOND, causal_bias, read_logits
from decoder.session.cuda_graph.verify import ancestors, tree_bias
from tests import tiny
from tests.decoder.family_models import MODELS, laid_out_anew, made, static_of
from tests.decoder.makers import TinyModels, graph_slots
from tests.decoder.random_trees import errors, path
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device
from tests.heads import target

CPU = torch.device("cpu")
IN_HALVES = ("neox", "neox, one after the other", "neox, odd heads", "llama", "qwen2", "mistral, windows of 8")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_random_trees_are_the_module_s_in_float64(name: str) -> None:
    form, module = static_of(made(name, torch.float64)), made(name, torch.float64)
    assert max(errors(form, module, seed, module)[0] for seed in range(5)) < 1e-11


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", IN_HALVES)
def test_half_precision_is_about_as_exact_as_in_the_module(name: str, dtype: torch.dtype) -> None:
    form, module = static_of(made(name, dtype)), made(name, dtype)
    judge = made(name, dtype).double()
    mine, its = zip(*(errors(form, module, seed, judge) for seed in range(4)), strict=True)
    assert 0 < sum(mine) < 1.5 * sum(its)


@pytest.mark.parametrize("rotated", [2, 6, 8])
def test_a_matrix_turns_a_head_and_keeps_it_too(rotated: int) -> None:
    rows = torch.randn(5, 3, 8, dtype=torch.float64)
    angles = torch.randn(5, rotated // 2, dtype=torch.float64)
    rotation = torch.polar(torch.ones_like(angles), angles)[:, None, None]
    matrices = RotationMatrices(Heads(1, 1, 8, rotated), rows.dtype, rows.device).matrices(rotation)
    by_formula = rotate_heads(rows.transpose(0, 1), rotation, rotated).transpose(0, 1)
    torch.testing.assert_close(torch.bmm(rows, matrices), torch.cat((by_formula, rows), 2), rtol=0, atol=1e-14)


@torch.no_grad()
def test_rows_at_one_position_are_turned_alike_in_bfloat16() -> None:
    form = static_of(made("llama", torch.bfloat16))
    cache = form.new_cache(16)
    form.read(cache, [1, 2, 3])
    first, second = form.forward(cache, [4, 4], [3, 3], np.eye(2, dtype=np.bool_))
    assert bool(first.any())
    assert torch.equal(first, second)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NEOX.activations)
def test_an_activation_maps_the_constant_that_carries_a_bias_to_itself(kind: str, dtype: torch.dtype) -> None:
    constant: Tensor = torch.tensor([[FIXED, 0.0]], dtype=dtype)
    activation = NEOX.activations[kind]
    assert torch.equal(activation.formula(constant), constant)
    assert torch.equal(activation.in_place(constant.clone()), constant)


# Windows

WINDOWED = ("mistral, windows of 8", "qwen2, windows in half of its layers")
TEXT = [(7 * place * place + 3) % 96 for place in range(40)]
SLOTS = 256
PARENTS = [0, 0, 0, 1, 1, 2, 5, 3]
"""Parent of each tree node, of the root the root itself; the tree is shallower than the windows."""
TOKENS, PATHS = [(11 * node + 5) % 96 for node in range(8)], [path([-1, *PARENTS[1:]], node) for node in range(8)]
ABOVE = ancestors(torch.tensor(PARENTS), 4, torch.eye(len(PARENTS)))
FORMS: dict[str, Callable[[Any], StaticForward]] = {
    "native": static_of,
    "native, for a compiler": lambda module: static_of(module).for_a_compiler(),
    "module": ModuleStatic,
}


def tree_logits(side: DraftPart, first: int) -> Tensor:
    """Logits of the tree after a text of `first` tokens, whose rows go to the slots after the text."""
    places = torch.tensor([first + len(above) - 1 for above in PATHS])
    slots = torch.arange(first, first + len(PARENTS))
    return side.logits(torch.tensor(TOKENS), places, slots, tree_bias(side, torch.arange(SLOTS), slots, ABOVE))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WINDOWED)
@torch.no_grad()
def test_text_and_tree_beyond_the_windows_have_the_logits_of_the_module(name: str, form: str) -> None:
    module = made(name, torch.float64)

    def plain(tokens: list[int]) -> Tensor:
        logits: Tensor = module(torch.tensor([tokens]), use_cache=False).logits[0]
        return logits

    forward = FORMS[form](module)
    side = DraftPart(forward, forward.new_store(SLOTS + BEYOND), 96, 192)
    torch.testing.assert_close(read_logits(side, TEXT[:30]), plain(TEXT[:30]), rtol=0, atol=1e-10)
    places = torch.arange(30, len(TEXT))
    rest = side.logits(torch.tensor(TEXT[30:]), places, places, causal_bias(side.store, len(places), 30))
    torch.testing.assert_close(rest, plain(TEXT)[30:], rtol=0, atol=1e-10)
    right = torch.stack([plain(TEXT + [TOKENS[each] for each in nodes])[-1] for nodes in PATHS])
    torch.testing.assert_close(tree_logits(side, len(TEXT)), right, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["mistral", "qwen2"])
@torch.no_grad()
def test_layers_without_windows_have_rotations_and_nothing_else_in_their_tables(name: str) -> None:
    form = static_of(made(name))
    store = form.new_store(16)
    assert form.rotation(store, torch.arange(3)).shape[3] == form.rotary.width // 2


# Layer states

LAYERS = (0, 2, 7)


def ordinary(module: Any) -> Tensor:
    """Layer states of the first tokens of the text and of the tree after them, from ordinary passes."""
    states = LayerStates(LAYERS)
    model = LanguageModel.of_module(module, "tiny").tapped(states)
    cache = model.new_cache(32)
    model.read(cache, TEXT[:5])
    text = states.take(range(5))
    model.forward(cache, TOKENS, [5 + len(above) - 1 for above in PATHS], ABOVE.numpy().astype(np.bool_))
    return torch.cat((text, states.take(range(len(TOKENS)))))


def tapped(form: NativeModel) -> TappedTarget:
    return TappedTarget(form, form.new_store(SLOTS + BEYOND), tiny.VOCABULARY, tiny.CONTEXT, LAYERS)


@pytest.mark.parametrize("family", ["neox", "llama"])
@torch.no_grad()
def test_states_are_stored_by_slot_and_logits_keep_their_bits(family: str) -> None:
    module = target(family)
    forward = static_of(module)
    side, plain = tapped(forward), DraftPart(forward, forward.new_store(SLOTS + BEYOND), tiny.VOCABULARY, tiny.CONTEXT)
    found, expected = ((read_logits(each, TEXT[:5]), tree_logits(each, 5), each.store) for each in (side, plain))
    assert all(map(torch.equal, found, expected))
    states = ordinary(module)
    torch.testing.assert_close(side.states[: len(states)], states, rtol=0, atol=1e-4)
    assert not side.states[len(states) :].any()


@torch.no_grad()
def test_an_accepted_path_moves_with_its_states() -> None:
    side = tapped(static_of(target("llama")))
    read_logits(side, TEXT[:5])
    tree_logits(side, 5)
    states, store = side.states.clone(), side.store.clone()
    side.move(torch.tensor([7, 8]), torch.tensor([6, 7]))
    assert torch.equal(side.states[6:8], states[7:9])
    assert torch.equal(side.store[:, :, :, 6:8], store[:, :, :, 7:9])
    assert torch.equal(side.states[:6], states[:6])


@torch.no_grad()
def test_a_static_form_that_the_host_drives_writes_layer_states_too() -> None:
    """Rounds whose trees are too large for fixed shapes need the head's states as well."""
    module, states = target("llama"), LayerStates(LAYERS)
    form = static_of(module).tapped(states)
    form.read(form.new_cache(32), TEXT[:5])
    torch.testing.assert_close(states.take(range(5)), ordinary(module)[:5], rtol=0, atol=1e-4)


# Passes that the host drives


@torch.inference_mode()
def test_what_the_host_asks_for_is_computed_where_the_weights_are(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox")
    with fake_cuda():
        moved = on_fake_device(engine)
        forward = graph_slots(moved).forward(moved.pair.target)
        assert isinstance(forward, NativeModel)
        cache = forward.new_cache(20)
        assert cache.store.is_cuda
        assert forward.read(cache, [1, 2, 3]).is_cuda
        assert forward.forward(cache, [4, 5, 6], [3, 4, 4], np.tri(3, dtype=np.bool_)).is_cuda
        cache.keep([3, 5])
    assert (cache.length, cache.used) == (5, 5)


@pytest.mark.parametrize(("rows", "wanted"), [(1, 8), (8, 8), (9, 16), (250, 256)])
def test_a_mask_is_as_wide_as_kernels_want_it(rows: int, wanted: int) -> None:
    assert aligned(rows) == wanted


def test_a_cache_takes_no_rotations_that_graphs_would_keep() -> None:
    form = static_of(made("neox"))
    before = dict(form.tables)
    with torch.inference_mode():
        form.new_cache(77)
    assert form.tables == before


# Forms that are read from a checkpoint layer by layer, as on a device with CUDA graphs


@pytest.fixture
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.forward.language_model.native_on_cpu", lambda *_: None)


ELSEWHERE = pytest.mark.usefixtures("_elsewhere")


@pytest.fixture
def loaded(tiny_models: TinyModels, _elsewhere: None) -> Pair:
    saved = tiny_models.pair("neox")
    return load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32").pair


@torch.no_grad()
def text_logits(form: StaticForward) -> Tensor:
    return read_logits(DraftPart(form, form.new_store(SLOTS), 96, 192), [3, 1, 4, 1, 5, 9, 2])


@ELSEWHERE
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_logits_have_the_bits_of_a_form_that_was_read_from_its_module(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    made(name).save_pretrained(tmp_path)
    module = laid_out_anew(AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype).eval())
    model = load_model(str(tmp_path), CPU, dtype)
    assert isinstance(model.runs_by, NativeModel)
    assert torch.equal(text_logits(model.runs_by), text_logits(static_of(module)))


def test_graphs_run_by_the_form_that_a_model_was_loaded_in(loaded: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HfModule, "load", lambda *_: pytest.fail("no module is needed"))
    for model in loaded.models.values():
        form = model.runs_by
        assert isinstance(form, NativeModel)
        assert static_in_place(model) is form
        assert model.runs_by is form


def test_a_form_that_is_exact_on_a_device_is_that_of_the_module_and_no_other_is_held(
    loaded: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[Any] = []
    right = HfModule.load

    def load(module: HfModule, device: torch.device) -> Any:
        running.append(loaded.target.runs_by)
        return right(module, device)

    monkeypatch.setattr(HfModule, "load", load)
    exact = loaded.target.exact()
    assert [type(form) for form in running] == [OnDemand]
    assert exact.hf.loaded is not None
