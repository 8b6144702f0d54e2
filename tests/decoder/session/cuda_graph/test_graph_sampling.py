"""Sampled device rounds equal the host's: the same tokens, and the same trees up to ties."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TypeAlias

import pytest
import torch

from decoder import RunConfig, Steering, decode
from decoder.engine import Engine
from decoder.events import Round
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.static_shapes import Shape
from decoder.session.knob_state import KnobState
from decoder.session.protocol import Outcome, Session
from decoder.tree_rules import Rules
from decoder.verify.coupled import CoupledDeviceVerifier, device_verifier
from decoder.verify.greedy import GreedyVerifier
from tests.decoder.makers import Played, TinyModels, graph_slots, host_session, with_pair
from tests.decoder.session.cuda_graph.matching import graph_session, match, opened_on_device, recorded, records
from tests.decoder.session.cuda_graph.on_gpu import gpu, no_hidden_waits, on_gpu
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes

PROMPT = "The tree grows"
LIVELY = DynaTree(window=2, eta_d=2, eta_h=0.3, target_acceptance=0.4, rho_stop=0.02, tau=0.02, rho_deep=0.1, n_max=40)
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

Recordings: TypeAlias = Callable[..., Engine]
"""(name of a pair, dtype) -> an engine that replays rounds from records."""


@pytest.fixture(scope="module")
def recordings(tiny_models: TinyModels) -> Recordings:
    """Engines that reuse their records across tests, as slots reuse graphs across texts."""

    @cache
    def made(name: str, dtype: str = "float64") -> Engine:
        return recorded(tiny_models.loaded(tiny_models.pair(name), dtype))

    return made


def committed(rounds: Sequence[Outcome]) -> list[int]:
    return [token for outcome in rounds for token in outcome.committed]


def finished(session: Session) -> list[Outcome]:
    session.prefill()
    rounds = [session.step(())]
    while not rounds[-1].finished:
        rounds.append(session.step(()))
    return rounds


@pytest.mark.parametrize(
    ("method", "sampling"),
    [
        *product(METHODS, (Sampling(0.6), Sampling(1.0, top_p=0.9))),
        *product(("lively", "best-first"), (Sampling(1.0), Sampling(1.0, top_k=5), Sampling(0.8, top_k=20, top_p=0.7))),
        ("best", Sampling(2.0, top_k=1)),
    ],
    ids=str,
)
def test_every_round_is_that_of_the_host(
    tiny_models: TinyModels, recordings: Recordings, sampling: Sampling, method: str
) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    rounds = match(recordings("neox").sampled(7, Schedule(sampling)), prompt, 24, METHODS[method])
    drafted = [outcome.tree for outcome in rounds if len(outcome.tree) > 1]
    assert all(tree.draft_logprobs for tree in drafted)
    assert bool(drafted) == (method != "ar")


@pytest.mark.parametrize(
    ("family", "dtype", "method"),
    [("llama", "float64", "linear"), ("qwen3", "float64", "lively"), ("neox", "float32", "lively")],
)
def test_so_it_is_for_other_families_and_in_single_precision(
    tiny_models: TinyModels, recordings: Recordings, family: str, dtype: str, method: str
) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair(family), PROMPT)
    for seed, sampling in ((4, Sampling(1.0)), (HUGE_SEED, Sampling(1.0, top_p=0.9))):
        match(recordings(family, dtype).sampled(seed, Schedule(sampling)), prompt, 16, METHODS[method])


@pytest.mark.parametrize("name", ["twins", "wide-draft", "wide-target", "begin"])
def test_so_it_is_for_pairs_with_a_peculiarity(tiny_models: TinyModels, recordings: Recordings, name: str) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair(name), PROMPT)
    match(recordings(name, "float32").sampled(1, Schedule(Sampling(0.9, top_p=0.8))), prompt, 24, LIVELY)


@pytest.mark.parametrize(("seed", "sampling"), [(0, Sampling(0.6)), (1, Sampling(1.0, top_p=0.9))], ids=str)
def test_all_methods_write_one_text_whatever_sizes_are_chosen(
    tiny_models: TinyModels, recordings: Recordings, sampling: Sampling, seed: int
) -> None:
    engine = recordings("neox").sampled(seed, Schedule(sampling))
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    texts = {name: committed(finished(graph_session(engine, prompt, 36, rules))) for name, rules in METHODS.items()}
    chosen = finished(graph_session(engine, prompt, 36, WIDE, RandomSizes(seed)))
    texts["any size"] = committed(chosen)
    assert {len(outcome.tree) > 1 for outcome in chosen} == {False, True}
    texts["auto"] = committed(finished(graph_session(engine, prompt, 36, Auto())))
    texts["host"] = committed(finished(host_session(engine, prompt, 36, None)))
    assert len(set(map(tuple, texts.values()))) == 1
    other = engine.sampled(seed + 1, Schedule(sampling))
    assert committed(finished(graph_session(other, prompt, 36, None))) != texts["ar"]


def test_a_session_that_the_engine_opens_is_sampled_by_its_seed_and_settings(
    tiny_models: TinyModels, recordings: Recordings
) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    engine = recordings("neox").sampled(11, Schedule(Sampling(1.0, top_p=0.9)))
    session = engine.session(prompt, 30, KnobState(LIVELY))
    assert isinstance(session, GraphSession)
    assert committed(finished(session)) == committed(finished(host_session(engine, prompt, 30, None)))


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_a_text_ends_at_its_limit(tiny_models: TinyModels, recordings: Recordings, method: str, limit: int) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    for sampling in (Sampling(0.6), Sampling(1.0, top_p=0.9)):
        rounds = match(recordings("neox").sampled(2, Schedule(sampling)), prompt, limit, METHODS[method])
        assert rounds[-1].finished == "length"
        assert len(committed(rounds)) == limit


@pytest.mark.parametrize("method", ["ar", "linear", "lively"])
def test_a_text_ends_with_the_end_of_text_token_wherever_in_a_burst_it_comes(
    tiny_models: TinyModels, recordings: Recordings, method: str
) -> None:
    engine, within = recordings("neox").sampled(5, Schedule(Sampling(0.6, top_p=0.9))), 0
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    for token in dict.fromkeys(committed(finished(host_session(engine, prompt, 12, None)))):
        rounds = match(with_pair(engine, eos=frozenset({token})), prompt, 30, METHODS[method])
        assert rounds[-1].finished == "eos"
        assert rounds[-1].committed[-1] == token
        within += len(rounds[-1].committed) <= len(rounds[-1].accepted)
    assert within or method == "ar"


def test_trees_shrink_towards_the_end_of_the_context(recordings: Recordings) -> None:
    engine = recordings("neox").sampled(1, Schedule(Sampling(0.6)))
    match(engine, [7 * place % 260 for place in range(engine.pair.context - 12)], 12, LIVELY)


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
    tiny_models: TinyModels, recordings: Recordings, monkeypatch: pytest.MonkeyPatch, method: str, turns: str
) -> None:
    monkeypatch.setattr(GraphSession, "_hand_over", None)
    before, sampled = TURNS[turns]
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    engine = recordings("neox").sampled(3, Schedule(before))
    rounds = match(engine, prompt, 110, METHODS[method], sampled=sampled)
    never = engine.sampled(3, Schedule(before))
    plain = committed(finished(graph_session(never, prompt, 110, None)))
    text = committed(rounds)
    assert text[:60] == plain[:60]
    assert text != plain


def test_the_temperature_is_turned_up_and_down_in_a_race_whose_methods_write_one_text(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "session", opened_on_device)
    engine, steering = recorded(tiny_models.loaded(tiny_models.pair("neox"), "float64")), Steering()
    names = ("dynatree", "ar", "linear", "alg1")
    events = []
    for event in decode(engine, PROMPT, RunConfig(names, 120, seed=4), steering):
        events.append(event)
        if isinstance(event, Round) and event.method == "ar" and event.round in (2, 40):
            steering.turn("temperature", 0.6 if event.round == 2 else 0.0)
    played = Played(events)
    texts = {name: tuple(played.tokens(name)) for name in names}
    assert len(set(texts.values())) == 1
    greedy = tiny_models.generate(tiny_models.pair("neox"), "float64", PROMPT, 120)
    assert list(texts["ar"]) != greedy
    assert list(texts["ar"][:60]) == greedy[:60]


# Captured graphs


@pytest.mark.parametrize("method", ["ar", "linear", "fixed"])
def test_other_seeds_and_settings_are_decoded_by_what_was_captured_for_the_first(
    tiny_models: TinyModels, method: str
) -> None:
    engine = recorded(tiny_models.loaded(tiny_models.pair("neox"), "float64"))
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    rules = replace(Fixed(), tau=0.0, n_max=6) if method == "fixed" else METHODS[method]
    match(engine.sampled(0, Schedule(Sampling(0.6, top_p=0.9))), prompt, 90, rules)
    before = records(engine)
    sampled = {2: [Sampling(0.3, top_p=0.5)]}
    match(engine.sampled(9, Schedule(Sampling(1.0, top_k=7))), prompt, 90, rules, sampled=sampled)
    assert records(engine) == before


def test_only_what_sampling_asks_for_is_captured(tiny_models: TinyModels) -> None:
    engine = recorded(tiny_models.loaded(tiny_models.pair("neox"), "float64"))
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    for sampling in (Sampling(), Sampling(0.6), Sampling(0.6, top_p=0.9)):
        match(engine.sampled(0, Schedule(sampling)), prompt, 20, Linear(3))
    (slot,) = graph_slots(engine)._free
    kinds = (GreedyVerifier(), CoupledDeviceVerifier(truncates=False), CoupledDeviceVerifier(truncates=True))
    assert [key[-1] for key in slot._captured if isinstance(key[0], Shape)] == list(kinds)


def test_graphs_of_settings_that_were_turned_off_are_not_captured_ahead(tiny_models: TinyModels) -> None:
    engine = recorded(tiny_models.loaded(tiny_models.pair("long"), "float64")).sampled(0, Schedule(Sampling(0.6)))
    session = graph_session(engine, [1] * 200, 150, Linear(2))
    session.prefill()
    session.step(())
    engine.sampling.turn(len(session.text) - 1, Sampling())
    session.step(())
    session.step(())
    while session.prepare():
        pass
    ahead = [key for key in session._slot._captured if key[1] not in (256, 256 + 64)]
    assert ahead
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
    tiny_models: TinyModels, sampling: Sampling, method: str
) -> None:
    """The host's rounds on a GPU use a `GumbelNoise` on the device, too."""
    pair = tiny_models.pair("neox")
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    for seed in (0, HUGE_SEED):
        engine = on_gpu(tiny_models, "neox", "float64").sampled(seed, Schedule(sampling))
        rounds = match(engine, prompt, 100, METHODS[method])
        on_cpu = tiny_models.loaded(pair, "float64").sampled(seed, Schedule(sampling))
        rules = METHODS[method]
        assert isinstance(engine.session(prompt, 9, KnobState(rules) if rules else None), GraphSession)
        text = [token for outcome in finished(host_session(on_cpu, prompt, 100, None)) for token in outcome.committed]
        assert text[: len(committed(rounds))] == committed(rounds)
        assert committed(finished(host_session(engine, prompt, 100, None))) == text


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("family", ["neox", "llama"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_graphs_give_the_sampled_rounds_of_plain_calls(tiny_models: TinyModels, family: str, dtype: str) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair(family), PROMPT)
    for sampling, rules in product((Sampling(0.6), Sampling(1.0, top_p=0.9)), (None, Linear(3), LIVELY)):
        rounds = []
        for graphs in (True, False):
            engine = on_gpu(tiny_models, family, dtype, graphs=graphs).sampled(1, Schedule(sampling))
            rounds.append(finished(graph_session(engine, prompt, 36, rules)))
        by_graph, by_call = rounds
        assert [outcome.tree for outcome in by_graph] == [outcome.tree for outcome in by_call]
        assert committed(by_graph) == committed(by_call)


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_sampled_round_waits_for_the_device_once_even_where_settings_are_turned(
    tiny_models: TinyModels, method: str
) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    engine = on_gpu(tiny_models, "neox", "float32")
    for last in (False, True):
        schedule = Schedule(Sampling(0.6, top_p=0.9))
        session = graph_session(engine.sampled(1, schedule), prompt, 60, METHODS[method])
        session.prefill()
        rounds, ended = 0, None
        while not ended:
            if rounds == 2:
                schedule.turn(len(session.text) + 65, Sampling(1.0, top_k=4))
            if last:
                with no_hidden_waits():
                    ended = session.step(()).finished
            else:
                ended = session.step(()).finished
            rounds += 1
        assert session.waits == rounds
    assert torch.cuda.is_available()
