"""Lookups in the text so far, with and without a draft model: every method writes the text of plain decoding, also
under turned knobs, at the end of a text, and on short prompts.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import decoder.engine
from decoder import RunConfig, Steering, decode, load_pair
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Event, Round, Run, decode_line, encode
from decoder.knobs import KnobName
from decoder.methods import METHODS
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.session.protocol import Outcome
from decoder.tree import TokenTree, depths
from decoder.tree_rules import Rules
from tests.decoder.makers import Played, TinyModels, host_session, methods_of, with_pair
from tests.decoder.session.made_costs import FREE, PAYING, priced, some_costs, some_rules
from tests.eagle3_checkpoints import name as headed
from tests.tiny import FAMILIES, SENTENCES

PROMPT = SENTENCES[2] + " " + SENTENCES[2]
WITHOUT_MODEL = tuple(name for name, method in METHODS.items() if not method.needs_model)
EXACT = tuple(name for name in WITHOUT_MODEL if METHODS[name].same_until is None)
LIMIT, LONGER = 40, 48
REPEATING = headed("neox", "flat")
Turns = Mapping[int, tuple[KnobName, float]]
NO_TURNS: Turns = {}
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


def alone(tiny_models: TinyModels, name: str) -> Engine:
    """The target of a pair, without a draft model."""
    return of_target(tiny_models.pair(name).target)


def lookups(rounds: Sequence[Round]) -> list[Round]:
    """The rounds with a looked-up node."""
    return [event for event in rounds if "lookup" in event.origins]


def repeating(tiny_models: TinyModels) -> Engine:
    """A target without a draft model that often repeats itself, so that some lookups are accepted."""
    return priced(with_pair(tiny_models.engine(REPEATING, "float64"), head=None), FREE)


def mixed(tiny_models: TinyModels, pair: str = "neox", luck: random.Random | None = None) -> Engine:
    """A pair whose costs are drawn from `luck`; without `luck`, drafts cost nothing."""
    return priced(tiny_models.engine(pair, "float64"), some_costs(luck) if luck else FREE)


def steered(engine: Engine, config: RunConfig, turns: Turns = NO_TURNS, prompt: str = PROMPT) -> Played:
    """A run in which one knob is turned before each of the given rounds of the last method."""
    steering, events = Steering(), list[Event]()
    for event in decode(engine, prompt, config, steering):
        events.append(event)
        if isinstance(event, Round) and event.method == config.methods[-1] and event.round + 1 in turns:
            steering.turn(*turns[event.round + 1])
    return Played(events)


def as_ar(played: Played) -> None:
    methods = {event.method for event in played.events if isinstance(event, Round)}
    assert {method: played.tokens(method) for method in methods} == dict.fromkeys(methods, played.tokens("ar"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_writes_what_plain_greedy_search_writes(tiny_models: TinyModels, family: str) -> None:
    methods = tuple(name for name in methods_of(family) if name in EXACT)
    played = steered(alone(tiny_models, family), RunConfig(methods, 24))
    expected = tiny_models.generate(tiny_models.pair(family), "float32", PROMPT, 24)
    assert {name: played.tokens(name) for name in methods} == dict.fromkeys(methods, expected)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.7, 1.0), (1.0, 0.9)])
def test_every_method_writes_what_plain_sampling_writes(
    tiny_models: TinyModels, temperature: float, top_p: float
) -> None:
    for seed in range(2):
        config = RunConfig(EXACT, LIMIT, seed, temperature=temperature, top_p=top_p)
        played = steered(alone(tiny_models, "neox"), config)
        as_ar(played)


def test_some_of_these_trees_were_accepted(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above would prove little."""
    # Whether `auto` drafts depends on the times of passes; with a tiny target, drafting may not pay.
    monkeypatch.setattr(decoder.engine, "measure_costs", lambda *_: PAYING)
    engine = replace(alone(tiny_models, "neox"), costs={})
    for name in set(EXACT) - {"ar"}:
        played = steered(engine, RunConfig((name,), LIMIT))
        assert sum(len(event.accepted) for event in played.rounds(name)) > 0, name


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_embedded_target_alone_writes_its_own_text(temperature: float) -> None:
    config = RunConfig(EXACT, 20, temperature=temperature)
    played = steered(of_target(None), config, prompt="Once upon a time, once upon a time, once")
    as_ar(played)


def test_nothing_is_drafted_by_a_model_and_the_run_says_so(tiny_models: TinyModels) -> None:
    played = steered(alone(tiny_models, "neox"), RunConfig(WITHOUT_MODEL, LIMIT))
    (run,) = [event for event in played.events if isinstance(event, Run)]
    assert (run.draft, run.draft_dtype, run.path) == ("lookup", "float32", "host")
    for name in WITHOUT_MODEL:
        assert all(event.draft_forwards == 0 for event in played.rounds(name))
        assert not any("draft" in event.origins for event in played.rounds(name))


