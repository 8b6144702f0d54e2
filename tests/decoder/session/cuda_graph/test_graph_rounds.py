"""Device rounds replayed from graphs equal those of `HostSession` in their trees and knobs."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TypeAlias

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from decoder.engine import Engine
from decoder.forward.families.native import NativeModel
from decoder.forward.language_model import LanguageModel
from decoder.knobs import KnobName
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.session.cuda_graph import session as session_module
from decoder.session.cuda_graph import slots as slots_module
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.static_shapes import BUCKETS, fits
from decoder.session.steering import Turn
from decoder.tree import depths
from decoder.tree_rules import Rules
from decoder.verify.greedy import GreedyVerifier
from tests.decoder.makers import TinyModels, graph_slots, host_session, with_pair
from tests.decoder.session.cuda_graph.matching import graph_session, match, recorded, with_slots
from tests.reference import simulate

PROMPT = "The tree grows"
LIVELY = DynaTree(window=2, eta_d=2, eta_h=0.3, target_acceptance=0.4, rho_stop=0.02, tau=0.02, rho_deep=0.1, n_max=40)
"""Rules for which history adjusts knobs often."""
BUSHY = DynaTree(d0=3, d_max=4, branching=(3, 4, 4), rho_stop=0.01, rho_deep=0.01, tau=0, history=False, n_max=200)
METHODS: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(),
    "a chain of one": Linear(1),
    "fixed": Fixed(),
    "fixed, cut": Fixed(depth=4, branching=3, tau=0.02, n_max=11),
    "paper": DynaTree(),
    "history off": DynaTree(history=False),
    "lively": LIVELY,
    "best": replace(LIVELY, selection="best", n_max=9),
    "sharpened": replace(LIVELY, sharpness=2.0),
    "best of a sharpened tree": replace(LIVELY, sharpness=1.5, selection="best", n_max=9),
    "a few of the best": replace(BUSHY, selection="best", n_max=3),
    "first few": replace(BUSHY, n_max=5),
    "no path too improbable": replace(
        BUSHY, branching=(1, 2, 4), tau_l=0.3, tau_h=0.4, rho_stop=0, rho_deep=0, n_max=12
    ),
    "best-first": BestFirst(),
    "best-first, wide": BestFirst(40, 3),
    "certain paths only": DynaTree(rho_stop=1, rho_deep=1, tau=1),
}


Recordings: TypeAlias = Callable[..., Engine]
"""(name of a pair, dtype, whether its models run as modules) -> an engine that replays rounds from records."""


@pytest.fixture(scope="module")
def recordings(tiny_models: TinyModels) -> Recordings:
    """Engines that reuse their records across tests, as slots reuse graphs across texts."""

    @cache
    def made(name: str, dtype: str = "float64", *, by_module: bool = False) -> Engine:
        return recorded(tiny_models.loaded(tiny_models.pair(name), dtype), by_module=by_module)

    return made


@pytest.mark.parametrize(
    ("dtype", "family", "by_module", "method"),
    [
        *(("float64", "neox", False, method) for method in METHODS),
        *(("float64", "neox", True, method) for method in ("ar", "linear", "fixed, cut", "lively", "best-first")),
        *(("float64", "llama", False, method) for method in ("linear", "paper", "sharpened", "best-first, wide")),
        *(("float32", "neox", False, method) for method in ("fixed", "lively", "best-first")),
    ],
)
def test_every_round_is_that_of_the_host(
    tiny_models: TinyModels, recordings: Recordings, dtype: str, family: str, method: str, *, by_module: bool
) -> None:
    pair = tiny_models.pair(family)
    loaded = recordings(family, dtype, by_module=by_module)
    match(loaded, tiny_models.prompt_tokens(pair, PROMPT), 30, METHODS[method])


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "twins", "wide-draft", "wide-target", "llama-strange", "begin"])
def test_so_it_is_for_pairs_with_a_peculiarity(tiny_models: TinyModels, recordings: Recordings, name: str) -> None:
    pair = tiny_models.pair(name)
    match(recordings(name, "float32"), tiny_models.prompt_tokens(pair, PROMPT), 24, LIVELY)


TIED = METHODS.keys() - {"ar", "a chain of one", "history off", "first few", "best-first, wide"}


@pytest.fixture(scope="module")
def tied(tiny_models: TinyModels) -> Callable[[float], Engine]:
    """Engines that reuse their records across tests; their draft's logits are multiplied by a factor."""

    @cache
    def made(factor: float) -> Engine:
        return recorded(with_head(tiny_models.loaded(tiny_models.pair("neox"), "float64"), factor))

    return made


