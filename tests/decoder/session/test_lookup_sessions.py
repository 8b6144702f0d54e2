"""Lookups in the text so far, with and without a draft model: every method writes the text of plain decoding."""

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
from decoder.draft.tree_size.cost_model import Costs, Curve
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Event, Round, Run, decode_line, encode
from decoder.methods import METHODS
from decoder.methods.auto import Auto
from decoder.tree import TokenTree, depths
from tests.decoder.makers import Played, TinyModels, methods_of
from tests.decoder.session.made_costs import FREE, PAYING, priced, some_costs, some_rules
from tests.tiny import FAMILIES, SENTENCES

PROMPT = SENTENCES[2] + " " + SENTENCES[2]
WITHOUT_MODEL = tuple(name for name, method in METHODS.items() if not method.needs_model)
EXACT = tuple(name for name in WITHOUT_MODEL if METHODS[name].same_until is None)
LIMIT = 40
DEAR_DRAFT = Costs(Curve({1: 1.0}), Curve({1: 1e3}), Curve({1: 1e3}), Curve({1: 1.0, 64: 1.5}), Curve({1: 1e-6}))
"""A pass of the draft model costs more than it can ever gain, and a verified node almost nothing."""


@cache
def of_target(target: Path | None) -> Engine:
    """A target without a draft model; None: the embedded target."""
    return load_pair(str(target) if target else None, "lookup", device="cpu", dtype="float32")


def alone(tiny_models: TinyModels, name: str) -> Engine:
    """The target of a pair, without a draft model."""
    return of_target(tiny_models.pair(name).target)


def play(engine: Engine, config: RunConfig, prompt: str = PROMPT) -> Played:
    return Played(list(decode(engine, prompt, config)))


def lookups(rounds: Sequence[Round]) -> list[Round]:
    """The rounds with a looked-up node."""
    return [event for event in rounds if "lookup" in event.origins]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_writes_what_plain_greedy_search_writes(tiny_models: TinyModels, family: str) -> None:
    methods = tuple(name for name in methods_of(family) if name in EXACT)
    played = play(alone(tiny_models, family), RunConfig(methods, 24))
    expected = tiny_models.generate(tiny_models.pair(family), "float32", PROMPT, 24)
    assert {name: played.tokens(name) for name in methods} == dict.fromkeys(methods, expected)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.7, 1.0), (1.0, 0.9)])
def test_every_method_writes_what_plain_sampling_writes(
    tiny_models: TinyModels, temperature: float, top_p: float
) -> None:
    for seed in range(2):
        config = RunConfig(EXACT, LIMIT, seed, temperature=temperature, top_p=top_p)
        played = play(alone(tiny_models, "neox"), config)
        assert {name: played.tokens(name) for name in EXACT} == dict.fromkeys(EXACT, played.tokens("ar"))


