"""Lookups in the text so far, with and without a draft model: trees, turned knobs, ends of texts, and refusals."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import decoder.engine
from decoder import RunConfig, decode, load_pair
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Round, Run
from decoder.methods import METHODS
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.session.protocol import Outcome
from decoder.tree import TokenTree, depths
from decoder.tree_rules import Rules
from tests.decoder.laws.races import EXACT, REPEATING, TWICE, WITHOUT_MODEL, free, looking_up
from tests.decoder.makers import Played, TinyModels, host_session, play, with_pair
from tests.decoder.session.all_methods import Turns, turned
from tests.decoder.session.made_costs import FREE, PAYING, priced, some_costs

LIMIT, LONGER = 40, 48
ONCE = "Once upon a time, once upon a time, once"
DEAR_DRAFT = Costs(
    RowCostCurve({1: 1.0}),
    RowCostCurve({1: 1e3}),
    RowCostCurve({1: 1e3}),
    RowCostCurve({1: 1.0, 64: 1.5}),
    RowCostCurve({1: 1e-6}),
)
"""A pass of the draft model costs more than it can ever gain, and a verified node almost nothing."""


@cache
def of_target(target: Path | None) -> Engine:
    """A target without a draft model; None: the embedded target."""
    return load_pair(str(target) if target else None, "lookup", device="cpu", dtype="float32")


def alone(tiny_models: TinyModels) -> Engine:
    return of_target(tiny_models.pair("neox").target)


def lookups(rounds: Sequence[Round]) -> list[Round]:
    """The rounds with a looked-up node."""
    return [event for event in rounds if "lookup" in event.origins]


def cheap(tiny_models: TinyModels, pair: str = "neox", **rules: Any) -> list[Round]:
    """Rounds of `auto` where drafts cost nothing."""
    config = RunConfig(("auto",), LIMIT, auto=Auto(**rules))
    return play(free(tiny_models, pair, "float32"), config, TWICE).rounds("auto")


def as_ar(played: Played) -> None:
    methods = {event.method for event in played.events if isinstance(event, Round)}
    assert {method: played.tokens(method) for method in methods} == dict.fromkeys(methods, played.tokens("ar"))


# Without a draft model


def test_some_trees_are_accepted(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise equal texts would prove little."""
    # Whether `auto` drafts depends on the times of passes; with a tiny target, drafting may not pay.
    monkeypatch.setattr(decoder.engine, "measure_costs", lambda *_: PAYING)
    engine = replace(alone(tiny_models), costs={})
    for name in set(EXACT) - {"ar"}:
        assert any(event.accepted for event in play(engine, RunConfig((name,), LIMIT), TWICE).rounds(name)), name
    config = RunConfig(WITHOUT_MODEL, LONGER, temperature=0.7)
    heats: Turns = {6: [("temperature", 0.0)]}
    played = turned(looking_up(tiny_models, REPEATING, "float64"), config, heats, TWICE)
    for method in set(WITHOUT_MODEL) - {"ar"}:
        assert max(len(event.accepted) for event in played.rounds(method)) > 2, method


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_embedded_target_alone_writes_its_own_text(temperature: float) -> None:
    as_ar(play(of_target(None), RunConfig(EXACT, 20, temperature=temperature), ONCE))


def test_nothing_is_drafted_by_a_model_and_the_run_says_so(tiny_models: TinyModels) -> None:
    played = play(alone(tiny_models), RunConfig(WITHOUT_MODEL, LIMIT), TWICE)
    run = played.events[0]
    assert isinstance(run, Run)
    assert (run.draft, run.draft_dtype, run.path) == ("lookup", "float32", "host")
    for name in WITHOUT_MODEL:
        assert all(event.draft_forwards == 0 for event in played.rounds(name))
        assert not any("draft" in event.origins for event in played.rounds(name))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_model])
def test_what_needs_a_draft_model_is_refused_by_name(tiny_models: TinyModels, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot run without a draft model"):
        next(decode(alone(tiny_models), TWICE, RunConfig((name, "ar"), 4)))
    with pytest.raises(ConfigError, match=f"{name} cannot run without"):
        load_pair("no-such-model", "lookup", run=RunConfig((name,)))


def test_a_draft_model_without_a_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="--draft lookup"):
        load_pair(None, "some-draft")


# Trees with nodes from lookups and from the draft model


def test_where_drafts_are_cheap_trees_have_both_origins_and_a_knob_turns_lookups_off(
    tiny_models: TinyModels,
) -> None:
    assert any({"draft", "lookup"} <= set(event.origins) for event in cheap(tiny_models, "neox-strange"))
    assert not lookups(cheap(tiny_models, lookup=False))
    assert RunConfig(("auto",), auto=Auto(lookup=False)).turned("lookup", 1, "auto").of(Auto).lookup


def test_where_the_model_is_dear_rounds_go_by_lookups_alone() -> None:
    engine = priced(load_pair(device="cpu", dtype="float32"), DEAR_DRAFT)
    rounds = lookups(play(engine, RunConfig(("auto",), LIMIT), ONCE).rounds("auto"))
    assert all(event.draft_forwards == 0 and "draft" not in event.origins for event in rounds)
    assert any(event.accepted for event in rounds)