def test_nss_takes_trees_that_were_looked_up(tiny_models: TinyModels) -> None:
    config = RunConfig(("linear", "ar"), LIMIT, temperature=0.7, verifier="nss")
    played = steered(alone(tiny_models, "neox"), config)
    as_ar(played)


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
    loaded = tiny_models.engine(family + kinship, "float64")
    config = RunConfig(("ar", "auto"), LIMIT, temperature=temperature, auto=some_rules(luck))
    played = steered(priced(loaded, some_costs(luck)), config)
    as_ar(played)


def test_where_the_model_is_cheap_trees_have_nodes_of_both_origins(tiny_models: TinyModels) -> None:
    loaded = tiny_models.engine("neox-strange")
    rounds = steered(priced(loaded, FREE), RunConfig(("auto",), LIMIT)).rounds("auto")
    assert any({"draft", "lookup"} <= set(event.origins) for event in rounds)


def test_where_the_model_is_dear_rounds_go_by_lookups_alone() -> None:
    engine = priced(load_pair(device="cpu", dtype="float32"), DEAR_DRAFT)
    rounds = lookups(
        steered(engine, RunConfig(("auto",), LIMIT), prompt="Once upon a time, once upon a time,").rounds("auto")
    )
    assert rounds
    assert all(event.draft_forwards == 0 and "draft" not in event.origins for event in rounds)
    assert max(len(event.accepted) for event in rounds) > 0


def test_lookups_go_deeper_than_the_model_may(tiny_models: TinyModels) -> None:
    loaded = tiny_models.engine("neox")
    rules = Auto(d0=1, d_max=2)
    rounds = steered(priced(loaded, FREE), RunConfig(("auto",), LIMIT, auto=rules)).rounds("auto")
    found = [
        (origin, depth)
        for event in lookups(rounds)
        for origin, depth in zip(event.origins, depths(event.parents), strict=True)
    ]
    deepest = {origin: max(depth for other, depth in found if other == origin) for origin, _ in found}
    assert deepest["draft"] <= 2 < deepest["lookup"]


def test_no_token_stands_twice_after_a_node(tiny_models: TinyModels) -> None:
    loaded = tiny_models.engine("neox")
    for event in steered(priced(loaded, FREE), RunConfig(("auto",), LIMIT)).rounds("auto"):
        children = list(zip(event.parents, event.tokens, strict=True))
        assert len(set(children)) == len(children)


def test_a_knob_turns_lookups_off(tiny_models: TinyModels) -> None:
    loaded = tiny_models.engine("neox")
    config = RunConfig(("auto",), LIMIT, auto=Auto(lookup=False))
    assert not lookups(steered(priced(loaded, FREE), config).rounds("auto"))
    assert config.turned("lookup", 1, "auto").of(Auto).lookup


def test_origins_survive_the_way_to_a_file(tiny_models: TinyModels) -> None:
    loaded = tiny_models.engine("neox")
    rounds = lookups(steered(priced(loaded, FREE), RunConfig(("auto",), LIMIT)).rounds("auto"))
    for event in rounds:
        assert event.origins[0] == "root"
        assert len(event.origins) == len(event.tokens)
        assert decode_line(encode(event), 1) == event


def test_a_round_without_origins_is_read_as_one_of_the_draft_alone(tiny_models: TinyModels) -> None:
    loaded = tiny_models.engine("neox")
    (*_, event) = lookups(steered(priced(loaded, FREE), RunConfig(("auto",), LIMIT)).rounds("auto"))
    line = encode(event)
    start = line.index(b',"origins":[')
    older: Event = decode_line(line[:start] + line[line.index(b"]", start) + 1 :], 1)
    assert isinstance(older, Round)
    assert older.origins == []


def test_a_pair_whose_draft_lags_behind_catches_up(tiny_models: TinyModels) -> None:
    """Rounds of lookups alone and rounds with the draft model alternate in one text."""
    luck, seen = random.Random(5), set[tuple[bool, bool]]()
    loaded = tiny_models.engine("neox", "float64")
    for _ in range(12):
        config = RunConfig(("ar", "auto"), 72)
        played = steered(priced(loaded, some_costs(luck)), config)
        as_ar(played)
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
        loaded = tiny_models.engine(name)
        for costs in (FREE, *(some_costs(luck) for _ in range(4))):
            steered(priced(loaded, costs), RunConfig(("auto",), LIMIT))
    assert len(asked) > 20
    assert all(asked)


# Turned knobs, ends of texts, and short prompts


HEATS: Turns = {2: ("temperature", 0.8), 6: ("temperature", 0.0), 9: ("temperature", 1.3), 14: ("top_p", 0.6)}


