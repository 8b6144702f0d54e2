"""Device rounds with an EAGLE-3 head equal those of `HostSession`; other heads stay with the host."""

from dataclasses import replace
from typing import Any

import pytest

from decoder.draft.tree_size.plan import Plan
from decoder.engine import Engine
from decoder.heads.eagle3 import UNTAPPED
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.decoding_path import decoding_path
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.host import HostSession
from decoder.session.knob_state import KnobState
from decoder.tree_rules import Rules
from tests.decoder.makers import TinyModels, host_session
from tests.decoder.session.cuda_graph.matching import graph_session, match, prepared, recorded, records, with_slots
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes
from tests.eagle3_checkpoints import LAYOUTS, name

PROMPT = "The tree grows"
TEXT = 16
LIVELY = DynaTree(window=2, eta_d=2, eta_h=0.3, target_acceptance=0.4, rho_stop=0.02, tau=0.02, rho_deep=0.1, n_max=40)
"""Rules for which history adjusts knobs often."""
BUSHY = DynaTree(d0=3, d_max=4, branching=(3, 4, 4), rho_stop=0.01, rho_deep=0.01, tau=0, history=False, n_max=200)
METHODS: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(),
    "a chain of one": Linear(1),
    "fixed": Fixed(),
    "paper": DynaTree(),
    "lively": LIVELY,
    "best": replace(LIVELY, selection="best", n_max=9),
    "best-first": BestFirst(),
}
GUIDED = [layout for layout in LAYOUTS if "P-EAGLE" not in layout]


def engine(tiny_models: TinyModels, layout: str = "flat", family: str = "llama", dtype: str = "float64") -> Engine:
    return recorded(tiny_models.loaded(tiny_models.pair(name(family, layout)), dtype))


def prompt(tiny_models: TinyModels) -> list[int]:
    return tiny_models.prompt_tokens(tiny_models.pair(name("llama", "flat")), PROMPT)


@pytest.mark.parametrize("method", METHODS)
def test_rounds_of_every_method_are_those_of_the_host(tiny_models: TinyModels, method: str) -> None:
    match(engine(tiny_models), prompt(tiny_models), TEXT, METHODS[method])


@pytest.mark.parametrize("layout", GUIDED)
def test_rounds_with_every_layout_are_those_of_the_host(tiny_models: TinyModels, layout: str) -> None:
    found = match(engine(tiny_models, layout), prompt(tiny_models), TEXT, LIVELY)
    assert sum(len(outcome.tree) for outcome in found) > 5 * len(found)


def test_accepted_paths_are_read_again_with_the_target_s_states(tiny_models: TinyModels) -> None:
    deep = replace(BUSHY, d_max=6, d0=5)
    found = match(engine(tiny_models, family="neox"), prompt(tiny_models), 3 * TEXT, deep)
    assert max(len(outcome.accepted) for outcome in found) > 2


@pytest.mark.parametrize("sampling", [Sampling(0.7), Sampling(1.0, 20, 0.9)], ids=str)
@pytest.mark.parametrize("layout", ["flat", "flat, all tokens"])
def test_sampled_rounds_are_those_of_the_host(tiny_models: TinyModels, layout: str, sampling: Sampling) -> None:
    sampled = engine(tiny_models, layout).sampled(3, Schedule(sampling))
    match(sampled, prompt(tiny_models), TEXT, LIVELY)


def test_turned_knobs_draft_the_tree_again(tiny_models: TinyModels) -> None:
    """Some trees after a turn have fewer levels than the path that was accepted before."""
    turns: Any = {2: [("d0", 1.0), ("d_max", 2.0)], 3: [("d_max", 6.0)], 4: [("tau_h", 0.6)], 5: [("tau_l", 0.3)]}
    found = match(engine(tiny_models, family="neox"), prompt(tiny_models), 3 * TEXT, BUSHY, turns)
    assert any(outcome.turned_before for outcome in found)


