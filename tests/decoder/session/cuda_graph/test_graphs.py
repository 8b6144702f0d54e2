"""On a GPU, graphs compute what plain calls compute and what the host computes, with one wait a round."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from decoder import RunConfig, load_pair, methods
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.engine import Engine
from decoder.forward.near_tie import Judge
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run.decoding_path import decoding_path
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.static_shapes import passes
from decoder.session.protocol import Outcome
from decoder.tree_rules import Rules, tree_rule
from tests import tiny
from tests.decoder.makers import TinyModels, graph_slots, play, with_pair
from tests.decoder.session.cuda_graph.matching import PROMPT, Devices, begun, compiled, match, rounds_of, text_of
from tests.decoder.session.cuda_graph.on_gpu import gpu, no_hidden_waits, on_gpu
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes
from tests.fake_cuda.driver import FAKE_NAME

pytestmark = [gpu, pytest.mark.gpu]
SMALL = DynaTree(d0=2, d_max=3, window=2, eta_d=1, eta_h=0.3, target_acceptance=0.4, rho_stop=0.1, rho_deep=0.2)
METHODS: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(3),
    "bfs": SMALL,
    "best": replace(SMALL, selection="best", n_max=5),
}


def played(
    engine: Engine, prompt: Sequence[int], rules: Rules | None, limit: int = 60, sizes: PlanController | None = None
) -> list[Outcome]:
    return rounds_of(begun(engine, prompt, limit, rules, sizes))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2", "windows"])
def test_graphs_give_the_rounds_of_plain_calls(devices: Devices, family: str, dtype: str, method: str) -> None:
    found = []
    for graphs in (True, False):
        engine = on_gpu(devices.models, family, dtype, graphs=graphs)
        rounds = played(engine, devices.prompt(family), METHODS[method])
        found.append([(outcome.tree, outcome.committed, outcome.knobs) for outcome in rounds])
    assert found[0] == found[1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2", "qwen3", *tiny.WINDOWED])
def test_graphs_give_the_rounds_of_the_host(devices: Devices, family: str, method: str) -> None:
    match(on_gpu(devices.models, family, "float64"), devices.prompt(family), 100, METHODS[method])


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2"])
def test_graphs_of_chosen_sizes_give_the_rounds_of_plain_calls(devices: Devices, family: str, dtype: str) -> None:
    found = []
    for graphs in (True, False):
        engine = on_gpu(devices.models, family, dtype, graphs=graphs)
        rounds = played(engine, devices.prompt(family), WIDE, 100, RandomSizes(7))
        found.append([(outcome.tree, outcome.committed) for outcome in rounds])
    assert found[0] == found[1]
    assert {len(tree) > 1 for tree, _ in found[0]} == {False, True}


@pytest.mark.parametrize("family", ["neox", "llama-strange"])
def test_rounds_that_choose_their_size_by_real_times_write_the_text(devices: Devices, family: str) -> None:
    engine = on_gpu(devices.models, family, "float64")
    for start in range(3):
        plain, chosen = (text_of(played(engine, devices.prompt(family)[start:], rules, 100)) for rules in (None, WIDE))
        assert chosen == plain


@pytest.mark.parametrize("method", METHODS)
def test_a_second_text_and_a_turned_knob_use_the_same_graphs(devices: Devices, method: str) -> None:
    engine = on_gpu(devices.models, "neox", "float64")
    for start in range(3):
        match(engine, devices.prompt()[start:], 60, METHODS[method], {2: [("tau_h", 0.7), ("rho_stop", 0.12)]})
    assert len(graph_slots(engine)._free) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_round_waits_for_the_device_once_and_nowhere_else(devices: Devices, method: str) -> None:
    engine = on_gpu(devices.models, "neox", "float32")
    played(engine, devices.prompt(), METHODS[method])  # captures all graphs
    session = devices.begun(engine, METHODS[method])
    with no_hidden_waits():
        rounds = rounds_of(session)
    assert session.waits == len(rounds)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_k=20)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("method", METHODS)
def test_rounds_without_a_draft_model_are_those_of_the_host_and_wait_once(
    devices: Devices, method: str, sampling: Sampling
) -> None:
    prompt = 3 * devices.prompt()
    alone = with_pair(on_gpu(devices.models, "neox", "float64"), draft=None).sampled(1, Schedule(sampling))
    match(alone, prompt, 60, METHODS[method])
    rounds = len(played(alone, prompt, METHODS[method]))  # captures all graphs
    session = begun(alone, prompt, 60, METHODS[method])
    with no_hidden_waits():
        rounds_of(session)
    assert session.waits == rounds


def test_a_hidden_wait_would_be_noticed() -> None:
    number = torch.ones(1, device="cuda")
    with no_hidden_waits(), pytest.raises(RuntimeError):
        number.item()


def test_later_texts_take_no_more_memory(devices: Devices) -> None:
    engine, used = on_gpu(devices.models, "llama", "float32"), list[int]()
    for _ in range(2):
        for rules in METHODS.values():
            played(engine, devices.prompt("llama"), rules)
        used.append(torch.cuda.memory_allocated())
    assert used[1] <= used[0]


def test_graphs_are_captured_while_another_thread_uses_the_device(devices: Devices) -> None:
    stopped, failed = threading.Event(), list[BaseException]()

    def meter() -> None:
        try:
            while not stopped.is_set():
                torch.zeros(8, device="cuda").sum().item()
        except RuntimeError as error:
            failed.append(error)

    other = threading.Thread(target=meter)
    other.start()
    try:
        match(on_gpu(devices.models, "neox", "float64"), devices.prompt(), 40, SMALL)
    finally:
        stopped.set()
        other.join()
    assert not failed


@pytest.mark.parametrize("method", METHODS)
def test_parts_of_a_round_take_no_longer_than_the_round(devices: Devices, method: str) -> None:
    rounds = played(on_gpu(devices.models, "neox", "float32"), devices.prompt(), METHODS[method])
    assert all(outcome.verify_s and outcome.verify_s > 0 for outcome in rounds)
    parts = sum((outcome.draft_s or 0) + (outcome.verify_s or 0) for outcome in rounds)
    assert parts <= sum(outcome.round_s for outcome in rounds) * 1.001


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2"])
def test_compiled_passes_are_captured_too(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, family: str, dtype: str
) -> None:
    """Compiled forms are kept at any speed. In half precision they round differently, so only float64 is compared."""
    monkeypatch.setattr("decoder.session.cuda_graph.pass_comparison.PAYS", float("inf"))
    engine, lines = on_gpu(devices.models, family, dtype), list[str]()
    compiled(engine, lines.append, passes(tree_rule(rules) for rules in METHODS.values()))
    kept = [line.split(":")[0] for line in lines if "x the time of uncompiled passes, so it is kept" in line]
    assert kept == ["compiled draft", "compiled target"]
    if dtype == "float64":
        match(engine, devices.prompt(family), 60, METHODS["best"])
    assert len(text_of(played(engine, devices.prompt(family), None))) == 60


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("family", ["neox", "llama"])
def test_every_kernel_gives_the_results_of_the_plain_functions(
    tiny_models: TinyModels, family: str, dtype: str
) -> None:
    if torch.cuda.get_device_name() == FAKE_NAME:
        pytest.skip("Triton compiles nothing for a fake device")
    pair = tiny_models.pair(family)
    engine = load_pair(str(pair.target), str(pair.draft), device="cuda", dtype=dtype)
    verdicts = graph_slots(engine).operators.verdicts
    assert verdicts
    assert {name: verdict for name, verdict in verdicts.items() if not verdict.startswith("takes ")} == {}


def test_the_embedded_pair_is_held_once_and_decoded_by_graphs() -> None:
    before = torch.cuda.memory_allocated()
    engine = load_pair(device="cuda", dtype="float32")
    assert decoding_path(engine).name == "cuda graphs"
    assert (engine.pair.target.hf.loaded, engine.pair.draft_model.hf.loaded) == (None, None)
    models = (engine.pair.target.hf.skeleton, engine.pair.draft_model.hf.skeleton)
    weights = sum(weight.nbytes for module in models for weight in module.parameters())
    (slot,) = graph_slots(engine)._free
    stores = slot.target.store.nbytes + slot.draft.store.nbytes
    assert torch.cuda.memory_allocated() - before < 1.3 * weights + stores + 2**27


@pytest.mark.parametrize("by_module", [False, True])
def test_both_devices_find_the_same_gap_between_two_tokens(devices: Devices, *, by_module: bool) -> None:
    pair, gaps = devices.models.pair("neox"), []
    for device in ("cpu", "cuda"):
        target = load_pair(str(pair.target), str(pair.draft), device=device, dtype="float16").pair.target
        gaps.append(Judge(target)(devices.prompt(), (7, 9), by_module=by_module).gap)
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-4)


def test_all_methods_race_on_the_device_and_write_the_same_text(devices: Devices) -> None:
    names = ("dynatree", "ar", "linear", "fixed", "alg1", "hf")
    engine = on_gpu(devices.models, "neox", "float64")
    race = play(engine, RunConfig(names, 60, dynatree=DynaTree()), PROMPT)
    assert {method: race.tokens(method) for method in names} == dict.fromkeys(names, devices.generated(60))
    assert len(graph_slots(engine)._free) == 4


def test_cuda_pairs_are_decoded_on_the_device_unless_they_must_be_exact(tiny_models: TinyModels) -> None:
    engine, config = on_gpu(tiny_models, "neox", "float32"), RunConfig(dynatree=DynaTree())
    for method, exact in (("ar", False), ("dynatree", False), ("dynatree", True)):
        opened = methods.METHODS[method].open(replace(engine, exact=exact), [1, 2], config)
        assert isinstance(opened, GraphSession) is not exact
