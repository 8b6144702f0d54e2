"""Replayed graphs compute what plain calls compute: recorded on a CPU, captured on a GPU."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from decoder import RunConfig, Steering, decode, load_pair, methods
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.engine import Engine
from decoder.events import Round
from decoder.forward.near_tie import Judge
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run.decoding_path import decoding_path
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.static_shapes import Shape, passes
from decoder.session.protocol import Outcome
from decoder.system.device import Graphs, without_gradients
from decoder.tree_rules import Rules, tree_rule
from tests import tiny
from tests.decoder.makers import TinyModels, graph_slots, with_pair
from tests.decoder.session.cuda_graph.matching import Turns, compiled, graph_session, match, recorded, records
from tests.decoder.session.cuda_graph.on_gpu import gpu, no_hidden_waits, on_gpu
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes
from tests.fake_cuda.driver import FAKE_NAME

PROMPT = "The tree grows"
SMALL = DynaTree(d0=2, d_max=3, window=2, eta_d=1, eta_h=0.3, target_acceptance=0.4, rho_stop=0.1, rho_deep=0.2)
METHODS: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(3),
    "bfs": SMALL,
    "best": replace(SMALL, selection="best", n_max=5),
}


@pytest.mark.parametrize(
    ("family", "by_module", "method"),
    [
        *(("neox", False, method) for method in METHODS),
        ("neox", True, "best"),
        ("llama", False, "best"),
        ("llama", True, "bfs"),
        ("qwen3", True, "bfs"),
        ("gpt2", True, "linear"),
    ],
)
def test_a_record_of_the_device_s_work_repeats_every_round(
    tiny_models: TinyModels, family: str, *, by_module: bool, method: str
) -> None:
    """A record replays no Python, so a number inserted by the host would stay the same in every round."""
    pair = tiny_models.pair(family)
    loaded = recorded(tiny_models.loaded(pair, "float64"), by_module=by_module)
    rounds = match(loaded, tiny_models.prompt_tokens(pair, PROMPT), 24, METHODS[method])
    assert records(loaded) < len(rounds)


def test_the_next_text_is_decoded_by_the_records_of_the_first_whatever_knobs_are_turned(
    tiny_models: TinyModels,
) -> None:
    pair = tiny_models.pair("neox")
    loaded = recorded(tiny_models.loaded(pair, "float64"))
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    match(loaded, prompt, 30, METHODS["best"])
    before = records(loaded)
    turns: Turns = {
        1: [("tau_h", 0.6), ("tau_l", 0.5)],
        3: [("rho_stop", 0.11)],
        4: [("rho_deep", 0.3), ("d0", 1.0)],
        5: [("n_max", 8), ("history", 0)],
    }
    match(loaded, prompt[2:], 30, METHODS["best"], turns)
    (slot,) = graph_slots(loaded)._free
    assert len([key for key in slot._captured if isinstance(key[0], Shape)]) == 1
    assert records(loaded) <= before + 1  # a larger tree may need a larger verification


def test_to_capture_a_verification_leaves_everything_as_it_was(tiny_models: TinyModels) -> None:
    """The warm-up of a capture moves the draft's rows, which are not recomputed, and commits tokens."""
    pair = tiny_models.pair("neox")
    loaded = recorded(tiny_models.loaded(pair, "float64"))
    session = graph_session(loaded, tiny_models.prompt_tokens(pair, PROMPT), 20, METHODS["best"])
    session.prefill()
    slot = session._slot
    length = len(session.text)
    with without_gradients():
        # As if the second of several siblings were accepted, so its row must move.
        slot.state.nodes[3, 1:] += 3
        state = [slot.draft.store, *slot.state._tensors()]
        before = [tensor.clone() for tensor in state]
        repeated = slot.verification(8, length, 7)
        assert all(bool((now == was).all()) for now, was in zip(state, before, strict=True))
        repeated()
        assert int(slot.state.length) > length
        assert bool((slot.draft.store != before[0]).any())


def test_elsewhere_than_on_cuda_work_is_just_done() -> None:
    done: list[str] = []
    graphs = Graphs(torch.device("cpu"))
    repeated = graphs.capture(lambda: done.append("work"), lambda: done.append("undone"))
    assert done == []
    repeated()
    assert done == ["work"]


# On a GPU


