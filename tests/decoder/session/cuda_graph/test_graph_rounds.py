"""Device rounds replayed from graphs equal those of `HostSession` in their trees, tokens and knobs.

Heads are EAGLE-3 heads; pairs with windows are read beyond their windows.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import cycle, product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder import RunConfig
from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.knobs import KnobName
from decoder.methods import METHODS as OPENED
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph import slots as slots_module
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.static_shapes import BUCKETS, Shape, fits
from decoder.system.device import without_gradients
from decoder.tree_rules import Rules
from tests import tiny
from tests.decoder.broken_targets import damaged
from tests.decoder.makers import TinyModels, graph_slots, host_session, play, with_pair
from tests.decoder.property_settings import examples
from tests.decoder.session.all_methods import FIXEDS, dynatrees
from tests.decoder.session.cuda_graph.matching import (
    GREEDY,
    LIVELY,
    METHODS,
    Case,
    Devices,
    match,
    recorded,
    records,
    rounds_of,
    text_of_host,
    with_slots,
)
from tests.heads import ROWS, name

BUSHY = DynaTree(d0=3, d_max=4, branching=(3, 4, 4), rho_stop=0.01, rho_deep=0.01, tau=0, history=False, n_max=200)
RULES = METHODS | {
    "a chain of one": Linear(1),
    "fixed, cut": Fixed(depth=4, branching=3, tau=0.02, n_max=11),
    "history off": DynaTree(history=False),
    "sharpened": replace(LIVELY, sharpness=2.0),
    "best of a sharpened tree": replace(LIVELY, sharpness=1.5, selection="best", n_max=9),
    "a few of the best": replace(BUSHY, selection="best", n_max=3),
    "first few": replace(BUSHY, n_max=5),
    "no path too improbable": replace(
        BUSHY, branching=(1, 2, 4), tau_l=0.3, tau_h=0.4, rho_stop=0, rho_deep=0, n_max=12
    ),
    "best-first, wide": BestFirst(40, 3),
    "certain paths only": DynaTree(rho_stop=1, rho_deep=1, tau=1),
}
FEW = ("ar", "linear", "lively")
IN_WINDOW, NEAR_THE_END = "before the end of a window", "before the end of the context"
WARM, TOP_P = Sampling(0.6), Sampling(1.0, top_p=0.9)
HUGE_SEED = 2**64 - 3
HEADED, DEEP_HEAD = name("llama", "flat"), name("neox", "flat")
PROMPTS = {
    "one token": [5],
    IN_WINDOW: [(7 * place * place + 3) % 96 for place in range(tiny.WINDOW - 6)],
    NEAR_THE_END: [7 * place % 260 for place in range(tiny.CONTEXT - 12)],
}


CASES = [
    *(Case("neox", rules, limit=30) for rules in RULES),
    *(Case("neox", rules, by_module=True) for rules in ("ar", "fixed, cut", "best")),
    *(Case("llama", rules) for rules in ("linear", "best", "best-first, wide")),
    Case("neox", "fixed", "float32"),
    *(
        Case(pair, dtype="float32")
        for pair in ("gpt2", "qwen3", "twins", "wide-draft", "wide-target", "llama-strange", "begin")
    ),
    # Sampled
    *(Case("neox", rules, sampling=sampling) for rules, sampling in zip(METHODS, cycle((WARM, TOP_P)))),
    *(Case("neox", sampling=sampling) for sampling in (Sampling(1.0), Sampling(1.0, top_k=5), Sampling(0.8, 20, 0.7))),
    Case("neox", "best", sampling=Sampling(2.0, top_k=1)),
    Case("llama", "linear", sampling=Sampling(1.0), seed=4, limit=16),
    Case("qwen3", "lively", sampling=TOP_P, seed=HUGE_SEED, limit=16),
    *(
        Case(pair, dtype="float32", sampling=Sampling(0.9, top_p=0.8), seed=1)
        for pair in ("twins", "wide-draft", "wide-target")
    ),
    # With a head
    *(Case(HEADED, rules, limit=16) for rules in ("ar", "lively", "best", "best-first", "eagle2", "a chain of one")),
    *(Case(name("llama", layout), limit=16) for layout in ROWS if "P-EAGLE" not in layout),
    Case(HEADED, sampling=Sampling(0.7), seed=3, limit=16),
    Case(name("llama", "flat, all tokens"), sampling=Sampling(1.0, 20, 0.9), seed=3, limit=16),
    # Modules, and pairs with windows
    *(Case(pair, by_module=True) for pair in ("llama", "qwen3")),
    Case("gpt2", "linear", by_module=True),
    *(
        Case("half-windows", rules, by_module=by_module, limit=40, prompt=IN_WINDOW)
        for by_module, rules in product((False, True), ("ar", "best"))
    ),
    Case("windows", "best", limit=40, prompt=IN_WINDOW),
    Case("windows", "linear", by_module=True, limit=40, prompt=IN_WINDOW),
    # Lengths
    *(Case("llama", rules, prompt="one token", limit=20) for rules in FEW),
    *(Case("neox", rules, prompt=NEAR_THE_END, limit=12) for rules in (*FEW, "best")),
    Case("neox", sampling=WARM, prompt=NEAR_THE_END, limit=12),
    *(Case("neox", rules, limit=limit) for rules, limit in product(FEW, (1, 2, 5))),
    *(Case("neox", rules, sampling=TOP_P, limit=limit) for rules, limit in product(FEW, (1, 2, 3))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_round_is_that_of_the_host(devices: Devices, case: Case) -> None:
    """A record replays no Python, so a number inserted by the host would stay the same in every round."""
    engine = devices.kept(case.pair, case.dtype, by_module=case.by_module).sampled(case.seed, Schedule(case.sampling))
    prompt = PROMPTS.get(case.prompt) or devices.prompt(case.pair)
    rounds = match(engine, prompt, case.limit, RULES[case.rules])
    drafted = [outcome.tree for outcome in rounds if len(outcome.tree) > 1]
    if case.pair != "twins" and case.limit > 8:  # whose ties end the comparison
        assert bool(drafted) == (case.rules != "ar")
    if not case.sampling.greedy:
        assert all(tree.draft_logprobs for tree in drafted)


# Ties


TIED = sorted(RULES.keys() - {"ar", "a chain of one", "history off", "first few", "best-first, wide"})


@pytest.fixture(scope="module")
def tied(devices: Devices) -> Callable[[float], Engine]:
    """Engines whose draft's logits are multiplied by a factor; they reuse their records across tests."""

    @cache
    def made(factor: float) -> Engine:
        engine = devices.models.engine("neox", "float64")
        module = copy.deepcopy(engine.pair.draft_model.hf.module)
        with torch.no_grad():
            module.get_output_embeddings().weight.mul_(factor)
        return recorded(with_pair(engine, draft=LanguageModel.of_module(module, "of another head")))

    return made