def with_head(engine: Engine, factor: float) -> Engine:
    """The engine with the draft model's logits multiplied by `factor`."""
    module = copy.deepcopy(engine.pair.draft_model.hf.module)
    with torch.no_grad():
        module.get_output_embeddings().weight.mul_(factor)
    return with_pair(engine, draft=LanguageModel.of_module(module, "of another head"))


@pytest.mark.parametrize("method", sorted(TIED))
def test_where_all_tokens_are_equally_probable_trees_are_whole_and_the_text_is_the_host_s(
    tiny_models: TinyModels, tied: Callable[[float], Engine], method: str
) -> None:
    prompt, rules = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT), METHODS[method]
    loaded = tied(0.0)
    device = graph_session(loaded, prompt, 30, rules)
    device.prefill()
    finished, largest = None, 0
    while not finished:
        outcome = device.step(())
        tree, finished = outcome.tree, outcome.finished
        nodes = list(zip(tree.parents[1:], tree.tokens[1:], strict=True))
        assert len(set(nodes)) == len(nodes)
        assert all(parent < node for node, parent in enumerate(tree.parents))
        assert tree.parents == sorted(tree.parents)
        assert tree.depths == sorted(tree.depths)
        largest = max(largest, len(tree))
    host = host_session(loaded, prompt, 30, rules)
    host.prefill()
    sizes: list[int] = []
    while not sizes or not outcome.finished:
        outcome = host.step(())
        sizes.append(len(outcome.tree))
    assert device.text == host.text
    assert largest == max(sizes)


@pytest.mark.parametrize("method", sorted(TIED))
def test_a_node_that_is_as_probable_as_its_parent_does_not_stay_without_it(
    tiny_models: TinyModels, tied: Callable[[float], Engine], method: str
) -> None:
    prompt = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    rounds = match(tied(1000.0), prompt, 24, METHODS[method])
    assert any(outcome.tree.logprobs[1:2] == [0.0] for outcome in rounds)


def test_families_that_are_known_run_through_their_native_layers(tiny_models: TinyModels) -> None:
    pair = with_slots(tiny_models.loaded(tiny_models.pair("llama"), "float32"))
    session = graph_session(pair, [1, 2], 4, None)
    assert isinstance(session._slot.target.forward, NativeModel)


def test_the_text_is_that_of_plain_greedy_search(tiny_models: TinyModels, recordings: Recordings) -> None:
    pair = tiny_models.pair("neox")
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    rounds = match(recordings("neox"), prompt, 100, LIVELY)
    tokens = [token for outcome in rounds for token in outcome.committed]
    assert tokens == tiny_models.generate(pair, "float64", PROMPT, 100)
    assert len(rounds) < 50


def test_the_rounds_are_those_of_the_plain_reference(tiny_models: TinyModels, recordings: Recordings) -> None:
    pair = tiny_models.pair("llama")
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    rounds = match(recordings("llama"), prompt, 24, LIVELY)
    longer = 24 + LIVELY.d_max + 1  # the reference cuts trees at the end of its text
    steps = simulate(tiny_models.oracle(pair, "float64"), prompt, "dynatree", LIVELY, longer, {})[: len(rounds)]
    assert rounds[-1].finished == "length"
    assert [outcome.tree.tokens for outcome in rounds] == [step.tokens for step in steps]
    assert [outcome.accepted for outcome in rounds] == [step.accepted for step in steps]


@st.composite
def some_rules(draw: st.DrawFn) -> Rules:
    kind = draw(st.sampled_from(["linear", "fixed", "dynatree", "dynatree", "dynatree"]))
    chances = st.sampled_from([0.0, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0])
    if kind == "linear":
        return Linear(draw(st.integers(1, 12)))
    n_max = draw(st.sampled_from([1, 2, 3, 5, 8, 16, 31, 60]))
    if kind == "fixed":
        return Fixed(draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(chances), n_max)
    d_max = draw(st.integers(2, 9))
    low, mid, high = sorted(draw(st.tuples(*[st.integers(1, 5)] * 3)))
    stop, deep = sorted((draw(chances), draw(chances)))
    tau_l = draw(st.sampled_from([0.01, 0.2, 0.6]))
    return DynaTree(
        d0=draw(st.floats(1, d_max - 1)),
        d_max=d_max,
        branching=(low, mid, high),
        tau_l=tau_l,
        tau_h=draw(st.sampled_from([0.65, 0.9, 1.0])),
        rho_stop=stop,
        rho_deep=deep,
        tau=draw(chances),
        n_max=n_max,
        selection=draw(st.sampled_from(["bfs", "best"])),
        history=draw(st.booleans()),
        window=draw(st.integers(1, 4)),
        target_acceptance=draw(st.sampled_from([0.0, 0.2, 0.7])),
        eta_d=draw(st.sampled_from([0.5, 1.0, 3.0])),
        eta_h=draw(st.sampled_from([0.05, 0.4])),
    )


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rules=some_rules().filter(lambda rules: fits(rules.rule())),
    family=st.sampled_from(["neox", "llama", "neox-strange"]),
)
def test_random_rules_grow_the_same_trees(
    tiny_models: TinyModels, recordings: Recordings, rules: Rules, family: str
) -> None:
    pair = tiny_models.pair(family)
    match(recordings(family), tiny_models.prompt_tokens(pair, PROMPT), 16, rules)


