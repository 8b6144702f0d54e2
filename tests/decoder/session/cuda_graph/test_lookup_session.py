"""Rounds on the device without a draft model: those of the host, whatever lookups find."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from decoder import RunConfig
from decoder.engine import Engine
from decoder.knobs import KnobName
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
from tests.decoder.makers import TinyModels, graph_slots, play, with_pair
from tests.decoder.session.cuda_graph.matching import (
    begun,
    check,
    match,
    recorded,
    refused,
    rounds_of,
    text_of,
    text_of_host,
)
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device

LIVELY = DynaTree(
    d0=4, d_max=8, window=2, eta_d=1, eta_h=0.3, target_acceptance=0.4, rho_stop=0.1, rho_deep=0.2, n_max=20
)
RULES: Mapping[str, Rules] = {
    "linear": Linear(8),
    "fixed": Fixed(depth=3, branching=2, n_max=12),
    "dynatree": LIVELY,
    "dynatree, best": replace(LIVELY, selection="best"),
}
SAMPLED = Sampling(temperature=0.7, top_k=20)
TURNS: Mapping[int, Sequence[tuple[KnobName, float]]] = {2: [("d0", 6.0)], 3: [("tau_h", 0.5), ("n_max", 4)]}
PROMPT = "The tree grows and the tree "
LIMIT = 30


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    """A target without a draft model, with rounds replayed from records."""
    return recorded(with_pair(tiny_models.engine("neox"), draft=None))


def looping(engine: Engine) -> list[int]:
    """A prompt after which the target repeats itself."""
    return [1, 2, 3, *text_of_host(engine, [1, 2, 3], 80)]


def opened(engine: Engine, rules: Rules | None, prompt: Sequence[int] = (1, 2, 3)) -> Session:
    return engine.session(prompt, LIMIT, KnobState(rules) if rules else None)


@pytest.mark.parametrize("rules", RULES)
def test_repeated_text_is_accepted_many_tokens_a_round_as_on_the_host(engine: Engine, rules: str) -> None:
    rounds = match(engine, looping(engine), LIMIT, RULES[rules])
    assert max(len(outcome.accepted) for outcome in rounds) >= 3


def test_sampled_trees_are_those_of_the_host(engine: Engine) -> None:
    rounds = match(engine.sampled(2, Schedule(SAMPLED)), 4 * [5, 6, 7, 8, 6, 7], LIMIT, LIVELY)
    assert sum(len(outcome.tree) > 1 for outcome in rounds) > 2


def test_no_tree_is_deeper_than_the_context_has_room(engine: Engine) -> None:
    prompt = looping(engine)
    rounds = match(with_pair(engine, context=len(prompt) + 11), prompt, 11, Linear(8))
    assert min(outcome.room for outcome in rounds) < 8


def test_where_nothing_is_found_each_round_verifies_one_row(engine: Engine) -> None:
    rounds = match(engine, [1, 2, 3], 4, LIVELY)
    assert [len(outcome.tree) for outcome in rounds] == [1] * 4


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "sampled"])
def test_a_tree_grows_again_under_turned_knobs(engine: Engine, sampling: Sampling) -> None:
    match(engine.sampled(2, Schedule(sampling)), looping(engine), LIMIT, LIVELY, TURNS)


def test_a_tree_waits_until_the_copy_of_the_tree_before_has_ended(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, send = looping(engine), Outbox.send
    with fake_cuda() as device:

        def logged(outbox: Outbox, *arguments: Any) -> None:
            device.log.append("tree")
            send(outbox, *arguments)

        monkeypatch.setattr(Outbox, "send", logged)
        session = begun(on_fake_device(engine), prompt, LIMIT, LIVELY)
        for turn in range(4):
            session.step((Turn("tau_h", 0.5 + turn / 10),))
        session.close()
    *between, _ = " ".join(device.log).split("tree")[1:]
    assert len(between) > 4
    assert all(re.search(r"replay.*wait|copy.*wait", requests) for requests in between)


def test_rules_that_no_longer_fit_go_on_on_the_host(engine: Engine) -> None:
    session, host = opened(engine, LIVELY), opened(replace(engine, slots=None), LIVELY)
    for each in (session, host):
        each.prefill()
    check(*(each.step((Turn("d_max", 40),)) for each in (session, host)))
    assert text_of(rounds_of(session)) == text_of(rounds_of(host))
    assert len(graph_slots(engine)._free) == 1


def test_costs_choose_the_sizes_of_looked_up_trees_on_the_host_alone(engine: Engine) -> None:
    assert isinstance(opened(engine, Auto()), HostSession)
    assert isinstance(opened(engine, LIVELY), LookupSession)
    assert type(opened(engine, None)) is GraphSession


def test_methods_that_take_turns_write_the_text_of_plain_decoding(engine: Engine) -> None:
    names = ("ar", "linear", "dynatree", "fixed")
    played = play(engine, RunConfig(names, LIMIT), 2 * PROMPT)
    assert len({tuple(played.tokens(name)) for name in names}) == 1
    assert len(graph_slots(engine)._free) == 4


def test_the_host_reads_no_noise_from_the_device() -> None:
    schedule = Schedule(SAMPLED)
    noise = [GumbelNoise(3, schedule, 50, torch.device(device)).noise_of(7, [4, 9, 2]) for device in ("cpu", "meta")]
    assert noise[1] == pytest.approx(noise[0], abs=1e-5)


# The self-test


def test_a_pair_without_a_draft_model_is_tested_when_it_is_loaded(engine: Engine) -> None:
    with fake_cuda():
        made = make_engine(on_fake_device(engine).pair, kernels=False)
        assert graph_slots(made).refused is None
        assert decoding_path(made) == DecodingPath("cuda graphs", "native model")


def test_the_test_verifies_trees_that_lookups_have_found(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, append_tree = set[int](), DeviceState.append_tree

    def noted(state: DeviceState, nodes: int) -> None:
        sizes.add(nodes)
        append_tree(state, nodes)

    monkeypatch.setattr(DeviceState, "append_tree", noted)
    assert refused(engine) is None
    assert sizes