@pytest.mark.parametrize(("temperature", "seed"), [(0.0, 0), (0.7, 1)])
def test_all_methods_write_one_text_while_the_temperature_is_turned(
    tiny_models: TinyModels, temperature: float, seed: int
) -> None:
    as_ar(steered(repeating(tiny_models), RunConfig(WITHOUT_MODEL, LONGER, seed, temperature=temperature), HEATS))


@pytest.mark.parametrize("seed", range(2))
def test_mixed_trees_write_it_too(tiny_models: TinyModels, seed: int) -> None:
    luck = random.Random(seed)
    for pair in ("neox", "neox-strange", REPEATING, headed("llama", "nested")):
        config = RunConfig(("ar", "auto"), LONGER, seed, temperature=luck.choice((0.0, 0.7)))
        as_ar(steered(mixed(tiny_models, pair, luck), config, HEATS))


def test_lookups_may_be_turned_off_and_on_in_a_text(tiny_models: TinyModels) -> None:
    turns: Turns = {3: ("lookup", 0), 8: ("lookup", 1), 12: ("lookup", 0), 13: ("lookup", 1)}
    for engine in (repeating(tiny_models), mixed(tiny_models), mixed(tiny_models, luck=random.Random(0))):
        for temperature in (0.0, 0.7):
            played = steered(engine, RunConfig(("ar", "auto"), LONGER, temperature=temperature), turns)
            as_ar(played)
            for event in played.rounds("auto"):
                off = 3 <= event.round < 8 or event.round == 12
                assert not (off and "lookup" in event.origins)


def test_lookups_that_were_off_know_what_came_meanwhile(tiny_models: TinyModels) -> None:
    engine = mixed(tiny_models, "neox-strange")
    turned = steered(engine, RunConfig(("auto",), LONGER, auto=Auto(lookup=False)), {6: ("lookup", 1)})
    origins = ["lookup" in event.origins for event in turned.rounds("auto")]
    assert not any(origins[:6])
    assert any(origins[6:])


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_text_may_end_at_the_context_within_a_looked_up_chain(tiny_models: TinyModels, temperature: float) -> None:
    prompt_tokens = len(tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT))
    for more in (1, 2, 7):
        for engine, methods in ((repeating(tiny_models), WITHOUT_MODEL), (mixed(tiny_models), ("auto", "ar"))):
            short = with_pair(engine, context=prompt_tokens + more)
            played = steered(short, RunConfig(methods, more, temperature=temperature))
            as_ar(played)
            assert len(played.tokens("ar")) == more


@pytest.mark.parametrize("rules", [Linear(), Fixed(), DynaTree(), Auto()], ids=str)
def test_a_text_ends_with_an_end_token_inside_a_looked_up_chain(tiny_models: TinyModels, rules: Rules) -> None:
    """The prompt is already a repeating text and contains the end token."""
    engine, circle = repeating(tiny_models), tiny_models.prompt_tokens(tiny_models.pair(REPEATING), PROMPT)
    circle += steered(engine, RunConfig(("ar",), LONGER)).tokens("ar")
    coming = decoded(engine, circle, None)[0]
    inside = 0
    for end in dict.fromkeys(coming):
        ending = with_pair(engine, eos=frozenset({end}))
        text, last = decoded(ending, circle, rules)
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


@pytest.mark.parametrize("prompt", ["a", "a a"])
def test_prompts_of_a_token_or_two_are_looked_up_in(tiny_models: TinyModels, prompt: str) -> None:
    for temperature in (0.0, 0.7):
        config = RunConfig(WITHOUT_MODEL, LONGER, temperature=temperature)
        as_ar(steered(repeating(tiny_models), config, prompt=prompt))
        config = RunConfig(("ar", "auto"), LONGER, temperature=temperature)
        for pair in ("neox", REPEATING):
            as_ar(steered(mixed(tiny_models, pair), config, prompt=prompt))


def test_some_of_these_lookups_were_right(tiny_models: TinyModels) -> None:
    """Otherwise the tests above would prove little."""
    played = steered(
        repeating(tiny_models), RunConfig(WITHOUT_MODEL, LONGER, temperature=0.7), {6: ("temperature", 0.0)}
    )
    for method in set(WITHOUT_MODEL) - {"ar"}:
        assert max(len(event.accepted) for event in played.rounds(method)) > 2, method


def test_history_goes_by_what_rules_have_drafted(tiny_models: TinyModels) -> None:
    """Trees grown by rules move the knobs, even if all nodes are looked up. Lookups of `auto` do not."""
    rules = DynaTree(window=1, eta_d=2)
    played = steered(repeating(tiny_models), RunConfig(("ar", "dynatree"), LONGER, dynatree=rules))
    as_ar(played)
    assert played.turned("dynatree", "history")
    played = steered(repeating(tiny_models), RunConfig(("ar", "auto"), LONGER, auto=Auto(window=1, eta_d=2)))
    assert not played.turned("auto", "history")
