"""The static form for CUDA graphs takes the place of a loaded module layer by layer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from decoder import load_pair
from decoder.errors import PairError
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.native import NativeModel
from decoder.forward.families.registry import reading_bytes, weight_bytes
from decoder.forward.hf import ModuleForward
from decoder.forward.hf_module import HfModule, OnDemand
from decoder.forward.language_model import LanguageModel
from decoder.forward.static.hf import ModuleStatic
from decoder.forward.static.static_forward import StaticForward, static_forward, static_in_place, visibility
from decoder.models import checkpoints
from decoder.models.checkpoints import load_model
from decoder.models.compatibility import probe
from decoder.models.pair import Pair
from tests import tiny
from tests.decoder.family_models import MODELS, laid_out_anew, made
from tests.decoder.live_tensors import Live
from tests.decoder.makers import TinyModels

CPU = torch.device("cpu")


@pytest.fixture
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are loaded as on a device with CUDA graphs."""
    monkeypatch.setattr("decoder.forward.language_model.native_on_cpu", lambda *_: None)


@pytest.fixture
def pair(tiny_models: TinyModels, _elsewhere: None) -> Pair:
    saved = tiny_models.pair("neox")
    return load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32").pair


@torch.no_grad()
def logits(form: StaticForward) -> Tensor:
    """Logits of a text of seven tokens."""
    store, places = form.new_store(16), torch.arange(7)
    bias = visibility(places[0], torch.ones((7, 7), dtype=torch.bool).tril(), 16, store.dtype)
    tokens = torch.tensor([3, 1, 4, 1, 5, 9, 2])
    return form.computed(store, tokens, form.rotation(store, places), places, bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("_elsewhere")
def test_logits_have_the_bits_of_a_form_that_was_read_from_its_module(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    made(name).save_pretrained(tmp_path)
    module = laid_out_anew(AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype).eval())
    model = load_model(str(tmp_path), CPU, dtype)
    assert isinstance(model.runs_by, NativeModel)
    assert torch.equal(logits(model.runs_by), logits(static_forward(LanguageModel.of_module(module, "module"))))


def test_graphs_run_by_the_form_that_a_model_was_loaded_in(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HfModule, "load", lambda *_: pytest.fail("no module is needed"))
    for model in (pair.target, pair.draft_model):
        loaded = model.runs_by
        assert isinstance(loaded, NativeModel)
        assert static_in_place(model) is loaded
        assert model.runs_by is loaded


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("family", ["neox", "llama"])
@pytest.mark.usefixtures("_elsewhere")
def test_no_more_than_one_layer_is_held_twice(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    config = tiny.FAMILIES[family](hidden_size=64, num_hidden_layers=16, intermediate_size=256)
    tiny.build(config, seed=1).save_pretrained(tmp_path)
    with Live() as live:
        model = load_model(str(tmp_path), CPU, dtype)
    assert isinstance(model.runs_by, NativeModel)
    look = Architecture.of(config)
    whole = weight_bytes(look, dtype)
    assert live.most <= whole * 1.1 + reading_bytes(look, dtype)
    assert reading_bytes(look, dtype) < whole / 2
    assert live.bytes < 1.1 * whole


@pytest.mark.usefixtures("_elsewhere")
def test_where_there_is_no_room_to_read_it_a_model_runs_by_its_module(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[torch.device, int]] = []
    monkeypatch.setattr("decoder.forward.static.static_forward.has_room", lambda *given: asked.append(given))
    folder = str(tiny_models.pair("neox").target)
    model, look = load_model(folder, CPU, torch.bfloat16), Architecture.of(checkpoints.load_config(folder))
    assert asked == [(CPU, reading_bytes(look, torch.bfloat16))]
    assert isinstance(model.runs_by, ModuleForward)
    assert model.hf.loaded is not None
    monkeypatch.setattr("decoder.forward.static.static_forward.has_room", lambda *_: False)
    form = static_in_place(model)
    assert isinstance(form, ModuleStatic)
    assert form.reason == "0.0 GiB more memory would be needed to make the native model of target"


def test_a_form_that_is_exact_on_a_device_is_that_of_the_module_and_no_other_is_held(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[Any] = []
    right = HfModule.load

    def loaded(module: HfModule, device: torch.device) -> Any:
        running.append(pair.target.runs_by)
        return right(module, device)

    monkeypatch.setattr(HfModule, "load", loaded)
    exact = pair.target.exact()
    assert [type(form) for form in running] == [OnDemand]
    assert exact.hf.loaded is not None


@pytest.mark.usefixtures("_elsewhere")
def test_a_model_that_overflows_on_its_device_is_refused(tmp_path: Path) -> None:
    module = tiny.build(tiny.FAMILIES["llama"](), seed=1)
    module.get_output_embeddings().weight.data.mul_(1e4)
    module.save_pretrained(tmp_path)
    probe(load_model(str(tmp_path), CPU, torch.float32))
    with pytest.raises(PairError, match=r"computes logits that are not finite in float16; .*float32"):
        probe(load_model(str(tmp_path), CPU, torch.float16))


def test_a_tree_that_is_computed_otherwise_than_plain_text_is_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = NativeModel._hidden

    def blind(
        form: NativeModel, store: Tensor, tokens: Tensor, rotation: Tensor, slots: Tensor, biases: Mapping[str, Tensor]
    ) -> Tensor:
        """Clears the mask, so that every row sees its siblings."""
        seeing = {kind: torch.zeros_like(bias) for kind, bias in biases.items()}
        return right(form, store, tokens, rotation, slots, seeing)

    probe(pair.target)
    monkeypatch.setattr(NativeModel, "_hidden", blind)
    with pytest.raises(
        Exception, match="target computes different logits for a draft tree of 34 nodes than for plain text"
    ):
        probe(pair.target)
