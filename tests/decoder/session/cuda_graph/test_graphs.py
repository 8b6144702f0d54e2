"""On a GPU, graphs compute what plain calls compute and what the host computes, with one wait a round."""

import threading
from itertools import product

import pytest
import torch

from decoder import load_pair
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.engine import Engine
from decoder.run.decoding_path import decoding_path
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.static_shapes import passes
from decoder.session.protocol import Outcome
from decoder.session.steering import KnobState
from decoder.system.device import Mailbox, Mark
from decoder.tree_rules import Rules, tree_rule
from tests import tiny
from tests.decoder.makers import TinyModels, graph_slots, with_pair
from tests.decoder.session.cuda_graph.matching import (
    GREEDY,
    SMALL,
    SMALL_METHODS,
    WIDE,
    Devices,
    RandomSizes,
    Turns,
    begun,
    compiled,
    match,
    rounds_of,
    text_of,
    text_of_host,
)
from tests.decoder.session.cuda_graph.on_gpu import gpu, no_hidden_waits, on_gpu
from tests.fake_cuda.driver import FAKE_NAME

pytestmark = [gpu, pytest.mark.gpu]
HUGE_SEED = 2**64 - 3
WARM, TOP_P, TOP_K = Sampling(0.6), Sampling(1.0, top_p=0.9), Sampling(1.0, top_k=5)
EVERY_METHOD = pytest.mark.parametrize("method", SMALL_METHODS)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, WARM, TOP_P, TOP_K], ids=str)


def played(
    devices: Devices,
    engine: Engine,
    rules: Rules | None,
    limit: int = 60,
    sizes: PlanController | None = None,
    family: str = "neox",
) -> list[Outcome]:
    rounds = rounds_of(begun(engine, devices.prompt(family), limit, rules, sizes))
    assert all(outcome.verify_s and outcome.verify_s > 0 for outcome in rounds)
    parts = sum((outcome.draft_s or 0) + (outcome.verify_s or 0) for outcome in rounds)
    assert parts <= sum(outcome.round_s for outcome in rounds) * 1.001
    return rounds


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("family", "method", "sampling"),
    [
        *product(("neox", "llama", "gpt2", "windows"), SMALL_METHODS, (GREEDY,)),
        *product(("neox", "llama", "gpt2"), ("any size",), (GREEDY,)),
        *product(("neox", "llama"), ("ar", "linear", "lively"), (WARM, TOP_P)),
    ],
    ids=str,
)
def test_graphs_give_the_rounds_of_plain_calls(
    devices: Devices, family: str, dtype: str, method: str, sampling: Sampling
) -> None:
    found, any_size = [], method == "any size"
    for graphs in (True, False):
        engine = on_gpu(devices.models, family, dtype, graphs=graphs).sampled(1, Schedule(sampling))
        rules, sizes = (WIDE, RandomSizes(7)) if any_size else (SMALL_METHODS[method], None)
        rounds = played(devices, engine, rules, 100 if any_size else 60, sizes, family)
        found.append([(outcome.tree, outcome.committed, outcome.knobs) for outcome in rounds])
    assert found[0] == found[1]
    assert not any_size or {len(tree) > 1 for tree, *_ in found[0]} == {False, True}


@EVERY_METHOD
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2", "qwen3", *tiny.WINDOWED])
def test_graphs_give_the_rounds_of_the_host_also_of_a_second_text_with_turned_knobs(
    devices: Devices, family: str, method: str
) -> None:
    engine = on_gpu(devices.models, family, "float64")
    turns: Turns = {2: [("tau_h", 0.7), ("rho_stop", 0.12)]}
    for start in range(2):
        match(engine, devices.prompt(family)[start:], 100, SMALL_METHODS[method], turns if start else {})
    assert len(graph_slots(engine)._free) == 1


