"""Device sessions in a whole run: methods racing, events, figures, stops and turned knobs; and rounds without a draft
model: those of the host, whatever lookups find.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from decoder import RunConfig, Steering, decode
from decoder.analysis.metrics import fold
from decoder.engine import Engine
from decoder.events import Round
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.decoding_path import DecodingPath, decoding_path
from decoder.run.loading import make_engine
from decoder.sampling.noise import GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.lookup_session import LookupSession
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.host import HostSession
from decoder.session.protocol import Session
from decoder.session.steering import KnobState, Turn
from decoder.system.device import Outbox
from decoder.tree_rules import Rules
from tests.decoder.makers import METHODS, PROMPT, TinyModels, graph_slots, play, with_pair
from tests.decoder.session.cuda_graph.matching import (
    GREEDY,
    Devices,
    Turns,
    begun,
    check,
    match,
    recorded,
    records,
    refused,
    rounds_of,
    text_of,
    text_of_host,
)
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device


def run_of(engine: Engine, names: Sequence[str], limit: int = 60, steering: Steering | None = None) -> Any:
    return decode(engine, PROMPT, RunConfig(tuple(names), limit, dynatree=DynaTree()), steering or Steering())


def test_all_methods_race_and_write_the_same_text(devices: Devices) -> None:
    loaded = devices.recorded()
    played, expected = play(loaded, RunConfig(METHODS, 24)), devices.generated(24)
    for method in METHODS:
        assert played.tokens(method) == expected
        assert played.figures(method).identical_to_ar
    with_slots = set(METHODS) - {"ar", "streaming", "alg1", "hf"}
    assert len(graph_slots(loaded)._free) == len(with_slots)


def test_the_graphs_of_a_method_are_captured_before_its_first_round(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, steering, told = devices.recorded(), Steering(), list[str]()
    prepare = GraphSession.prepare
    monkeypatch.setattr(GraphSession, "prepare", lambda session: told.append(prepare(session)) or told[-1])  # type: ignore[func-returns-value]
    captured = dict[str, int]()
    for event in run_of(loaded, ("dynatree", "ar"), 24, steering):
        if isinstance(event, Round):
            captured.setdefault(event.method, records(loaded))
            assert not steering.preparing
    assert captured["dynatree"] < captured["ar"] == records(loaded)
    assert [words for words in told if words][-1] == "CUDA graphs: 1 of 1 captured"
    assert "CUDA graphs: 3 of 5 captured" in told


def test_figures_know_all_parts_of_a_round(devices: Devices) -> None:
    for figures in fold(run_of(devices.plain(dtype="float32"), ("dynatree", "ar"), 40)).figures().values():
        assert figures.draft_s is not None
        assert figures.verify_s
        assert figures.commit_s == 0
        assert figures.host_s is not None
        assert figures.host_s >= 0
        assert figures.target_forwards == figures.rounds


@pytest.mark.parametrize("stops", [True, False], ids=["is stopped", "nobody reads to its end"])
def test_a_run_gives_all_seats_back_that(devices: Devices, *, stops: bool) -> None:
    pair, steering, started = devices.plain(dtype="float32"), Steering(), list[str]()
    run = run_of(pair, ("dynatree", "ar", "linear"), 60, steering)
    for event in run:
        started += [event.method] if isinstance(event, Round) else []
        steering.stopped = stops and len(started) >= 4
        if not stops and len(set(started)) == 3:
            break
    run.close()
    assert len(graph_slots(pair)._free) == 3


# Lookups

LIVELY = DynaTree(
    d0=4, d_max=8, window=2, eta_d=1, eta_h=0.3, target_acceptance=0.4, rho_stop=0.1, rho_deep=0.2, n_max=20
)
RULES = [Linear(8), Fixed(depth=3, branching=2, n_max=12), LIVELY, replace(LIVELY, selection="best")]
SAMPLED = Sampling(temperature=0.7, top_k=20)
TURNS: Turns = {2: [("d0", 6.0)], 3: [("tau_h", 0.5), ("n_max", 4)]}
LIMIT = 30


@pytest.fixture
def alone(tiny_models: TinyModels) -> Engine:
    """A target without a draft model, with rounds replayed from records."""
    return recorded(with_pair(tiny_models.engine("neox"), draft=None))


@pytest.fixture
def looping(alone: Engine) -> list[int]:
    """A prompt after which the target repeats itself."""
    return [1, 2, 3, *text_of_host(alone, [1, 2, 3], 80)]


def opened(engine: Engine, rules: Rules | None) -> Session:
    return engine.session([1, 2, 3], LIMIT, KnobState(rules) if rules else None)


@pytest.mark.parametrize("rules", RULES, ids=["linear", "fixed", "dynatree", "best"])
def test_repeated_text_is_accepted_many_tokens_a_round_as_on_the_host(
    alone: Engine, looping: list[int], rules: Rules
) -> None:
    rounds = match(alone, looping, LIMIT, rules)
    assert max(len(outcome.accepted) for outcome in rounds) >= 3
    assert [len(outcome.tree) for outcome in match(alone, [1, 2, 3], 4, rules)] == [1] * 4  # nothing is found


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_tree_grows_again_under_turned_knobs(alone: Engine, looping: list[int], sampling: Sampling) -> None:
    match(alone.sampled(2, Schedule(sampling)), looping, LIMIT, LIVELY, TURNS)
    rounds = match(alone.sampled(2, Schedule(sampling)), 4 * [5, 6, 7, 8, 6, 7], LIMIT, LIVELY)
    assert sum(len(outcome.tree) > 1 for outcome in rounds) > 2


def test_no_tree_is_deeper_than_the_context_has_room(alone: Engine, looping: list[int]) -> None:
    rounds = match(with_pair(alone, context=len(looping) + 11), looping, 11, Linear(8))
    assert min(outcome.room for outcome in rounds) < 8


def test_a_tree_waits_until_the_copy_of_the_tree_before_has_ended(
    alone: Engine, looping: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    send: Callable[..., None] = Outbox.send
    with fake_cuda() as device:
        monkeypatch.setattr(Outbox, "send", lambda *given: device.log.append("tree") or send(*given))  # type: ignore[func-returns-value]
        session = begun(on_fake_device(alone), looping, LIMIT, LIVELY)
        for turn in range(4):
            session.step((Turn("tau_h", 0.5 + turn / 10),))
        session.close()
    *between, _ = " ".join(device.log).split("tree")[1:]
    assert len(between) > 4
    assert all(re.search(r"replay.*wait|copy.*wait", requests) for requests in between)


def test_rules_that_no_longer_fit_go_on_on_the_host(alone: Engine) -> None:
    session, host = opened(alone, LIVELY), opened(replace(alone, slots=None), LIVELY)
    for each in (session, host):
        each.prefill()
    check(*(each.step((Turn("d_max", 40),)) for each in (session, host)))
    assert text_of(rounds_of(session)) == text_of(rounds_of(host))
    assert len(graph_slots(alone)._free) == 1


def test_costs_choose_the_sizes_of_looked_up_trees_on_the_host_alone(alone: Engine) -> None:
    assert isinstance(opened(alone, Auto()), HostSession)
    assert isinstance(opened(alone, LIVELY), LookupSession)
    assert type(opened(alone, None)) is GraphSession


def test_the_host_reads_no_noise_from_the_device() -> None:
    schedule = Schedule(SAMPLED)
    noise = [GumbelNoise(3, schedule, 50, torch.device(device)).noise_of(7, [4, 9, 2]) for device in ("cpu", "meta")]
    assert noise[1] == pytest.approx(noise[0], abs=1e-5)


def test_a_pair_without_a_draft_model_is_tested_when_it_is_loaded(
    alone: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test verifies trees that lookups have found."""
    sizes, append_tree = set[int](), DeviceState.append_tree

    def noted(state: DeviceState, nodes: int) -> None:
        sizes.add(nodes)
        append_tree(state, nodes)

    monkeypatch.setattr(DeviceState, "append_tree", noted)
    assert refused(alone) is None
    assert sizes
    with fake_cuda():
        made = make_engine(on_fake_device(alone).pair, kernels=False)
        assert graph_slots(made).refused is None
        assert decoding_path(made) == DecodingPath("cuda graphs", "native model")