def test_knobs_that_fit_no_tensors_hand_the_text_over_to_the_host(tiny_models: TinyModels) -> None:
    found = match(engine(tiny_models), prompt(tiny_models), TEXT, DynaTree(), {2: [("window", 64.0)]})
    assert len(found) > 3


def test_a_prompt_of_one_token_is_drafted_for_from_the_second_round_on(tiny_models: TinyModels) -> None:
    found = match(engine(tiny_models), [7], TEXT, BUSHY)
    assert len(found[0].tree) == 1
    assert min(len(outcome.tree) for outcome in found[1:-1]) > 1


def test_a_slot_serves_one_text_after_another(tiny_models: TinyModels) -> None:
    made, given = engine(tiny_models), prompt(tiny_models)
    match(made, given * 3, TEXT, LIVELY)
    captured = records(made)
    match(made, given, TEXT, LIVELY)
    assert records(made) == captured


def test_a_long_prompt_is_read_in_parts(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.session.cuda_graph.slots.CHUNK", 5)
    match(engine(tiny_models), [token % 250 for token in range(1, 300, 5)], TEXT, LIVELY)


@pytest.mark.parametrize("rest", [3, 28, 30, 32, 40])
def test_after_rounds_without_a_draft_a_head_has_read_all_tokens(tiny_models: TinyModels, rest: int) -> None:
    made, given, sizes = engine(tiny_models, family="neox"), prompt(tiny_models), RandomSizes(0, plain=0)
    order: list[Plan | None] = [*[Plan(4, 32)] * 3, *[None] * rest, *[Plan(3, 8)] * 40]
    sizes.choose = lambda _: order.pop(0)  # type: ignore[method-assign, assignment]
    session = graph_session(made, given, rest + 20, WIDE, sizes)
    session.prefill()
    committed = [len(session.step(()).committed) for _ in range(3 + rest)]
    assert committed[2] > 3
    text = list(session.text)
    bounds = {each: getattr(WIDE, each) for each in ("d0", "d_max", "branching", "rho_stop", "rho_deep", "tau")}
    best = DynaTree(**bounds | {"d0": 2, "d_max": 3}, history=False, n_max=7, selection="best")
    host = host_session(made, text, 9, best)
    host.prefill()
    found, expected = session.step(()).tree, host.step(()).tree
    assert (found.tokens, found.parents) == (expected.tokens, expected.parents)
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-6)
    assert len(found) == 8


@pytest.mark.parametrize(("family", "dtype"), [("neox", "bfloat16"), ("llama", "float64")])
def test_the_self_test_trusts_rounds_with_a_head(tiny_models: TinyModels, family: str, dtype: str) -> None:
    """Afterwards, the host can drive rounds that fit no tensors with the same form of the target."""
    made = with_slots(tiny_models.loaded(tiny_models.pair(name(family, "nested")), dtype))
    made = replace(made, pair=replace(made.pair, target=made.pair.target.inexact()))
    assert prepared(made) is None
    assert made.pair.target.runs_without_module
    session = made.session(prompt(tiny_models), 4, KnobState(LIVELY))
    assert isinstance(session, GraphSession)
    session.close()
    if dtype == "float64":
        match(made, prompt(tiny_models), TEXT, LIVELY)


def test_a_target_that_runs_as_a_module_is_driven_by_the_host(tiny_models: TinyModels) -> None:
    loaded = tiny_models.loaded(tiny_models.pair(name("gpt2", "flat")), "float32")
    made = with_slots(replace(loaded, pair=replace(loaded.pair, target=loaded.pair.target.inexact())))
    assert made.slots is not None
    made.slots.refused = prepared(made)
    assert made.slots.refused == UNTAPPED
    assert isinstance(made.session(prompt(tiny_models), 4, KnobState(LIVELY)), HostSession)


def test_heads_without_a_static_form_are_driven_by_the_host(tiny_models: TinyModels) -> None:
    made = engine(tiny_models, "P-EAGLE")
    assert isinstance(made.session(prompt(tiny_models), 4, KnobState(Auto())), HostSession)
    assert decoding_path(made).name == "host"