def played(
    engine: Engine, prompt: Sequence[int], limit: int, rules: Rules | None, sizes: PlanController | None = None
) -> list[Outcome]:
    session = graph_session(engine, prompt, limit, rules, sizes)
    session.prefill()
    found = [session.step(())]
    while not found[-1].finished:
        found.append(session.step(()))
    return found


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2", "windows"])
def test_graphs_give_the_rounds_of_plain_calls(tiny_models: TinyModels, family: str, dtype: str, method: str) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair(family), PROMPT)
    by_graph = played(on_gpu(tiny_models, family, dtype), prompt, 60, METHODS[method])
    by_call = played(on_gpu(tiny_models, family, dtype, graphs=False), prompt, 60, METHODS[method])
    assert [outcome.tree for outcome in by_graph] == [outcome.tree for outcome in by_call]
    assert [outcome.committed for outcome in by_graph] == [outcome.committed for outcome in by_call]
    assert [outcome.knobs for outcome in by_graph] == [outcome.knobs for outcome in by_call]


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2", "qwen3", *tiny.WINDOWED])
def test_graphs_give_the_rounds_of_the_host(tiny_models: TinyModels, family: str, method: str) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair(family), PROMPT)
    match(on_gpu(tiny_models, family, "float64"), prompt, 100, METHODS[method])


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2"])
def test_graphs_of_chosen_sizes_give_the_rounds_of_plain_calls(
    tiny_models: TinyModels, family: str, dtype: str
) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair(family), PROMPT)
    rounds = []
    for graphs in (True, False):
        pair = on_gpu(tiny_models, family, dtype, graphs=graphs)
        rounds.append(played(pair, prompt, 100, WIDE, RandomSizes(7)))
    by_graph, by_call = rounds
    assert [outcome.tree for outcome in by_graph] == [outcome.tree for outcome in by_call]
    assert [outcome.committed for outcome in by_graph] == [outcome.committed for outcome in by_call]
    assert {len(outcome.tree) > 1 for outcome in by_graph} == {False, True}


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("family", ["neox", "llama-strange"])
def test_rounds_that_choose_their_size_by_real_times_write_the_text(tiny_models: TinyModels, family: str) -> None:
    pair = on_gpu(tiny_models, family, "float64")
    for start in range(3):
        prompt = tiny_models.prompt_tokens(tiny_models.pair(family), PROMPT)[start:]
        plain = [token for outcome in played(pair, prompt, 100, None) for token in outcome.committed]
        chosen = [token for outcome in played(pair, prompt, 100, WIDE) for token in outcome.committed]
        assert chosen == plain


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_second_text_and_a_turned_knob_use_the_same_graphs(tiny_models: TinyModels, method: str) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    pair = on_gpu(tiny_models, "neox", "float64")
    for text in (prompt, prompt[1:], prompt[2:]):
        match(pair, text, 60, METHODS[method], {2: [("tau_h", 0.7), ("rho_stop", 0.12)]})
    assert len(graph_slots(pair)._free) == 1


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_round_waits_for_the_device_once_and_nowhere_else(tiny_models: TinyModels, method: str) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    pair = on_gpu(tiny_models, "neox", "float32")
    played(pair, prompt, 60, METHODS[method])  # captures all graphs
    session = graph_session(pair, prompt, 60, METHODS[method])
    session.prefill()
    rounds, finished = 0, None
    with no_hidden_waits():
        while not finished:
            finished = session.step(()).finished
            rounds += 1
    assert session.waits == rounds


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_k=20)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("method", METHODS)
def test_rounds_without_a_draft_model_are_those_of_the_host_and_wait_once(
    tiny_models: TinyModels, method: str, sampling: Sampling
) -> None:
    prompt = 3 * tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    alone = with_pair(on_gpu(tiny_models, "neox", "float64"), draft=None).sampled(1, Schedule(sampling))
    match(alone, prompt, 60, METHODS[method])
    rounds = len(played(alone, prompt, 60, METHODS[method]))  # captures all graphs
    session = graph_session(alone, prompt, 60, METHODS[method])
    session.prefill()
    with no_hidden_waits():
        while not session.step(()).finished:
            pass
    assert session.waits == rounds


@gpu
@pytest.mark.gpu
def test_a_hidden_wait_would_be_noticed() -> None:
    number = torch.ones(1, device="cuda")
    with no_hidden_waits(), pytest.raises(RuntimeError):
        number.item()