def test_lookups_go_deeper_than_the_model_may(tiny_models: TinyModels) -> None:
    deepest = {"draft": 0, "lookup": 0, "root": 0}
    for event in lookups(cheap(tiny_models, d0=1, d_max=2)):
        for origin, depth in zip(event.origins, depths(event.parents), strict=True):
            deepest[origin] = max(deepest[origin], depth)
    assert deepest["root"] == 0 < deepest["draft"] <= 2 < deepest["lookup"]


def test_a_model_is_asked_only_where_it_saw_the_path(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the draft model has not read a looked-up node's path, it knows only the node's token."""
    plain, asked = DraftPasses.best_after_level, list[bool]()

    def best_after_level(passes: DraftPasses, tree: TokenTree, nodes: Sequence[int], ranking: Any) -> Any:
        asked.extend(tree.parents[node] == 0 or tree.parents[node] in passes._rows for node in nodes)
        return plain(passes, tree, nodes, ranking)

    monkeypatch.setattr(DraftPasses, "best_after_level", best_after_level)
    luck = random.Random(3)
    for name in ("neox", "neox-strange"):
        for costs in (FREE, *(some_costs(luck) for _ in range(4))):
            play(priced(tiny_models.engine(name), costs), RunConfig(("auto",), LIMIT), TWICE)
    assert len(asked) > 20
    assert all(asked)


# Turned knobs, and ends of texts


def test_lookups_may_be_turned_off_and_on_in_a_text_and_know_what_came_meanwhile(tiny_models: TinyModels) -> None:
    off = RunConfig(("auto",), LONGER, auto=Auto(lookup=False))
    late = turned(free(tiny_models, "neox-strange", "float64"), off, {6: [("lookup", 1)]}, TWICE)
    origins = ["lookup" in event.origins for event in late.rounds("auto")]
    assert (any(origins[:6]), any(origins[6:])) == (False, True)
    both = RunConfig(("ar", "auto"), LONGER)
    again = turned(free(tiny_models, "neox", "float64"), both, {3: [("lookup", 0)], 8: [("lookup", 1)]}, TWICE, 1)
    as_ar(again)
    assert not lookups([event for event in again.rounds("auto") if 3 <= event.round < 8])
    assert lookups(again.rounds("auto"))


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_text_may_end_at_the_context_within_a_looked_up_chain(tiny_models: TinyModels, temperature: float) -> None:
    prompt_tokens = len(tiny_models.prompt_tokens(tiny_models.pair("neox"), TWICE))
    repeating, mixed = looking_up(tiny_models, REPEATING, "float64"), free(tiny_models, "neox", "float64")
    for more in (1, 2, 7):
        for engine, methods in ((repeating, WITHOUT_MODEL), (mixed, ("auto", "ar"))):
            short = with_pair(engine, context=prompt_tokens + more)
            played = play(short, RunConfig(methods, more, temperature=temperature), TWICE)
            as_ar(played)
            assert len(played.tokens("ar")) == more


@pytest.mark.parametrize("rules", [Linear(), Fixed(), DynaTree(), Auto()], ids=str)
def test_a_text_ends_with_an_end_token_inside_a_looked_up_chain(tiny_models: TinyModels, rules: Rules) -> None:
    """The prompt is already a repeating text and contains the end token."""
    engine = looking_up(tiny_models, REPEATING, "float64")
    circle = tiny_models.prompt_tokens(tiny_models.pair(REPEATING), TWICE)
    circle += play(engine, RunConfig(("ar",), LONGER), TWICE).tokens("ar")
    coming = decoded(engine, circle, None)[0]
    inside = 0
    for end in dict.fromkeys(coming):
        text, last = decoded(with_pair(engine, eos=frozenset({end})), circle, rules)
        assert text == coming[: coming.index(end) + 1]
        assert last.finished == "eos"
        inside += len(last.committed) <= len(last.accepted)
    assert inside > 0


def decoded(engine: Engine, prompt: list[int], rules: Rules | None) -> tuple[list[int], Outcome]:
    """The tokens after a prompt, and the last round."""
    session = host_session(engine, prompt, 24, rules)
    session.prefill()
    while not (outcome := session.step(())).finished:
        pass
    return session.text[len(prompt) :], outcome


def test_history_goes_by_what_rules_have_drafted(tiny_models: TinyModels) -> None:
    """Trees grown by rules move the knobs, even if all nodes are looked up. Lookups of `auto` do not."""
    engine = looking_up(tiny_models, REPEATING, "float64")
    rules = {"dynatree": DynaTree(window=1, eta_d=2), "auto": Auto(window=1, eta_d=2)}
    played = play(engine, RunConfig(("ar", "dynatree", "auto"), LONGER, parameters=rules), TWICE)
    as_ar(played)
    assert played.turned("dynatree", "history")
    assert not played.turned("auto", "history")