@pytest.mark.parametrize("rules", TIED[::2])
def test_where_all_tokens_are_equally_probable_trees_are_whole_and_the_text_is_the_host_s(
    devices: Devices, tied: Callable[[float], Engine], rules: str
) -> None:
    device = devices.begun(tied(0.0), RULES[rules], 30)
    host = host_session(tied(0.0), devices.prompt(), 30, RULES[rules])
    host.prefill()
    trees = [outcome.tree for outcome in rounds_of(device)]
    for tree in trees:
        nodes = list(zip(tree.parents[1:], tree.tokens[1:], strict=True))
        assert len(set(nodes)) == len(nodes)
        assert all(parent < node for node, parent in enumerate(tree.parents))
        assert (tree.parents, tree.depths) == (sorted(tree.parents), sorted(tree.depths))
    assert max(map(len, trees)) == max(len(outcome.tree) for outcome in rounds_of(host))
    assert device.text == host.text


@pytest.mark.parametrize("rules", TIED[1::2])
def test_a_node_that_is_as_probable_as_its_parent_does_not_stay_without_it(
    devices: Devices, tied: Callable[[float], Engine], rules: str
) -> None:
    rounds = match(tied(1000.0), devices.prompt(), 24, RULES[rules])
    assert any(outcome.tree.logprobs[1:2] == [0.0] for outcome in rounds)


# Random rules

SOME_RULES = st.builds(Linear, st.integers(1, 12)) | FIXEDS | dynatrees()


@examples(8)
@given(
    rules=SOME_RULES.filter(lambda rules: fits(rules.rule())), pair=st.sampled_from(["neox", "llama", "neox-strange"])
)
def test_random_rules_grow_the_same_trees(devices: Devices, rules: Rules, pair: str) -> None:
    match(devices.kept(pair), devices.prompt(pair), 16, rules)


# Lengths