@gpu
@pytest.mark.gpu
def test_later_texts_take_no_more_memory(tiny_models: TinyModels) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("llama"), PROMPT)
    pair = on_gpu(tiny_models, "llama", "float32")
    for rules in METHODS.values():
        played(pair, prompt, 60, rules)
    used = torch.cuda.memory_allocated()
    for rules in METHODS.values():
        played(pair, prompt, 60, rules)
    assert torch.cuda.memory_allocated() <= used


@gpu
@pytest.mark.gpu
def test_graphs_are_captured_while_another_thread_uses_the_device(tiny_models: TinyModels) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
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
        match(on_gpu(tiny_models, "neox", "float64"), prompt, 40, SMALL)
    finally:
        stopped.set()
        other.join()
    assert not failed


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_parts_of_a_round_take_no_longer_than_the_round(tiny_models: TinyModels, method: str) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    rounds = played(on_gpu(tiny_models, "neox", "float32"), prompt, 60, METHODS[method])
    assert all(outcome.verify_s and outcome.verify_s > 0 for outcome in rounds)
    parts = sum((outcome.draft_s or 0) + (outcome.verify_s or 0) for outcome in rounds)
    assert parts <= sum(outcome.round_s for outcome in rounds) * 1.001


@gpu
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("family", ["neox", "llama", "gpt2"])
def test_compiled_passes_are_captured_too(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, family: str, dtype: str
) -> None:
    """Compiled forms are kept at any speed. In half precision they round differently, so only float64 is compared."""
    monkeypatch.setattr("decoder.session.cuda_graph.relative_time.PAYS", float("inf"))
    pair, lines = on_gpu(tiny_models, family, dtype), list[str]()
    compiled(pair, lines.append, passes(tree_rule(rules) for rules in METHODS.values()))
    assert [line.split(":")[0] for line in lines if "x the time of uncompiled passes, so it is kept" in line] == [
        "compiled draft",
        "compiled target",
    ]
    prompt = tiny_models.prompt_tokens(tiny_models.pair(family), PROMPT)
    if dtype == "float64":
        match(pair, prompt, 60, METHODS["best"])
    plain = [token for outcome in played(pair, prompt, 60, None) for token in outcome.committed]
    assert len(plain) == 60


@gpu
@pytest.mark.gpu
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


@gpu
@pytest.mark.gpu
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


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("by_module", [False, True])
def test_both_devices_find_the_same_gap_between_two_tokens(tiny_models: TinyModels, *, by_module: bool) -> None:
    prefix, pair = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT), tiny_models.pair("neox")
    verdicts = [
        Judge(load_pair(str(pair.target), str(pair.draft), device=device, dtype="float16").pair.target)(
            prefix, (7, 9), by_module=by_module
        )
        for device in ("cpu", "cuda")
    ]
    assert verdicts[0].gap == pytest.approx(verdicts[1].gap, abs=1e-4)


@gpu
@pytest.mark.gpu
def test_all_methods_race_on_the_device_and_write_the_same_text(tiny_models: TinyModels) -> None:
    names = ("dynatree", "ar", "linear", "fixed", "alg1", "hf")
    config = RunConfig(names, 60, dynatree=DynaTree())
    pair = on_gpu(tiny_models, "neox", "float64")
    events = list(decode(pair, PROMPT, config, Steering()))
    texts = {
        method: [
            token
            for event in events
            if isinstance(event, Round) and event.method == method
            for token in event.committed
        ]
        for method in names
    }
    assert texts == dict.fromkeys(names, tiny_models.generate(tiny_models.pair("neox"), "float64", PROMPT, 60))
    assert len(graph_slots(pair)._free) == 4


@gpu
@pytest.mark.gpu
def test_cuda_pairs_are_decoded_on_the_device_unless_they_must_be_exact(tiny_models: TinyModels) -> None:
    pair = on_gpu(tiny_models, "neox", "float32")
    config = RunConfig(dynatree=DynaTree())
    assert isinstance(methods.METHODS["ar"].open(pair, [1, 2], config), GraphSession)
    assert isinstance(methods.METHODS["dynatree"].open(pair, [1, 2], config), GraphSession)
    exact = replace(pair, exact=True)
    assert not isinstance(methods.METHODS["dynatree"].open(exact, [1, 2], config), GraphSession)
