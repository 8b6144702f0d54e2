"""Texts of device rounds: those of plain decoding whatever sizes are chosen, sampled as on the host also where settings
are turned, and with heads and attention windows, some of which the host alone decodes.

`test_graph_rounds.py` compares sampled rounds one by one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from decoder import RunConfig, Steering, decode
from decoder.draft.tree_size.plan import TreePlan, ranks
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.engine import Engine
from decoder.events import Round
from decoder.heads.eagle3 import UNTAPPED
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.decoding_path import DecodingPath, decoding_path
from decoder.run.loading import make_engine
from decoder.sampling.noise import GumbelNoise
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.self_test import prepare_rounds
from decoder.session.cuda_graph.session import GraphSession, LookupSession
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import CHUNKED, SHORT, Shape
from decoder.session.host import HostSession
from decoder.session.protocol import Outcome, Session
from decoder.session.steering import KnobState, Turn
from decoder.system.device import Outbox
from decoder.tree_rules import Rules
from decoder.verify.verifier import CoupledDeviceVerifier, GreedyVerifier, device_verifier
from tests.decoder.any_family import built, config_of, engine_of
from tests.decoder.makers import METHODS as RACED
from tests.decoder.makers import PROMPT, TinyModels, graph_slots, host_session, play, with_pair
from tests.decoder.session.cuda_graph.matching import (
    GREEDY,
    LIVELY,
    METHODS,
    WIDE,
    Devices,
    RandomSizes,
    Turns,
    begun,
    check,
    match,
    prepared,
    recorded,
    records,
    refused,
    rounds_of,
    text_of,
    text_of_host,
)
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device
from tests.heads import name

GREEDY_VERIFIER = GreedyVerifier()
WHOLE, TRUNCATED = CoupledDeviceVerifier(truncates=False), CoupledDeviceVerifier(truncates=True)


@pytest.mark.parametrize(("seed", "sampling"), [(2, GREEDY), (1, Sampling(1.0, top_p=0.9))], ids=str)
def test_all_methods_write_one_text_whatever_sizes_are_chosen(devices: Devices, sampling: Sampling, seed: int) -> None:
    engine = devices.kept().sampled(seed, Schedule(sampling))
    texts = {name: text_of(rounds_of(devices.begun(engine, rules, 48))) for name, rules in METHODS.items()}
    rounds = {
        "any size": rounds_of(devices.begun(engine, WIDE, 48, RandomSizes(seed))),
        "auto": rounds_of(devices.begun(engine, Auto(), 48)),
    }
    assert {len(outcome.tree) > 1 for outcome in rounds["any size"]} == {False, True}
    assert any(len(outcome.tree) > 1 for outcome in rounds["auto"])  # a kindred draft is used
    texts |= {name: text_of(found) for name, found in rounds.items()}
    texts["host"] = text_of_host(engine, devices.prompt(), 48)
    assert len(set(map(tuple, texts.values()))) == 1
    if sampling.greedy:
        assert texts["ar"] == devices.generated(48)
    else:
        other = engine.sampled(seed + 1, Schedule(sampling))
        assert text_of(rounds_of(devices.begun(other, None, 48))) != texts["ar"]


# Rounds that choose their sizes


def played(
    devices: Devices, engine: Engine, limit: int, sizes: PlanController | None = None, turns: Sequence[Turn] = ()
) -> list[Outcome]:
    session, found = devices.begun(engine, WIDE, limit, sizes), list[Outcome]()
    while not found or not found[-1].finished:
        found.append(session.step(tuple(turns) if len(found) > 3 else ()))
    return found


def best_of(plan: TreePlan) -> DynaTree:
    """Rules with the bounds of `WIDE` that keep as many of the most probable nodes as a plan."""
    given = {each.name: getattr(WIDE, each.name) for each in fields(WIDE) if each.name != "lookup"}
    sizes = {"d_max": plan.depth, "d0": plan.depth - 1, "n_max": plan.nodes - 1}
    return DynaTree(**given | sizes, selection="best")


def check_tree(outcome: Outcome, engine: Engine, text: Sequence[int], plan: TreePlan) -> None:
    """The round's tree is the host's after this text by the rules of the plan."""
    host = host_session(engine, text, 9, best_of(plan))
    host.prefill()
    found, expected = outcome.tree, host.step(()).tree
    assert (found.tokens, found.parents) == (expected.tokens, expected.parents)
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_a_tree_is_that_of_the_host_whatever_the_draft_had_missed(devices: Devices, seed: int) -> None:
    controller, loaded, text = RandomSizes(seed, plain=0.7, depths=(2, 3, 4)), devices.recorded(), devices.prompt()
    rounds = played(devices, loaded, 100, controller)
    for number, (outcome, plan) in enumerate(zip(rounds, controller.chosen, strict=False)):
        assert (len(outcome.tree) > 1) == (plan is not None)
        if plan:
            rested = number > 1 and controller.chosen[number - 1] is None
            assert outcome.draft_forwards == plan.depth + rested
            check_tree(outcome, loaded, text, plan)
        text = [*text, *outcome.committed]


def test_what_became_of_each_tree_is_learnt_once_but_of_the_last_ones(devices: Devices) -> None:
    controller = RandomSizes(5)
    rounds = played(devices, devices.plain(), 100, controller)
    expected = [
        (plan, ranks(outcome.tree.path_logprobs, outcome.accepted))
        for plan, outcome in zip(controller.chosen, rounds, strict=False)
        if plan
    ]
    assert any(found for _, found in expected)
    assert len(expected) - 2 <= len(controller.learnt) <= len(expected)
    assert controller.learnt == expected[: len(controller.learnt)]


@pytest.mark.parametrize(
    ("pair", "drafted", "rests"),
    [("long", 3, (13, 14, 61, 62, 63, *range(251, 256), 300)), (name("neox", "flat"), 8, (3, 28, 30, 32, 40))],
    ids=["model", "head"],
)
def test_after_rounds_without_a_draft_a_head_has_read_all_tokens(
    devices: Devices, pair: str, drafted: int, rests: Sequence[int]
) -> None:
    loaded, prompt = devices.kept(pair), devices.prompt()
    for rest in rests:
        controller = RandomSizes.scripted([*[TreePlan(4, 32)] * drafted, *[None] * rest, *[TreePlan(3, 8)] * 40])
        rounds = rounds_of(begun(loaded, prompt, rest + 30, WIDE, controller))
        before, after = rounds[: drafted + rest], rounds[drafted + rest]
        assert pair == "long" or len(before[drafted - 1].committed) > 3
        check_tree(after, loaded, [*prompt, *text_of(before)], TreePlan(3, 8))
        assert len(after.tree) > 1


def test_a_turn_in_the_middle_of_a_rest_acts_on_the_next_draft(devices: Devices) -> None:
    one = (Turn("b_min", 1), Turn("b_mid", 1), Turn("b_max", 1))
    rounds = played(devices, devices.recorded(), 40, RandomSizes.scripted([*[None] * 8, *[TreePlan(3, 16)] * 80]), one)
    drafted = [outcome.tree for outcome in rounds if len(outcome.tree) > 1]
    assert all(tree.parents == [-1, 0, 1, 2] for tree in drafted)


# Settings turned during decoding


TURNS: dict[str, tuple[str, Sampling, Mapping[int, Sequence[Sampling]]]] = {
    "on and off": ("lively", GREEDY, {1: [Sampling(0.6)], 12: [GREEDY]}),
    "off and on": ("ar", Sampling(0.6), {1: [GREEDY], 12: [Sampling(0.6)]}),
    "twice at once": ("best", Sampling(0.6), {0: [Sampling(2.0), Sampling(1.0, top_p=0.8)], 2: [Sampling(0.3)]}),
    "truncated later": ("lively", Sampling(1.0), {0: [Sampling(1.0, top_k=3)], 9: [Sampling(1.5)]}),
}


@pytest.mark.parametrize("turns", TURNS)
def test_settings_are_turned_at_the_same_token_as_on_the_host_and_the_text_stays_on_the_device(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, turns: str
) -> None:
    monkeypatch.setattr(GraphSession, "_hand_over", None)
    method, before, sampled = TURNS[turns]
    engine = devices.kept().sampled(3, Schedule(before))
    text = text_of(match(engine, devices.prompt(), 110, METHODS[method], sampled=sampled))
    plain = text_of(rounds_of(devices.begun(engine.sampled(3, Schedule(before)), None, 110)))
    assert text[:60] == plain[:60]
    assert text != plain


# Captured graphs


@pytest.mark.parametrize("rules", [None, Fixed(tau=0.0, n_max=6)], ids=["ar", "fixed"])
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
    for sampling in (GREEDY, Sampling(0.6), Sampling(0.6, top_p=0.9)):
        match(engine.sampled(0, Schedule(sampling)), devices.prompt(), 20, Linear(3))
    (slot,) = graph_slots(engine)._free
    drafts = [key[-1] for key in slot._captured if isinstance(key[0], Shape)]
    assert drafts == [GREEDY_VERIFIER, WHOLE, TRUNCATED]


def test_a_verifier_is_as_plain_as_the_settings_in_force_allow() -> None:
    schedule = Schedule(GREEDY)
    for position, sampling in ((10, Sampling(0.6)), (20, Sampling(0.6, top_k=4)), (30, Sampling(0.6)), (40, GREEDY)):
        schedule.turn(position, sampling)
    found = [device_verifier(schedule, position) for position in (0, 15, 29, 30, 39, 40, 99)]
    assert found == [*[TRUNCATED] * 3, WHOLE, WHOLE, GREEDY_VERIFIER, GREEDY_VERIFIER]
    assert len({hash(each) for each in found}) == 3


# Heads and windows


@pytest.mark.parametrize(("family", "dtype"), [("neox", "bfloat16"), ("llama", "float64")])
def test_the_self_test_trusts_rounds_with_a_head(devices: Devices, family: str, dtype: str) -> None:
    """Afterwards, the host can drive rounds that fit no tensors with the same form of the target."""
    engine = devices.plain(name(family, "nested"), dtype)
    engine = replace(engine, pair=replace(engine.pair, target=engine.pair.target.inexact()))
    assert prepared(engine) is None
    assert engine.pair.target.runs_without_module
    session = engine.session(devices.prompt(), 4, KnobState(LIVELY))
    assert isinstance(session, GraphSession)
    session.close()
    if dtype == "float64":
        match(engine, devices.prompt(), 16, LIVELY)


def test_a_target_that_runs_as_a_module_is_driven_by_the_host(devices: Devices) -> None:
    engine = devices.plain(name("gpt2", "flat"), "float32")
    engine = replace(engine, pair=replace(engine.pair, target=engine.pair.target.inexact()))
    slots = graph_slots(engine)
    slots.refused = prepared(engine)
    assert slots.refused == UNTAPPED
    assert isinstance(engine.session(devices.prompt(), 4, KnobState(LIVELY)), HostSession)


def test_heads_without_a_static_form_are_driven_by_the_host(devices: Devices) -> None:
    engine = devices.recorded(name("llama", "P-EAGLE"))
    assert isinstance(engine.session(devices.prompt(), 4, KnobState(Auto())), HostSession)
    assert decoding_path(engine).name == "host"


@pytest.mark.parametrize(("family", "reason"), [("mistral", SHORT), ("gemma3_text", SHORT), ("llama4_text", CHUNKED)])
def test_the_host_drives_rounds_of_models_with_other_windows(family: str, reason: str) -> None:
    module = built(config_of(family))
    assert prepare_rounds(engine_of(module, module).pair, GraphSlots(), [None]) == reason


# Whole runs


def run_of(engine: Engine, names: Sequence[str], limit: int = 60, steering: Steering | None = None) -> Any:
    return decode(engine, PROMPT, RunConfig(tuple(names), limit, dynatree=DynaTree()), steering or Steering())


def test_all_methods_race_and_write_the_same_text(devices: Devices) -> None:
    loaded = devices.recorded()
    played, expected = play(loaded, RunConfig(RACED, 24)), devices.generated(24)
    for method in RACED:
        assert played.tokens(method) == expected
        assert played.figures(method).identical_to_ar
    with_slots = set(RACED) - {"ar", "streaming", "alg1", "hf"}
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

SHALLOW = DynaTree(
    d0=4, d_max=8, window=2, eta_d=1, eta_h=0.3, target_acceptance=0.4, rho_stop=0.1, rho_deep=0.2, n_max=20
)
LOOKED_UP = [Linear(8), Fixed(depth=3, branching=2, n_max=12), SHALLOW, replace(SHALLOW, selection="best")]
SAMPLED = Sampling(temperature=0.7, top_k=20)
TURNED: Turns = {2: [("d0", 6.0)], 3: [("tau_h", 0.5), ("n_max", 4)]}
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


@pytest.mark.parametrize("rules", LOOKED_UP, ids=["linear", "fixed", "dynatree", "best"])
def test_repeated_text_is_accepted_many_tokens_a_round_as_on_the_host(
    alone: Engine, looping: list[int], rules: Rules
) -> None:
    rounds = match(alone, looping, LIMIT, rules)
    assert max(len(outcome.accepted) for outcome in rounds) >= 3
    assert [len(outcome.tree) for outcome in match(alone, [1, 2, 3], 4, rules)] == [1] * 4  # nothing is found


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_tree_grows_again_under_turned_knobs(alone: Engine, looping: list[int], sampling: Sampling) -> None:
    match(alone.sampled(2, Schedule(sampling)), looping, LIMIT, SHALLOW, TURNED)
    rounds = match(alone.sampled(2, Schedule(sampling)), 4 * [5, 6, 7, 8, 6, 7], LIMIT, SHALLOW)
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
        session = begun(on_fake_device(alone), looping, LIMIT, SHALLOW)
        for turn in range(4):
            session.step((Turn("tau_h", 0.5 + turn / 10),))
        session.close()
    *between, _ = " ".join(device.log).split("tree")[1:]
    assert len(between) > 4
    assert all(re.search(r"replay.*wait|copy.*wait", requests) for requests in between)


def test_rules_that_no_longer_fit_go_on_on_the_host(alone: Engine) -> None:
    session, host = opened(alone, SHALLOW), opened(replace(alone, slots=None), SHALLOW)
    for each in (session, host):
        each.prefill()
    check(*(each.step((Turn("d_max", 40),)) for each in (session, host)))
    assert text_of(rounds_of(session)) == text_of(rounds_of(host))
    assert len(graph_slots(alone)._free) == 1


def test_costs_choose_the_sizes_of_looked_up_trees_on_the_host_alone(alone: Engine) -> None:
    assert isinstance(opened(alone, Auto()), HostSession)
    assert isinstance(opened(alone, SHALLOW), LookupSession)
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