def test_some_of_these_trees_were_accepted(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would prove little."""
    # Whether `auto` drafts depends on the times of passes; with a tiny target, drafting may not pay.
    monkeypatch.setattr(decoder.engine, "measure_costs", lambda *_: PAYING)
    engine = replace(alone(tiny_models, "neox"), costs={})
    for name in set(EXACT) - {"ar"}:
        played = play(engine, RunConfig((name,), LIMIT), PROMPT)
        assert sum(len(event.accepted) for event in played.rounds(name)) > 0, name


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_embedded_target_alone_writes_its_own_text(temperature: float) -> None:
    config = RunConfig(EXACT, 20, temperature=temperature)
    played = play(of_target(None), config, "Once upon a time, once upon a time, once")
    assert {name: played.tokens(name) for name in EXACT} == dict.fromkeys(EXACT, played.tokens("ar"))


def test_nothing_is_drafted_by_a_model_and_the_run_says_so(tiny_models: TinyModels) -> None:
    played = play(alone(tiny_models, "neox"), RunConfig(WITHOUT_MODEL, LIMIT))
    (run,) = [event for event in played.events if isinstance(event, Run)]
    assert (run.draft, run.draft_dtype, run.path) == ("lookup", "float32", "host")
    for name in WITHOUT_MODEL:
        assert all(event.draft_forwards == 0 for event in played.rounds(name))
        assert not any("draft" in event.origins for event in played.rounds(name))


def test_nss_takes_trees_that_were_looked_up(tiny_models: TinyModels) -> None:
    config = RunConfig(("linear", "ar"), LIMIT, temperature=0.7, verifier="nss")
    played = play(alone(tiny_models, "neox"), config)
    assert played.tokens("linear") == played.tokens("ar")


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_model])
def test_what_needs_a_draft_model_is_refused_by_name(tiny_models: TinyModels, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot run without a draft model"):
        next(decode(alone(tiny_models, "neox"), PROMPT, RunConfig((name, "ar"), 4)))


def test_it_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(ConfigError, match="alg1 cannot run without"):
        load_pair("no-such-model", "lookup", run=RunConfig(("alg1",)))


def test_a_draft_model_without_a_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="--draft lookup"):
        load_pair(None, "some-draft")


# Trees with nodes from lookups and from the draft model


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("kinship", ["", "-strange"])
@pytest.mark.parametrize("family", FAMILIES)
def test_mixed_trees_write_the_text_of_plain_decoding_whatever_rounds_cost(
    tiny_models: TinyModels, family: str, kinship: str, temperature: float
) -> None:
    luck = random.Random(f"{family} {kinship} {temperature}")
    loaded = tiny_models.loaded(tiny_models.pair(family + kinship), "float64")
    config = RunConfig(("ar", "auto"), LIMIT, temperature=temperature, auto=some_rules(luck))
    played = play(priced(loaded, some_costs(luck)), config)
    assert played.tokens("auto") == played.tokens("ar")


def test_where_the_model_is_cheap_trees_have_nodes_of_both_origins(tiny_models: TinyModels) -> None:
    loaded = tiny_models.loaded(tiny_models.pair("neox-strange"), "float32")
    rounds = play(priced(loaded, FREE), RunConfig(("auto",), LIMIT)).rounds("auto")
    assert any({"draft", "lookup"} <= set(event.origins) for event in rounds)


def test_where_the_model_is_dear_rounds_go_by_lookups_alone() -> None:
    engine = priced(load_pair(device="cpu", dtype="float32"), DEAR_DRAFT)
    rounds = lookups(play(engine, RunConfig(("auto",), LIMIT), "Once upon a time, once upon a time,").rounds("auto"))
    assert rounds
    assert all(event.draft_forwards == 0 and "draft" not in event.origins for event in rounds)
    assert max(len(event.accepted) for event in rounds) > 0


def test_lookups_go_deeper_than_the_model_may(tiny_models: TinyModels) -> None:
    loaded = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    rules = Auto(d0=1, d_max=2)
    rounds = play(priced(loaded, FREE), RunConfig(("auto",), LIMIT, auto=rules)).rounds("auto")
    found = [
        (origin, depth)
        for event in lookups(rounds)
        for origin, depth in zip(event.origins, depths(event.parents), strict=True)
    ]
    deepest = {origin: max(depth for other, depth in found if other == origin) for origin, _ in found}
    assert deepest["draft"] <= 2 < deepest["lookup"]


def test_no_token_stands_twice_after_a_node(tiny_models: TinyModels) -> None:
    loaded = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    for event in play(priced(loaded, FREE), RunConfig(("auto",), LIMIT)).rounds("auto"):
        children = list(zip(event.parents, event.tokens, strict=True))
        assert len(set(children)) == len(children)


def test_a_knob_turns_lookups_off(tiny_models: TinyModels) -> None:
    loaded = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    config = RunConfig(("auto",), LIMIT, auto=Auto(lookup=False))
    assert not lookups(play(priced(loaded, FREE), config).rounds("auto"))
    assert config.turned("lookup", 1, "auto").of(Auto).lookup


def test_origins_survive_the_way_to_a_file(tiny_models: TinyModels) -> None:
    loaded = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    rounds = lookups(play(priced(loaded, FREE), RunConfig(("auto",), LIMIT)).rounds("auto"))
    for event in rounds:
        assert event.origins[0] == "root"
        assert len(event.origins) == len(event.tokens)
        assert decode_line(encode(event), 1) == event


def test_a_round_without_origins_is_read_as_one_of_the_draft_alone(tiny_models: TinyModels) -> None:
    loaded = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    (*_, event) = lookups(play(priced(loaded, FREE), RunConfig(("auto",), LIMIT)).rounds("auto"))
    line = encode(event)
    start = line.index(b',"origins":[')
    older: Event = decode_line(line[:start] + line[line.index(b"]", start) + 1 :], 1)
    assert isinstance(older, Round)
    assert older.origins == []


def test_a_pair_whose_draft_lags_behind_catches_up(tiny_models: TinyModels) -> None:
    """Rounds of lookups alone and rounds with the draft model alternate in one text."""
    luck, seen = random.Random(5), set[tuple[bool, bool]]()
    loaded = tiny_models.loaded(tiny_models.pair("neox"), "float64")
    for _ in range(12):
        config = RunConfig(("ar", "auto"), 72)
        played = play(priced(loaded, some_costs(luck)), config)
        assert played.tokens("auto") == played.tokens("ar")
        ways = [(bool(event.draft_forwards), len(event.tokens) > 1) for event in played.rounds("auto")]
        seen |= set(ways)
        if {(True, True), (False, True)} <= set(ways):
            break
    else:
        pytest.fail(f"no text had rounds of both ways, but {seen}")


def test_the_model_is_asked_only_where_it_has_seen_the_path(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the draft model has not read a looked-up node's path, it knows only the node's token."""
    plain, asked = DraftPasses.after_level, list[bool]()

    def after_level(passes: DraftPasses, tree: TokenTree, nodes: Sequence[int]) -> Any:
        asked.extend(tree.parents[node] == 0 or tree.parents[node] in passes._rows for node in nodes)
        return plain(passes, tree, nodes)

    monkeypatch.setattr(DraftPasses, "after_level", after_level)
    luck = random.Random(3)
    for name in ("neox", "neox-strange"):
        loaded = tiny_models.loaded(tiny_models.pair(name), "float32")
        for costs in (FREE, *(some_costs(luck) for _ in range(4))):
            play(priced(loaded, costs), RunConfig(("auto",), LIMIT))
    assert len(asked) > 20
    assert all(asked)