def test_trees_of_every_bucket_and_on_both_sides_of_its_end_are_verified(
    tiny_models: TinyModels, recordings: Recordings
) -> None:
    pair = tiny_models.pair("neox-strange")
    loaded, prompt = recordings("neox-strange"), tiny_models.prompt_tokens(pair, PROMPT)
    sizes = set()
    for edge in BUCKETS[1:]:
        for nodes in {max(2, edge - 1), edge, edge + 1}:
            rules = replace(BUSHY, d_max=5, d0=4, branching=(4, 4, 4), rho_stop=0.001, rho_deep=0.001, n_max=nodes - 1)
            if fits(rules.rule()):
                sizes |= {len(outcome.tree) for outcome in match(loaded, prompt, 2, rules)}
    assert sizes >= {7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 263, 264}


def test_text_crosses_from_one_range_of_slots_to_the_next(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges are exactly as wide as necessary here, so a range that is one row too short fails."""
    monkeypatch.setattr(slots_module, "visible", lambda length, rows, _: length + rows)
    pair = tiny_models.pair("llama")
    for rules in (None, Linear(4), LIVELY, METHODS["best"]):
        match(with_slots(tiny_models.loaded(pair, "float64")), tiny_models.prompt_tokens(pair, PROMPT), 60, rules)


def test_a_long_prompt_is_read_in_several_parts(recordings: Recordings) -> None:
    prompt = [7 * place % 260 for place in range(1100)]
    match(recordings("long"), prompt, 12, LIVELY)


@pytest.mark.parametrize("method", ["ar", "linear", "lively"])
def test_a_prompt_of_one_token_is_enough(recordings: Recordings, method: str) -> None:
    match(recordings("llama"), [5], 20, METHODS[method])


@pytest.mark.parametrize("method", ["ar", "linear", "lively", "best"])
def test_trees_shrink_towards_the_end_of_the_context(recordings: Recordings, method: str) -> None:
    engine = recordings("neox")
    rounds = match(engine, [7 * place % 260 for place in range(engine.pair.context - 12)], 12, METHODS[method])
    assert max(depths(rounds[-1].tree.parents)) <= 12


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("method", ["ar", "linear", "lively"])
def test_a_text_ends_at_its_limit(tiny_models: TinyModels, recordings: Recordings, method: str, limit: int) -> None:
    pair = tiny_models.pair("neox")
    rounds = match(recordings("neox"), tiny_models.prompt_tokens(pair, PROMPT), limit, METHODS[method])
    assert rounds[-1].finished == "length"
    assert sum(len(outcome.committed) for outcome in rounds) == limit


@pytest.mark.parametrize("method", ["ar", "linear", "lively"])
def test_a_text_ends_with_the_end_of_text_token_wherever_in_a_burst_it_comes(
    tiny_models: TinyModels, recordings: Recordings, method: str
) -> None:
    pair = tiny_models.pair("neox")
    prompt, loaded = tiny_models.prompt_tokens(pair, PROMPT), recordings("neox")
    tokens = tiny_models.generate(pair, "float64", PROMPT, 12)
    within = 0
    for token in dict.fromkeys(tokens):
        rounds = match(with_pair(loaded, eos=frozenset({token})), prompt, 30, METHODS[method])
        assert rounds[-1].finished == "eos"
        assert rounds[-1].committed[-1] == token
        within += len(rounds[-1].committed) <= len(rounds[-1].accepted)
    assert within or method == "ar"


@pytest.mark.parametrize(
    ("rules", "name", "value"),
    [
        (Linear(), "k", 11),
        (Linear(), "k", 1),
        (Fixed(), "n_max", 3),
        (Fixed(), "fixed_depth", 2),
        (Fixed(), "fixed_branching", 3),
        (Fixed(), "fixed_tau", 0.4),
        (LIVELY, "tau_h", 0.5),
        (LIVELY, "tau_l", 0.8),
        (LIVELY, "d0", 1),
        (LIVELY, "history", 0),
        (LIVELY, "d_max", 12),
        (LIVELY, "n_max", 12),
        (LIVELY, "b_max", 4),
        (LIVELY, "rho_stop", 0.1),
        (LIVELY, "rho_deep", 0.6),
        (LIVELY, "tau", 0.3),
        (LIVELY, "sharpness", 2.0),
    ],
)
def test_a_turned_knob_acts_from_the_next_round_on(
    tiny_models: TinyModels, recordings: Recordings, rules: Rules, name: KnobName, value: float
) -> None:
    pair = tiny_models.pair("neox")
    loaded, prompt = recordings("neox"), tiny_models.prompt_tokens(pair, PROMPT)
    rounds = match(loaded, prompt, 40, rules, {0: [("n_max", 50)], 3: [(name, value)], 5: [(name, rules.knob(name))]})
    assert [turned.name for turned in rounds[3].turned_before] == [name]


def test_history_goes_on_while_the_user_switches_it_off_and_on(tiny_models: TinyModels, recordings: Recordings) -> None:
    pair = tiny_models.pair("llama")
    rules = replace(LIVELY, window=3)
    turns = {2: [("history", 0.0)], 6: [("history", 1.0), ("tau_h", 0.7)]}
    rounds = match(recordings("llama"), tiny_models.prompt_tokens(pair, PROMPT), 60, rules, turns)
    knobs = [outcome.knobs.tau_h for outcome in rounds if outcome.knobs]
    assert len(set(knobs[2:6])) == 1
    assert len(set(knobs[6:])) > 1


@pytest.mark.parametrize("turn", [("n_max", 1024.0), ("rho_stop", 0.001), ("b_max", 16.0)])
def test_rules_that_outgrow_fixed_shapes_go_on_all_the_same(
    tiny_models: TinyModels, recordings: Recordings, turn: tuple[KnobName, float]
) -> None:
    pair = tiny_models.pair("neox")
    small = replace(LIVELY, d_max=6, branching=(1, 4, 4), tau=0)
    rules = {
        "n_max": replace(small, n_max=200, rho_stop=0.001),
        "rho_stop": replace(small, n_max=400, rho_stop=0.2, rho_deep=0.2),
        "b_max": replace(small, n_max=400, rho_stop=0.2, rho_deep=0.2),
    }[turn[0]]
    assert fits(rules.rule())
    assert not fits(rules.turned(*turn).rule())
    loaded, prompt = recordings("neox"), tiny_models.prompt_tokens(pair, PROMPT)
    rounds = match(loaded, prompt, 40, rules, {2: [turn], 4: [("tau_h", 0.7)]})
    assert len(rounds) > 5


def test_a_session_that_was_handed_over_has_given_its_slot_back(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    loaded, prompt = recorded(tiny_models.loaded(pair, "float64")), tiny_models.prompt_tokens(pair, PROMPT)
    rules = replace(LIVELY, d_max=6, branching=(1, 4, 4), n_max=400, rho_stop=0.2, rho_deep=0.2, tau=0)
    session = graph_session(loaded, prompt, 30, rules)
    session.prefill()
    session.step(())
    assert not graph_slots(loaded)._free
    outcome = session.step((Turn("b_max", 16.0),))
    assert [turned.name for turned in outcome.turned_before] == ["b_max"]
    assert graph_slots(loaded)._free == [session._slot]
    session.close()
    assert len(graph_slots(loaded)._free) == 1


class Worst(GreedyVerifier):
    """Chooses the target's least probable token."""

    def choose(self, logits: Tensor, *_: object) -> Tensor:
        return logits.argmin(-1)


def test_the_choice_in_a_graph_is_the_verifier_s(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot also contains graphs of another verifier, which must not be used."""
    engine, prompt = recorded(tiny_models.loaded(tiny_models.pair("neox"), "float64")), [1, 2, 3]
    texts = []
    for verifier in (GreedyVerifier(), Worst(), GreedyVerifier()):
        monkeypatch.setattr(session_module, "device_verifier", lambda *_, verifier=verifier: verifier)
        session = GraphSession(engine.pair, graph_slots(engine), prompt, 8, None, engine.session)
        session.prefill()
        while not session.step(()).finished:
            pass
        texts.append(list(session.text))
    best, worst, again = texts
    assert best == again
    assert worst != best
