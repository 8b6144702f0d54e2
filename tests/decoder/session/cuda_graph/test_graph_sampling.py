"""Sampled device rounds write the host's text, also where settings are turned; few graphs serve all settings.

`test_graph_rounds.py` compares sampled rounds one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import pytest

from decoder import RunConfig, Steering, decode
from decoder.events import Round
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.static_shapes import Shape
from decoder.session.steering import KnobState
from decoder.tree_rules import Rules
from decoder.verify.verifier import CoupledDeviceVerifier, GreedyVerifier, device_verifier
from tests.decoder.makers import Played, graph_slots
from tests.decoder.session.cuda_graph.matching import (
    LIVELY,
    PROMPT,
    Devices,
    begun,
    match,
    records,
    rounds_of,
    text_of,
    text_of_host,
)
from tests.decoder.session.cuda_graph.on_gpu import gpu, no_hidden_waits, on_gpu
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes

METHODS: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(),
    "fixed": Fixed(),
    "dynatree": DynaTree(),
    "lively": LIVELY,
    "best": replace(LIVELY, selection="best", n_max=9),
    "best-first": BestFirst(),
}
HUGE_SEED = 2**64 - 3


@pytest.mark.parametrize(("seed", "sampling"), [(0, Sampling(0.6)), (1, Sampling(1.0, top_p=0.9))], ids=str)
def test_all_methods_write_one_text_whatever_sizes_are_chosen(devices: Devices, sampling: Sampling, seed: int) -> None:
    engine = devices.kept().sampled(seed, Schedule(sampling))
    texts = {name: text_of(rounds_of(devices.begun(engine, rules, 36))) for name, rules in METHODS.items()}
    chosen = rounds_of(devices.begun(engine, WIDE, 36, RandomSizes(seed)))
    texts["any size"] = text_of(chosen)
    assert {len(outcome.tree) > 1 for outcome in chosen} == {False, True}
    texts["auto"] = text_of(rounds_of(devices.begun(engine, Auto(), 36)))
    texts["host"] = text_of_host(engine, devices.prompt(), 36)
    assert len(set(map(tuple, texts.values()))) == 1
    other = engine.sampled(seed + 1, Schedule(sampling))
    assert text_of(rounds_of(devices.begun(other, None, 36))) != texts["ar"]


def test_a_session_that_the_engine_opens_is_sampled_by_its_seed_and_settings(devices: Devices) -> None:
    engine = devices.kept().sampled(11, Schedule(Sampling(1.0, top_p=0.9)))
    session = engine.session(devices.prompt(), 30, KnobState(LIVELY))
    assert isinstance(session, GraphSession)
    session.prefill()
    assert text_of(rounds_of(session)) == text_of_host(engine, devices.prompt(), 30)


# Settings turned during decoding

TURNS: dict[str, tuple[Sampling, Mapping[int, Sequence[Sampling]]]] = {
    "on and off": (Sampling(), {1: [Sampling(0.6)], 12: [Sampling()]}),
    "off and on": (Sampling(0.6), {1: [Sampling()], 12: [Sampling(0.6)]}),
    "twice at once": (Sampling(0.6), {0: [Sampling(2.0), Sampling(1.0, top_p=0.8)], 2: [Sampling(0.3)]}),
    "truncated later": (Sampling(1.0), {0: [Sampling(1.0, top_k=3)], 9: [Sampling(1.5)]}),
}


@pytest.mark.parametrize(
    ("method", "turns"),
    [("lively", "on and off"), ("ar", "off and on"), ("best", "twice at once"), ("lively", "truncated later")],
)
def test_settings_are_turned_at_the_same_token_as_on_the_host_and_the_text_stays_on_the_device(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, method: str, turns: str
) -> None:
    monkeypatch.setattr(GraphSession, "_hand_over", None)
    before, sampled = TURNS[turns]
    engine = devices.kept().sampled(3, Schedule(before))
    text = text_of(match(engine, devices.prompt(), 110, METHODS[method], sampled=sampled))
    plain = text_of(rounds_of(devices.begun(engine.sampled(3, Schedule(before)), None, 110)))
    assert text[:60] == plain[:60]
    assert text != plain


@pytest.mark.usefixtures("_on_the_device")
def test_the_temperature_is_turned_up_and_down_in_a_race_whose_methods_write_one_text(devices: Devices) -> None:
    names, steering, events = ("dynatree", "ar", "linear", "alg1"), Steering(), []
    for event in decode(devices.recorded(), PROMPT, RunConfig(names, 120, seed=4), steering):
        events.append(event)
        if isinstance(event, Round) and event.method == "ar" and event.round in (2, 40):
            steering.turn("temperature", 0.6 if event.round == 2 else 0.0)
    texts = {name: Played(events).tokens(name) for name in names}
    assert texts == dict.fromkeys(names, texts["ar"])
    greedy = devices.generated(120)
    assert texts["ar"] != greedy
    assert texts["ar"][:60] == greedy[:60]


# Captured graphs


@pytest.mark.parametrize("rules", [None, Linear(), Fixed(tau=0.0, n_max=6)], ids=["ar", "linear", "fixed"])
def test_other_seeds_and_settings_are_decoded_by_what_was_captured_for_the_first(
    devices: Devices, rules: Rules | None
) -> None:
    engine, prompt = devices.recorded(), devices.prompt()
    match(engine.sampled(0, Schedule(Sampling(0.6, top_p=0.9))), prompt, 90, rules)
    before, sampled = records(engine), {2: [Sampling(0.3, top_p=0.5)]}
    match(engine.sampled(9, Schedule(Sampling(1.0, top_k=7))), prompt, 90, rules, sampled=sampled)
    assert records(engine) == before


def test_only_what_sampling_asks_for_is_captured(devices: Devices) -> None:
    engine = devices.recorded()
    for sampling in (Sampling(), Sampling(0.6), Sampling(0.6, top_p=0.9)):
        match(engine.sampled(0, Schedule(sampling)), devices.prompt(), 20, Linear(3))
    (slot,) = graph_slots(engine)._free
    kinds = (GreedyVerifier(), CoupledDeviceVerifier(truncates=False), CoupledDeviceVerifier(truncates=True))
    assert [key[-1] for key in slot._captured if isinstance(key[0], Shape)] == list(kinds)


def test_graphs_of_settings_that_were_turned_off_are_not_captured_ahead(devices: Devices) -> None:
    engine = devices.recorded("long").sampled(0, Schedule(Sampling(0.6)))
    session = begun(engine, [1] * 200, 150, Linear(2))
    session.step(())
    engine.sampling.turn(len(session.text) - 1, Sampling())
    session.step(())
    session.step(())
    while session.prepare():
        pass
    ahead = [key for key in session._slot._captured if key[1] not in (256, 256 + 64)]
    assert {key[-1] for key in ahead} == {GreedyVerifier()}


def test_a_verifier_is_as_plain_as_the_settings_in_force_allow() -> None:
    schedule = Schedule(Sampling())
    schedule.turn(10, Sampling(0.6))
    schedule.turn(20, Sampling(0.6, top_k=4))
    schedule.turn(30, Sampling(0.6))
    schedule.turn(40, Sampling())
    found = [device_verifier(schedule, position) for position in (0, 15, 29, 30, 39, 40, 99)]
    truncated, whole = CoupledDeviceVerifier(truncates=True), CoupledDeviceVerifier(truncates=False)
    assert found == [truncated, truncated, truncated, whole, whole, GreedyVerifier(), GreedyVerifier()]
    assert len({hash(each) for each in found}) == 3


# On a GPU


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sampling", [Sampling(0.6), Sampling(1.0, top_p=0.9), Sampling(1.0, top_k=5)], ids=str)
def test_graphs_give_the_sampled_rounds_of_the_host_and_the_text_of_the_cpu(
    devices: Devices, sampling: Sampling, method: str
) -> None:
    """The host's rounds on a GPU use a `GumbelNoise` on the device, too."""
    prompt, rules = devices.prompt(), METHODS[method]
    for seed in (0, HUGE_SEED):
        engine = on_gpu(devices.models, "neox", "float64").sampled(seed, Schedule(sampling))
        found = text_of(match(engine, prompt, 100, rules))
        on_cpu = devices.models.engine("neox", "float64").sampled(seed, Schedule(sampling))
        assert isinstance(engine.session(prompt, 9, KnobState(rules) if rules else None), GraphSession)
        text = text_of_host(on_cpu, prompt, 100)
        assert text[: len(found)] == found
        assert text_of_host(engine, prompt, 100) == text


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("family", ["neox", "llama"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_graphs_give_the_sampled_rounds_of_plain_calls(devices: Devices, family: str, dtype: str) -> None:
    for sampling, rules in product((Sampling(0.6), Sampling(1.0, top_p=0.9)), (None, Linear(3), LIVELY)):
        found = []
        for graphs in (True, False):
            engine = on_gpu(devices.models, family, dtype, graphs=graphs).sampled(1, Schedule(sampling))
            rounds = rounds_of(begun(engine, devices.prompt(family), 36, rules))
            found.append([(outcome.tree, outcome.committed) for outcome in rounds])
        assert found[0] == found[1]


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_sampled_round_waits_for_the_device_once_even_where_settings_are_turned(
    devices: Devices, method: str
) -> None:
    engine = on_gpu(devices.models, "neox", "float32")
    for last in (False, True):
        schedule = Schedule(Sampling(0.6, top_p=0.9))
        session = devices.begun(engine.sampled(1, schedule), METHODS[method])
        session.step(())
        session.step(())
        schedule.turn(len(session.text) + 65, Sampling(1.0, top_k=4))
        if last:
            with no_hidden_waits():
                rounds = rounds_of(session)
        else:
            rounds = rounds_of(session)
        assert session.waits == 2 + len(rounds)
