"""Near ties are judged by float32 logits, computed layer by layer on a device with enough memory; under sampling, by
scores with noise, or by whether truncation depends on rounding.
"""

import copy
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from msgspec import structs
from torch import Tensor, nn

from decoder import RunConfig, decode
from decoder.analysis.metrics import RunFold
from decoder.errors import DeviceError
from decoder.forward import near_tie as neartie
from decoder.forward.hf_module import HfModule
from decoder.forward.language_model import LanguageModel
from decoder.forward.near_tie import CHUNK, Judge, Scorer, _at_edge, in_float32_by_layer
from decoder.run import race
from decoder.sampling.noise import GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from tests import tiny
from tests.decoder.family_models import laid_out_anew
from tests.decoder.makers import TinyModels
from tests.fake_cuda.driver import fake_cuda

PROMPT = "The tree grows where the draft is sure"
FAMILIES = ("neox", "llama", "qwen3", "gpt2")
CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def scores(module: Any, prefix: list[int]) -> Tensor:
    """Logits of a float32 copy of the whole module."""
    with torch.inference_mode():
        found: Tensor = copy.deepcopy(module).float()(torch.tensor([prefix])).logits[0]
    return found


def half(models: TinyModels, family: str, dtype: str = "bfloat16") -> Any:
    """A module of one's own."""
    return copy.deepcopy(models.engine(family, dtype).pair.target.hf.module)


def prefix_of(models: TinyModels, family: str) -> list[int]:
    return models.prompt_tokens(family, PROMPT)


def layers(module: Any) -> list[Any]:
    return [layer for part in module.modules() if isinstance(part, nn.ModuleList) for layer in part]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("family", FAMILIES)
def test_layer_by_layer_a_module_computes_what_a_copy_in_float32_does(
    tiny_models: TinyModels, family: str, dtype: str
) -> None:
    # The compared float32 copy has newly allocated weights too.
    module, prefix = laid_out_anew(half(tiny_models, family, dtype)), prefix_of(tiny_models, family)
    with torch.inference_mode(), in_float32_by_layer(module, CPU):
        found = module(torch.tensor([prefix])).logits[0]
    assert found.dtype is torch.float32
    assert torch.equal(found, scores(module, prefix))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_more_than_one_layer_is_in_float32_and_each_has_its_own_weights_back(
    tiny_models: TinyModels, family: str
) -> None:
    module = half(tiny_models, family)
    before, wide = list(module.named_parameters()), list[int]()

    def count(*_: object) -> None:
        wide.append(sum(any(weight.dtype is torch.float32 for weight in part.parameters()) for part in layers(module)))

    handles = [layer.register_forward_hook(count, prepend=True) for layer in layers(module)]
    with torch.inference_mode(), in_float32_by_layer(module, CPU):
        module(torch.tensor([[1, 2, 3]]))
    assert wide == [1] * len(layers(module))
    for handle in handles:
        handle.remove()
    assert all(now is was for (_, now), (_, was) in zip(module.named_parameters(), before, strict=True))
    assert not [part for part in module.modules() if part._forward_hooks or part._forward_pre_hooks]


