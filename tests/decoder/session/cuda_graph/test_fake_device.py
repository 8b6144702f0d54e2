"""Whole rounds on a fake CUDA device: the rounds of the host, by graphs that touch only the device, with one wait."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from decoder.knobs import KnobName
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.models.checkpoints import EMBEDDED, EMBEDDED_TARGET
from decoder.run import loading
from decoder.run.decoding_path import DecodingPath, decoding_path
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.protocol import Outcome
from decoder.session.steering import KnobState, Turn
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from tests.decoder.makers import host_session, with_pair
from tests.decoder.session.cuda_graph.matching import Devices, begun, check, rounds_of, text_of, text_of_host, tie
from tests.decoder.session.cuda_graph.scripted_models import WIDE
from tests.eagle3_checkpoints import name
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device
from tests.fake_cuda.tensors import CudaError, Device

LIVELY = DynaTree(
    d0=2, d_max=3, window=2, eta_d=1, eta_h=0.3, target_acceptance=0.4, rho_stop=0.1, rho_deep=0.2, n_max=12
)
METHODS: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(3),
    "fixed": Fixed(depth=2, branching=2, n_max=6),
    "bestfirst": BestFirst(6, 3),
    "dynatree": LIVELY,
    "dynatree, best": replace(LIVELY, selection="best"),
}
GREEDY, *SAMPLINGS = Sampling(), Sampling(1.0), Sampling(0.8, 20, 0.9)
TURNS: Mapping[int, Sequence[tuple[KnobName, float]]] = {1: [("tau_h", 0.6)], 2: [("d0", 1.0)], 3: [("tau_l", 0.3)]}
LIMIT = 12


@dataclass(frozen=True)
class Case:
    """A text of a pair under rules, decoded on the host and on a fake device."""

    pair: str
    method: str = "dynatree"
    sampling: Sampling = GREEDY
    by_module: bool = False
    alone: bool = False
    """Without a draft model, so that the host looks trees up in a prompt that repeats itself."""
    turns: bool = False


HEADED = name("llama", "flat")
CASES = [
    *(Case(pair, method) for pair in ("neox", "llama", HEADED) for method in METHODS),
    *(Case(pair, by_module=True) for pair in ("qwen3", "gpt2")),
    *(Case(pair, sampling=each) for pair in ("neox", "llama", name("neox", "nested")) for each in SAMPLINGS),
    *(Case(pair, method, alone=True, turns=True) for pair in ("neox", "llama") for method in METHODS),
    *(Case("neox", sampling=each, alone=True) for each in SAMPLINGS),
    Case("neox", turns=True),
    Case(name("llama", "EAGLE-3.1"), turns=True),
]


def rounds(devices: Devices, case: Case) -> Device:
    """Decodes a text on the host and on a fake device, requires equal rounds, and checks what each round asks for."""
    engine = devices.models.engine(case.pair).sampled(3, Schedule(case.sampling))
    engine = with_pair(engine, draft=None) if case.alone else engine
    prompt, rules = devices.prompt(case.pair) * (3 if case.alone else 1), METHODS[case.method]
    host = host_session(engine, prompt, LIMIT, rules)
    host.prefill()
    turned: tuple[Turn, ...] = ()
    with fake_cuda() as device:
        session = begun(on_fake_device(engine, by_module=case.by_module), prompt, LIMIT, rules)
        number, finished = 0, False
        while not finished:
            turned += tuple(Turn(*turn) for turn in TURNS.get(number, ()) if case.turns)
            expected = host.step(turned)
            device.clear()
            captured = len(device.graphs)
            outcome = session.step(turned)
            if tie(outcome.tree, expected.tree):
                break
            check(outcome, expected)
            redrawn = bool(outcome.turned_before)
            if len(device.graphs) == captured and not outcome.finished and number:
                asked = device.counts()
                assert asked["wait"] == 1 + redrawn
                # A turned knob undoes a verification that is queued already, and the tree is drafted again.
                assert asked["replay"] <= (1 if case.alone else 2) * (1 + redrawn)
                assert asked["read"] == asked["wait for all"] == 0
            number, finished = number + 1, bool(outcome.finished)
        session.close()
    assert number > 2
    return device


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rounds_are_those_of_the_host_and_each_waits_once(devices: Devices, case: Case) -> None:
    rounds(devices, case)


@pytest.mark.parametrize("sampling", [GREEDY, *SAMPLINGS], ids=str)
@pytest.mark.parametrize("pair", ["wide-target", "wide-draft"])
def test_a_draft_of_another_width_is_fitted_to_the_target_there_too(
    devices: Devices, pair: str, sampling: Sampling
) -> None:
    rounds(devices, Case(pair, sampling=sampling))


def test_turned_knobs_draft_the_tree_again_without_another_capture(devices: Devices) -> None:
    captured = len(rounds(devices, Case("neox")).graphs)
    assert len(rounds(devices, Case("neox", turns=True)).graphs) <= captured + 2


def test_the_embedded_head_is_loaded_into_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "TRIED", (Linear(2),))
    with fake_cuda() as device:
        engine = loading.load_pair(str(EMBEDDED_TARGET), str(EMBEDDED / "books-eagle3"), device="cuda", kernels=False)
        assert engine.pair.target.dtype == torch.float32
        assert decoding_path(engine) == DecodingPath("cuda graphs", "native model")
        assert engine.pair.target.runs_without_module
        session = engine.session([5, 6, 7, 8], LIMIT, KnobState(Linear(2)))
        assert isinstance(session, GraphSession)
        session.close()
    assert device.graphs


def test_auto_writes_the_text_of_plain_decoding(devices: Devices) -> None:
    engine = devices.models.engine("neox")
    with fake_cuda():
        text = text_of(rounds_of(devices.begun(on_fake_device(engine), WIDE, LIMIT)))
    assert text == text_of_host(engine, devices.prompt(), LIMIT)


@pytest.mark.parametrize(("error", "same"), [(2e-4, True), (0.01, False)])
def test_rounds_are_the_same_up_to_the_rounding_of_weights_in_another_layout(error: float, *, same: bool) -> None:
    expected, found = (Outcome(TokenTree([1, 2], [-1, 0], [0.0, -1.0 + shift])) for shift in (0.0, error))
    with nullcontext() if same else pytest.raises(AssertionError):
        check(found, expected)


# The device itself


def test_operands_on_different_devices_are_refused() -> None:
    with fake_cuda(), pytest.raises(CudaError, match="operands on cuda:0 and on cpu"):
        torch.zeros(3, device="cuda") + torch.ones(3)


@pytest.mark.parametrize("values", [True, False])
def test_a_number_that_the_host_reads_is_logged(*, values: bool) -> None:
    with fake_cuda(values=values) as device:
        number = torch.ones(3, device="cuda").sum()
        device.clear()
        float(number)
    assert device.counts() == {"read": 1}


REFUSED: Mapping[str, Callable[[Tensor], object]] = {
    "a read": lambda numbers: numbers.sum().item(),
    "a mask": lambda numbers: numbers[numbers > 0],
    "a copy to the host": lambda numbers: numbers.cpu(),
    "an upload": lambda _: torch.zeros(3).to("cuda"),
    "work on the host": lambda _: torch.zeros(3),
    "an event": lambda _: torch.cuda.Event().record(),
    "a wait": lambda _: torch.cuda.synchronize(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_within_a_capture_nothing_may_read_wait_or_touch_the_host(name: str) -> None:
    with fake_cuda():
        numbers = torch.ones(3, device="cuda")
        with pytest.raises(CudaError):
            captured(lambda: REFUSED[name](numbers))


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def test_a_graph_replays_operators_and_no_python() -> None:
    with fake_cuda() as device:
        total, called = torch.zeros((), device="cuda"), list[str]()

        def work() -> None:
            called.append("work")
            total.add_(2)

        graph = captured(work)
        assert float(total) == 0
        graph.replay()
        graph.replay()
        assert float(total) == 4
    assert called == ["work"]
    assert [launch.name for launch in device.graphs[0].launches] == ["add_"]


def test_afterwards_torch_is_as_before() -> None:
    with fake_cuda():
        assert torch.cuda.is_available()
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)):
        torch.zeros(3, device="cuda")