def test_trees_of_every_bucket_and_on_both_sides_of_its_end_are_verified(devices: Devices) -> None:
    sizes = set()
    for edge in BUCKETS[1:]:
        for nodes in {max(2, edge - 1), edge, edge + 1}:
            rules = replace(BUSHY, d_max=5, d0=4, branching=(4, 4, 4), rho_stop=0.001, rho_deep=0.001, n_max=nodes - 1)
            if fits(rules.rule()):
                rounds = match(devices.kept("neox-strange"), devices.prompt("neox-strange"), 2, rules)
                sizes |= {len(outcome.tree) for outcome in rounds}
    assert sizes >= {7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 263, 264}


def test_text_crosses_from_one_range_of_slots_to_the_next(devices: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are exactly as wide as necessary here, so a range that is one row too short fails."""
    monkeypatch.setattr(slots_module, "visible", lambda length, rows, _: length + rows)
    for rules in (*FEW, "best"):
        match(devices.plain("llama"), devices.prompt("llama"), 60, RULES[rules])


@pytest.mark.parametrize(("pair", "tokens"), [("long", 1100), (HEADED, 60)])
def test_a_long_prompt_is_read_in_parts(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, pair: str, tokens: int
) -> None:
    if pair == HEADED:
        monkeypatch.setattr(slots_module, "CHUNK", 5)
    match(devices.kept(pair), [7 * place % 250 for place in range(tokens)], 12, LIVELY)


def test_after_a_prompt_of_one_token_a_head_drafts_from_the_second_round_on(devices: Devices) -> None:
    found = match(devices.kept(HEADED), [7], 16, BUSHY)
    assert len(found[0].tree) == 1
    assert min(len(outcome.tree) for outcome in found[1:-1]) > 1


@pytest.mark.parametrize(
    ("rules", "sampling"), [("ar", GREEDY), ("linear", Sampling(0.6, top_p=0.9)), ("lively", GREEDY)], ids=str
)
def test_a_text_ends_with_the_end_of_text_token_wherever_in_a_burst_it_comes(
    devices: Devices, rules: str, sampling: Sampling
) -> None:
    engine, within = devices.kept().sampled(5, Schedule(sampling)), 0
    for token in dict.fromkeys(text_of_host(engine, devices.prompt(), 12)):
        rounds = match(with_pair(engine, eos=frozenset({token})), devices.prompt(), 30, RULES[rules])
        assert (rounds[-1].finished, rounds[-1].committed[-1]) == ("eos", token)
        within += len(rounds[-1].committed) <= len(rounds[-1].accepted)
    assert within or rules == "ar"


# Knobs


@pytest.mark.parametrize(
    ("rules", "turns"),
    [
        ("linear", [("k", 11), ("k", 1)]),
        ("fixed", [("n_max", 3), ("fixed_depth", 2), ("fixed_branching", 3), ("fixed_tau", 0.4)]),
        ("lively", [("tau_h", 0.5), ("tau_l", 0.8), ("d0", 1), ("d_max", 12), ("n_max", 12), ("b_max", 4)]),
        ("lively", [("sharpness", 2.0), ("history", 0), ("rho_stop", 0.1), ("rho_deep", 0.6), ("tau", 0.3)]),
    ],
)
def test_a_turned_knob_acts_from_the_next_round_on(
    devices: Devices, rules: str, turns: list[tuple[KnobName, float]]
) -> None:
    """One knob after the other, each turned back a round later."""
    given: Any = RULES[rules]
    told: Any = {1 + 2 * number: [turn] for number, turn in enumerate(turns)}
    told |= {2 + 2 * number: [(name, given.knob(name))] for number, (name, _) in enumerate(turns)}
    rounds = match(devices.kept(), devices.prompt(), 90, given, told)
    names = [turned.name for outcome in rounds for turned in outcome.turned_before]
    assert names == [name for name, _ in turns for _ in range(2)]


def test_a_turned_knob_drafts_a_head_s_tree_again(devices: Devices) -> None:
    """Some trees after a turn have fewer levels than the path that was accepted before."""
    turns: Any = {2: [("d0", 1.0), ("d_max", 2.0)], 3: [("d_max", 6.0)], 4: [("tau_h", 0.6)], 5: [("tau_l", 0.3)]}
    found = match(devices.kept(DEEP_HEAD), devices.prompt(DEEP_HEAD), 48, BUSHY, turns)
    assert any(outcome.turned_before for outcome in found)


OUTGROWN = replace(LIVELY, d_max=6, branching=(1, 4, 4), tau=0, n_max=400, rho_stop=0.2, rho_deep=0.2)
"""Rules that fit fixed shapes until b_max or rho_stop is turned."""


@pytest.mark.parametrize(
    ("pair", "rules", "turn"),
    [
        ("neox", replace(OUTGROWN, n_max=200, rho_stop=0.001), ("n_max", 1024.0)),
        ("neox", OUTGROWN, ("rho_stop", 0.001)),
        (HEADED, OUTGROWN, ("b_max", 16.0)),
    ],
    ids=str,
)
def test_rules_that_outgrow_fixed_shapes_go_on_all_the_same(
    devices: Devices, pair: str, rules: DynaTree, turn: tuple[KnobName, float]
) -> None:
    assert fits(rules.rule())
    assert not fits(rules.turned(*turn).rule())
    rounds = match(devices.kept(pair), devices.prompt(pair), 40, rules, {2: [turn], 4: [("tau_h", 0.7)]})
    assert len(rounds) > 5


def test_accepted_paths_are_read_again_with_the_target_s_states(devices: Devices) -> None:
    found = match(devices.kept(DEEP_HEAD), devices.prompt(DEEP_HEAD), 48, replace(BUSHY, d_max=6, d0=5))
    assert max(len(outcome.accepted) for outcome in found) > 2


# Slots and graphs


@pytest.mark.parametrize("pair", ["neox", HEADED])
def test_the_next_text_is_decoded_by_the_records_of_the_first_whatever_knobs_are_turned(
    devices: Devices, pair: str
) -> None:
    engine, prompt = devices.recorded(pair), devices.prompt(pair)
    match(engine, prompt, 30, RULES["best"])
    before = records(engine)
    turns: Any = {
        1: [("tau_h", 0.6), ("tau_l", 0.5)],
        3: [("rho_stop", 0.03)],
        4: [("rho_deep", 0.3), ("d0", 1.0)],
        5: [("n_max", 12), ("history", 0)],
    }
    match(engine, prompt[2:], 30, RULES["best"], turns)
    (slot,) = graph_slots(engine)._free
    assert len([key for key in slot._captured if isinstance(key[0], Shape)]) == 1
    assert records(engine) <= before + 1  # a larger tree may need a larger verification


def test_to_capture_a_verification_leaves_everything_as_it_was(devices: Devices) -> None:
    """The warm-up of a capture moves the draft's rows, which are not recomputed, and commits tokens."""
    session = devices.begun(devices.recorded(), RULES["best"], 20)
    slot, length = session._slot, len(session.text)
    with without_gradients():
        # As if the second of several siblings were accepted, so its row must move.
        slot.state.nodes[3, 1:] += 3
        state = [slot.draft.store, *slot.state._tensors()]
        before = [tensor.clone() for tensor in state]
        repeated = slot.work((8, 7), length)
        assert all(bool((now == was).all()) for now, was in zip(state, before, strict=True))
        repeated()
        assert int(slot.state.length) > length
        assert bool((slot.draft.store != before[0]).any())


# Targets whose logits leave no choice


@pytest.mark.parametrize(
    ("make", "value", "sampling"),
    [(with_slots, math.nan, Sampling(0.8)), (recorded, math.inf, GREEDY), (recorded, math.nan, Sampling(0.8, 20, 0.9))],
    ids=["slots", "recorded", "recorded, sampled"],
)
def test_graph_rounds_end_with_the_sentence_of_the_host_s_rounds(
    tiny_models: TinyModels, make: Callable[[Engine], Engine], value: float, sampling: Sampling
) -> None:
    pair = tiny_models.pair("llama")
    config, of_ar = (
        RunConfig(methods, 24, parameters={"sampling": sampling})
        for methods in (("ar", "linear", "dynatree", "auto"), ("ar",))
    )
    text = play(tiny_models.loaded(pair, "float32"), of_ar).tokens("ar")
    token = next(token for place, token in enumerate(text[2:], 2) if token not in text[:place])
    broken = tiny.TinyPair(damaged(pair.target, tiny_models.fresh(), token, value), pair.draft)
    on_host = tiny_models.loaded(broken, "float32")
    on_device = make(on_host)
    assert isinstance(OPENED["ar"].open(on_device, tiny_models.prompt_tokens(pair, "The"), config), GraphSession)
    race = play(on_device, config)
    assert race.end("ar") == play(on_host, of_ar).end("ar")
    for method in config.methods:
        tokens, end, failed = race.tokens(method), race.end(method), len(race.rounds(method)) + 1
        assert end.reason == "error"
        assert f"logits in round {failed} are NaN or infinite, computed in float32" in (end.error or "")
        assert tokens == text[: len(tokens)]