@SAMPLINGS
@EVERY_METHOD
def test_graphs_give_the_sampled_rounds_of_the_host_and_the_text_of_the_cpu(
    devices: Devices, sampling: Sampling, method: str
) -> None:
    """The host's rounds on a GPU use a `GumbelNoise` on the device, too."""
    prompt, rules = devices.prompt(), SMALL_METHODS[method]
    for seed in (0, HUGE_SEED):
        engine, on_cpu = (
            each.sampled(seed, Schedule(sampling))
            for each in (on_gpu(devices.models, "neox", "float64"), devices.models.engine("neox", "float64"))
        )
        found = text_of(match(engine, prompt, 100, rules))
        assert isinstance(engine.session(prompt, 9, KnobState(rules) if rules else None), GraphSession)
        text = text_of_host(on_cpu, prompt, 100)
        assert text[: len(found)] == found
        assert text_of_host(engine, prompt, 100) == text


@SAMPLINGS
@pytest.mark.parametrize("alone", [False, True])
@EVERY_METHOD
def test_a_round_waits_for_the_device_once_and_nowhere_else_even_where_settings_are_turned(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, method: str, sampling: Sampling, *, alone: bool
) -> None:
    """`alone`: without a draft model, in which case the rounds are compared with the host's too."""
    engine, prompt = on_gpu(devices.models, "neox", "float64" if alone else "float32"), 3 * devices.prompt()
    if alone:
        engine = with_pair(engine, draft=None)
        match(engine.sampled(1, Schedule(sampling)), prompt, 60, SMALL_METHODS[method])
    receive, waits = Mailbox.receive, list[Mark]()
    monkeypatch.setattr(Mailbox, "receive", lambda mailbox, mark: waits.append(mark) or receive(mailbox, mark))  # type: ignore[func-returns-value]
    for watched in (False, True):  # the first text captures all graphs
        schedule = Schedule(sampling)
        session = begun(engine.sampled(1, schedule), prompt, 60, SMALL_METHODS[method])
        waits.clear()
        session.step(())
        session.step(())
        if not sampling.greedy:
            schedule.turn(len(session.text) + 65, Sampling(1.0, top_k=4))
        if watched:
            with no_hidden_waits():
                rounds = rounds_of(session)
        else:
            rounds = rounds_of(session)
        assert len(waits) == 2 + len(rounds)


def test_later_texts_take_no_more_memory(devices: Devices) -> None:
    engine, used = on_gpu(devices.models, "llama", "float32"), list[int]()
    for _ in range(2):
        for rules in SMALL_METHODS.values():
            played(devices, engine, rules, family="llama")
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2"])
def test_compiled_passes_are_captured_too(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, family: str, dtype: str
) -> None:
    """Compiled forms are kept at any speed. In half precision they round differently, so only float64 is compared."""
    monkeypatch.setattr("decoder.session.cuda_graph.pass_comparison.PAYS", float("inf"))
    engine, lines = on_gpu(devices.models, family, dtype), list[str]()
    compiled(engine, lines.append, passes(tree_rule(rules) for rules in SMALL_METHODS.values()))
    kept = [line.split(":")[0] for line in lines if "x the time of uncompiled passes, so it is kept" in line]
    assert kept == ["compiled draft", "compiled target"]
    if dtype == "float64":
        match(engine, devices.prompt(family), 60, SMALL_METHODS["best"])
    assert len(text_of(played(devices, engine, None, family=family))) == 60


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
    assert [found for found in verdicts.values() if not found.words.startswith("takes ")] == []


def test_the_embedded_pair_is_held_once_and_decoded_by_graphs() -> None:
    before = torch.cuda.memory_allocated()
    engine = load_pair(device="cuda", dtype="float32")
    assert decoding_path(engine).name == "cuda graphs"
    models = engine.pair.models.values()
    assert [model.hf.loaded for model in models] == [None, None]
    weights = sum(weight.nbytes for model in models for weight in model.hf.skeleton.parameters())
    (slot,) = graph_slots(engine)._free
    stores = slot.target.store.nbytes + slot.draft.store.nbytes
    assert torch.cuda.memory_allocated() - before < 1.3 * weights + stores + 2**27