def test_a_layer_that_fails_has_its_own_weights_back(tiny_models: TinyModels) -> None:
    module = half(tiny_models, "neox")
    before = dict(module.named_parameters())

    class Broken(nn.Module):
        def forward(self, *_: object, **__: object) -> None:
            raise RuntimeError("broken")

    layers(module)[1].mlp = Broken()
    with torch.inference_mode(), in_float32_by_layer(module, CPU), pytest.raises(RuntimeError, match="broken"):
        module(torch.tensor([[1, 2, 3]]))
    assert all(weight is before[name] for name, weight in module.named_parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_scored_on_another_device_with_all_that_is_theirs(tiny_models: TinyModels, family: str) -> None:
    module = half(tiny_models, family)
    with fake_cuda(), torch.inference_mode(), in_float32_by_layer(module, CUDA):
        found = module(input_ids=torch.tensor([[1, 2, 3]], device=CUDA)).logits
    assert (found.device.type, found.dtype) == ("cuda", torch.float32)
    assert {weight.device for weight in module.parameters()} == {CPU}


def test_weights_beside_the_layers_are_widened_too() -> None:
    seen: list[torch.dtype] = []

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2, dtype=torch.bfloat16)])
            self.scale = nn.Parameter(torch.full((2,), 1.5, dtype=torch.bfloat16))

        def forward(self, rows: Tensor) -> Tensor:
            for layer in self.layers:
                rows = layer(rows)
            seen.append(self.scale.dtype)
            return rows * self.scale

    module = nn.Sequential(Own())
    with in_float32_by_layer(module, CPU):
        module(torch.ones(1, 2))
    module(torch.ones(1, 2, dtype=torch.bfloat16))
    assert seen == [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("by_module", [False, True])
def test_a_long_text_is_judged_chunk_by_chunk_as_it_is_in_one(
    tiny_models: TinyModels, family: str, monkeypatch: pytest.MonkeyPatch, *, by_module: bool
) -> None:
    model, prefix = tiny_models.engine(family, "bfloat16").pair.target, prefix_of(tiny_models, family)
    assert len(prefix) > 16
    order = scores(model.hf.module, prefix)[-1].argsort().tolist()
    rivals = [(order[0], order[-1]), (order[-1], order[-2]), (order[3], order[4])]
    whole = [Judge(model)(prefix, each, by_module=by_module) for each in rivals]
    monkeypatch.setattr(neartie, "CHUNK", 5)
    for verdict, each in zip(whole, rivals, strict=True):
        found = Judge(model)(prefix, each, by_module=by_module)
        assert found.gap == pytest.approx(verdict.gap, abs=1e-4)
        assert found.near_tie is verdict.near_tie


# Devices with and without enough memory


class Loads:
    """A model without its module, and the devices to which the module is loaded again."""

    def __init__(self, model: LanguageModel, patch: pytest.MonkeyPatch) -> None:
        self.model = model
        self.asked: list[torch.device] = []
        self.full: set[torch.device] = set()
        model.slim()
        right = model.hf.load
        patch.setattr(model, "device", CUDA)
        patch.setattr(model.hf, "load", lambda device: self._loaded(device, right))

    def _loaded(self, device: torch.device, right: Any) -> Any:
        self.asked.append(device)
        if device in self.full:
            raise DeviceError("it does not fit")
        return right(CPU)


@pytest.fixture
def loads(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> Loads:
    model = copy.copy(tiny_models.engine("neox", "bfloat16").pair.target)
    model.hf = copy.copy(model.hf)
    found = Loads(model, monkeypatch)
    monkeypatch.setattr(neartie, "has_room", lambda *_: True)
    right = neartie._by_module
    monkeypatch.setattr(neartie, "_by_module", lambda module, prefix, _, *each: right(module, prefix, CPU, *each))
    monkeypatch.setattr(neartie, "in_float32_by_layer", lambda module, _: in_float32_by_layer(module, CPU))
    return found


def test_a_module_that_was_let_go_of_is_loaded_to_the_model_s_device_once_a_judge(loads: Loads) -> None:
    judge = Judge(loads.model)
    verdicts = [judge([1, 2, 3], (4, 5)) for _ in range(3)]
    assert loads.asked == [CUDA]
    assert len({verdict.gap for verdict in verdicts}) == 1
    assert loads.model.hf.loaded is None


@pytest.mark.parametrize(("free_bytes", "count"), [(1 << 40, 1), (0, 3), (None, 1)], ids=["room", "full", "unknown"])
def test_judges_of_several_texts_load_the_module_once_where_memory_has_room_beside_it(
    loads: Loads, monkeypatch: pytest.MonkeyPatch, free_bytes: int | None, count: int
) -> None:
    monkeypatch.setattr(neartie, "free_bytes", lambda _: free_bytes)
    scorer = Scorer()
    for _ in range(3):
        Judge(loads.model, None, scorer)([1, 2, 3], (4, 5))
        scorer.give_way()
    assert loads.asked == [CUDA] * count


def test_all_differences_of_a_run_share_one_judge_and_the_prompts_of_an_engine_the_module(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, loaded, made = tiny_models.engine("neox", "bfloat16"), list[torch.device](), list[LanguageModel]()
    model = copy.copy(engine.pair.target)
    model.hf = copy.copy(model.hf)
    engine = replace(engine, pair=replace(engine.pair, target=model))
    model.slim()
    right = model.hf.load

    def load(device: torch.device) -> Any:
        loaded.append(device)
        return right(device)

    def differing(figures: Any) -> Any:
        return {name: structs.replace(each, first_difference=0) for name, each in right_figures(figures).items()}

    def counted(judging: LanguageModel, *given: Any) -> Judge:
        made.append(judging)
        return Judge(judging, *given)

    right_figures = RunFold.figures
    monkeypatch.setattr(race, "Judge", counted)
    monkeypatch.setattr(model.hf, "load", load)
    monkeypatch.setattr(RunFold, "figures", differing)
    for prompt in ("The tree grows", "It was late"):
        list(decode(engine, prompt, RunConfig(("dynatree", "linear", "ar"), 4)))
    assert loaded == [CPU]
    assert made == [model] * 2


def test_where_it_would_not_fit_it_is_loaded_to_the_cpu(loads: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[torch.device, int]] = []
    monkeypatch.setattr(neartie, "has_room", lambda *given: asked.append(given))
    Judge(loads.model)([1, 2, 3], (4, 5))
    assert loads.asked == [CPU]
    weights = sum(weight.nbytes for weight in loads.model.hf.skeleton.parameters())
    assert asked == [(CUDA, int(1.25 * weights))]


@pytest.mark.parametrize("shared", [True, False])
def test_where_it_turns_out_not_to_fit_the_cpu_scores_from_then_on(loads: Loads, *, shared: bool) -> None:
    """All tokens of a text, and all texts that share a scorer."""
    expected = Judge(loads.model)([1, 2, 3], (4, 5))
    loads.asked.clear()
    loads.full.add(CUDA)
    scorer = Scorer()
    judges = [Judge(loads.model, None, scorer) for _ in range(2)] if shared else [Judge(loads.model)] * 2
    assert [judge([1, 2, 3], (4, 5)) for judge in judges] == [expected] * 2
    assert loads.asked == [CUDA, CPU]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_memory_that_runs_out_while_it_scores_leaves_it_to_the_cpu(
    loads: Loads, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    places, right = list[torch.device](), neartie.in_float32_by_layer

    def full(module: Any, place: torch.device) -> Any:
        places.append(place)
        if place == CUDA:
            raise error
        return right(module, place)

    monkeypatch.setattr(neartie, "in_float32_by_layer", full)
    Judge(loads.model)([1, 2, 3], (4, 5))
    assert places == [CUDA, CPU]


def test_what_is_no_lack_of_memory_is_a_fault(loads: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(neartie, "in_float32_by_layer", broken)
    with pytest.raises(RuntimeError, match="a fault"):
        Judge(loads.model)([1, 2, 3], (4, 5))


def test_where_no_memory_suffices_that_is_told_in_one_line(loads: Loads) -> None:
    loads.full |= {CUDA, CPU}
    with pytest.raises(
        DeviceError, match=r"the memory does not suffice to score tokens of target in float32.*; choose"
    ):
        Judge(loads.model)([1, 2, 3], (4, 5))


def test_a_held_module_is_used_as_it_is(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_models.engine("gpt2", "bfloat16").pair.target
    monkeypatch.setattr(HfModule, "load", lambda *_: pytest.fail("it is held"))
    Judge(model)([1, 2, 3], (4, 5), by_module=True)


# Long texts


@pytest.mark.parametrize("length", [CHUNK, CHUNK + 1, 2 * CHUNK + 88])
def test_a_clear_choice_far_into_a_text_is_no_near_tie(tiny_models: TinyModels, length: int) -> None:
    """A chunk at wrong positions would give other logits, and the difference would count as the error of the dtype."""
    model = tiny_models.engine("long").pair.target
    generator = random.Random(0)
    prefix = [generator.randrange(tiny.VOCABULARY) for _ in range(length)]
    last = scores(model.hf.module, prefix)[-1]
    (first, second, *_) = last.argsort(descending=True).tolist()
    assert float(last[first] - last[second]) > 0.01
    assert not Judge(model)(prefix, (first, second)).near_tie


# Sampled texts


def test_the_gap_is_that_of_logits_with_noise(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox").sampled(4, Schedule(Sampling(1.1)))
    pair, noise = engine.pair, engine.gumbel_noise()
    prefix = prefix_of(tiny_models, "neox")
    logits = scores(pair.target.hf.module, prefix)[-1:]
    noisy = noise.scores(logits, [len(prefix)])[0]
    first, second = noisy.topk(2).indices.tolist()
    found = Judge(pair.target, noise)(prefix, (first, second))
    assert found.gap == pytest.approx(float(noisy[first] - noisy[second]), abs=1e-4)
    assert found.gap != pytest.approx(float((logits[0, first] - logits[0, second]).abs()), abs=1e-2)
    assert not found.near_tie


def test_greedy_tokens_are_judged_without_noise(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox")
    prefix = prefix_of(tiny_models, "neox")
    assert Judge(engine.pair.target, engine.gumbel_noise())(prefix, (3, 4)) == Judge(engine.pair.target)(prefix, (3, 4))


LOGITS, BESIDE = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([4.0, 3.0, 2.9999, 1.0])
CHANCES = (LOGITS / 0.8).softmax(-1)


@pytest.mark.parametrize(
    ("logits", "sampling", "token", "at_edge"),
    [
        (LOGITS, Sampling(0.8), 2, False),
        (LOGITS, Sampling(0.8, 2), 1, False),
        (LOGITS, Sampling(0.8, 0, float(CHANCES[:2].sum()) + 1e-4), 2, True),
        (LOGITS, Sampling(0.8, 0, float(CHANCES[:2].sum()) - 1e-4), 2, True),
        (LOGITS, Sampling(0.8, 0, float(CHANCES[:2].sum()) + 0.05), 2, False),
        (LOGITS, Sampling(0.8, 0, float(CHANCES[:2].sum()) - 0.05), 2, False),
        (LOGITS, Sampling(0.8, 0, 0.01), 0, False),
        *((BESIDE, Sampling(0.8, 2), token, token in {1, 2}) for token in range(4)),
    ],
)
def test_a_token_that_truncation_all_but_keeps_or_drops_is_at_the_edge(
    logits: Tensor, sampling: Sampling, token: int, *, at_edge: bool
) -> None:
    assert _at_edge(logits, token, sampling, error=0.001) == at_edge


def test_a_choice_that_truncation_decides_by_an_error_is_a_near_tie(tiny_models: TinyModels) -> None:
    pair, prefix = tiny_models.engine("neox").pair, prefix_of(tiny_models, "neox")
    logits = scores(pair.target.hf.module, prefix)[-1]
    order = logits.argsort(descending=True)
    top_p = float((logits.double() / 0.9).softmax(-1)[order[:3]].sum())
    fourth, first = int(order[3]), int(order[0])
    for shift, near in ((0.0, True), (0.02, False)):
        noise = GumbelNoise(1, Schedule(Sampling(0.9, 0, top_p + shift)), pair.vocabulary, logits.device)
        assert Judge(pair.target, noise)(prefix, (first, fourth)).near_tie is near
