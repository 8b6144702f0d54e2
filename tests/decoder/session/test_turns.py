"""Knobs turned by the user or by history: each method applies its own from the next round on, tells of it, and writes
the text of plain decoding.
"""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder import DynaTree, Fixed, Linear, RunConfig, Steering, decode, load_pair
from decoder.analysis.metrics import fold
from decoder.analysis.paired import LOOKS, WARM_UP, Block, Blocks, between, compared, places
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Event, Knob, Knobs, Round, Run
from decoder.knobs import KnobName, RulesName
from decoder.methods import METHODS as BY_NAME
from decoder.methods import SIDE_A, all_knobs
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.methods.delayed import Delayed
from decoder.methods.dynatree import Selection
from decoder.methods.eagle2 import Eagle2
from decoder.sampling.settings import SAMPLING, Sampling
from tests.decoder.laws.races import COUPLED
from tests.decoder.makers import METHODS, PROMPT, Played, TinyModels, methods_of
from tests.decoder.property_settings import examples
from tests.decoder.session.all_methods import LIVELY, TREES, Turns, turned

SMALL = RunConfig(TREES, 24, dynatree=DynaTree(n_max=4), fixed=Fixed(n_max=4))
"""Small trees, for which the caches are allocated without spare room."""
SHARED = ("temperature",)
"""Shared knobs that the value 1 changes. The method hf keeps its initial settings."""
OF_TREES = tuple(name for name in all_knobs() if name not in {knob.name for knob in Sampling.knobs})
OWN: dict[str, tuple[KnobName, ...]] = {
    "dynatree": (*DynaTree().ends(), *SHARED),
    "alg1": (*DynaTree().ends(), *SHARED),
    "auto": (*Auto().ends(), *SHARED),
    "linear": ("k", "p_min", *SHARED),
    "fixed": ("fixed_depth", "fixed_branching", "fixed_tau", "n_max", *SHARED),
    "bestfirst": (*BestFirst().ends(), *SHARED),
    "eagle2": (*Eagle2().ends(), *SHARED),
    "streaming": ("k", *SHARED),
    "delayed": (*Delayed().ends(), *SHARED),
    "ar": SHARED,
    "hf": (),
}


def test_methods_with_a_knob_and_no_others_tell_that_it_was_turned(tiny_models: TinyModels) -> None:
    config = RunConfig(METHODS, 16, dynatree=DynaTree())
    race = turned(tiny_models.engine("neox"), config, {1: [(name, 1.0) for name in all_knobs()]})
    for method in METHODS:
        told = [(event.name, event.new) for event in race.turned(method, "user")]
        own, expected = BY_NAME[method].rules, dict.fromkeys(set(SHARED) & set(OWN[method]), 1.0)
        rules = config.rules(own) if own else config.sampling
        for name in (name for name in all_knobs() if name in OWN[method] and name not in SHARED):
            rules = rules.turned(name, 1)
            expected[name] = rules.knob(name)
        assert len(told) == len(expected)
        assert dict(told) == expected


# Temperatures


@pytest.mark.parametrize(
    ("name", "value", "begun"), [("temperature", 1.4, 0.0), ("temperature", 0.0, 0.8), ("top_p", 0.5, 0.8)]
)
def test_a_turn_changes_the_texts_of_all_methods_at_one_position(
    tiny_models: TinyModels, name: KnobName, value: float, begun: float
) -> None:
    config, engine = RunConfig(COUPLED, 32, temperature=begun), tiny_models.engine("neox")
    before = tiny_models.play(tiny_models.pair("neox"), "float32", PROMPT, config).tokens("ar")
    steering, events, turned_at = Steering(), list[Event](), 0
    for event in decode(engine, PROMPT, config, steering):
        events.append(event)
        if len(events) == 12:
            steering.turn(name, value, SAMPLING)
            turned_at = max(len(Played(events).tokens(method)) for method in COUPLED)
    texts = {method: Played(events).tokens(method) for method in COUPLED}
    assert texts == dict.fromkeys(COUPLED, texts["ar"])
    assert texts["ar"][:turned_at] == before[:turned_at]
    changed = {
        event.method: (event.old, event.new) for event in events if isinstance(event, Knob) and event.name == name
    }
    old = begun if name == "temperature" else 1.0
    assert changed == dict.fromkeys(COUPLED, (old, value))
    assert texts["ar"] != before


def test_a_turn_to_greedy_that_comes_in_the_middle_of_trees_is_told_of_every_node(tiny_models: TinyModels) -> None:
    config = RunConfig(("dynatree", "linear", "fixed", "ar"), 48, temperature=0.8, linear=Linear(11))
    turns: Turns = {1: [("temperature", 0.0)], 3: [("temperature", 1.2)], 5: [("temperature", 0.0)]}
    played = turned(tiny_models.engine("neox", "float64"), config, turns)
    assert {tuple(played.tokens(name)) for name in config.methods} == {tuple(played.tokens("ar"))}
    sampled = [event for name in config.methods for event in played.rounds(name) if event.draft_logprobs]
    alike = {
        own == used for event in sampled for own, used in zip(event.draft_logprobs[1:], event.logprobs[1:], strict=True)
    }
    assert alike == {True, False}, "greedy nodes behind sampled ones"


def test_turns_of_temperature_before_a_token_are_told_as_one_unless_they_lead_back(
    tiny_models: TinyModels,
) -> None:
    config = RunConfig(("dynatree", "ar"), 24, temperature=0.6)
    turns: Turns = {1: [("temperature", 0.8), ("temperature", 1.0)], 3: [("temperature", 0.2), ("temperature", 1.0)]}
    played = turned(tiny_models.engine("neox"), config, turns)
    for method in config.methods:
        assert [(event.old, event.new, event.turn) for event in played.turned(method, "user")] == [(0.6, 1.0, 2)]


# Knobs of trees


@pytest.mark.parametrize(("of", "counts"), [("auto", [0, 1, 0]), ("dynatree", [1, 0, 1])])
def test_a_turn_of_one_set_leaves_the_others_alone(tiny_models: TinyModels, of: RulesName, counts: list[int]) -> None:
    """Algorithm 1 obeys the knobs of `dynatree`."""
    steering = Steering()
    steering.turn("d0", 2, of)
    config = RunConfig(("dynatree", "auto", "alg1"), 12)
    race = Played(list(decode(tiny_models.engine("neox"), PROMPT, config, steering)))
    assert [len(race.turned(method, "user")) for method in config.methods] == counts


@pytest.mark.parametrize(
    ("config", "turns", "told"),
    [
        pytest.param(RunConfig(("linear",), 24), {2: [("k", 99)]}, [(2, "k", 5, 32)], id="a clamped value"),
        pytest.param(RunConfig(("fixed",), 24), {2: [("fixed_depth", 99)]}, [(2, "fixed_depth", 5, 32)], id="another"),
        pytest.param(
            RunConfig(("dynatree",), 24, dynatree=DynaTree(history=False)),
            {1: [("d_max", 20), ("d0", 15), ("d_max", 3), ("d0", 2)]},
            [(1, "d_max", 8, 20), (1, "d0", 5, 15), (1, "d_max", 20, 16), (1, "d0", 15, 2)],
            id="several turns act in their order",
        ),
        pytest.param(
            RunConfig(("dynatree",), 24, dynatree=DynaTree(window=99)),
            {1: [("d0", 2), ("tau_h", 0.7), ("tau_l", 0.2)]},
            [(1, "d0", 5, 2), (1, "tau_h", 0.9, 0.7), (1, "tau_l", 0.4, 0.2)],
            id="history does not claim what the user did",
        ),
        pytest.param(
            RunConfig(("alg1",), 24, dynatree=DynaTree(window=99)), {0: [("d0", 2)]}, [(0, "d0", 5, 2)],
            id="turned before the run",
        ),
    ],
)  # fmt: skip
def test_turns_are_told_before_their_first_round_with_the_values_that_they_took(
    tiny_models: TinyModels, config: RunConfig, turns: Turns, told: list[tuple[int, str, float, float]]
) -> None:
    played = turned(tiny_models.engine("neox"), config, turns)
    knobs = [event for event in played.events if isinstance(event, Knob)]
    assert [(knob.round, knob.name, knob.old, knob.new) for knob in knobs] == told
    assert [(knob.source, knob.turn) for knob in knobs] == [("user", number) for number in range(1, len(told) + 1)]
    before = [event.round for event in played.events[: played.events.index(knobs[0])] if isinstance(event, Round)]
    assert before == list(range(told[0][0]))
    in_force = played.rounds(config.methods[0])[told[-1][0]].knobs
    assert in_force is None or in_force.d0 == 2


@pytest.mark.parametrize(
    ("method", "selection"), [("dynatree", "bfs"), ("dynatree", "best"), ("alg1", "bfs"), ("fixed", "bfs")]
)
def test_trees_may_outgrow_the_room_they_began_with(tiny_models: TinyModels, method: str, selection: Selection) -> None:
    tree = replace(SMALL.of(DynaTree), selection=selection, history=False, rho_stop=0, rho_deep=0, tau=0, d0=2, d_max=3)
    config = replace(SMALL, methods=(method,), max_new_tokens=48).with_rules("dynatree", tree)
    more: list[tuple[KnobName, float]] = [("n_max", 300), ("b_max", 16), ("b_mid", 16), ("b_min", 16), ("tau", 0)]
    more += [("fixed_branching", 16), ("k", 32)]
    turns: Turns = {2: more, 4: [("d_max", 12), ("d0", 11), ("n_max", 1024)]}
    played = turned(tiny_models.engine("neox"), config, turns)
    assert played.tokens(method) == tiny_models.generate(tiny_models.pair("neox"), "float32", PROMPT, 48)
    sizes = [len(event.tokens) for event in played.rounds(method)]
    assert max(sizes[:2]) <= 6
    assert max(sizes[2:]) >= 33


# History


@pytest.mark.parametrize(("name", "method"), [("neox", "dynatree"), ("llama", "alg1"), ("neox-strange", "dynatree")])
def test_history_tells_changes_of_depth_and_hundredths_of_tau_h(
    tiny_models: TinyModels, name: str, method: str
) -> None:
    played = tiny_models.play(tiny_models.pair(name), "float64", PROMPT, RunConfig((method,), 40, dynatree=LIVELY))
    knobs = [event.knobs for event in played.rounds(method) if event.knobs]
    told = {(knob.name, knob.round): knob for knob in played.turned(method, "history")}
    noted = knobs[0].tau_h
    for number, (before, now) in enumerate(itertools.pairwise(knobs), 1):
        changed = int(before.d0 + 0.5) != int(now.d0 + 0.5)
        assert (("d0", number) in told) == changed
        if changed:
            assert told["d0", number].new == now.d0
        moved = abs(now.tau_h - noted)
        if abs(moved - 0.01) > 1e-9:
            assert (("tau_h", number) in told) == (moved > 0.01)
        if ("tau_h", number) in told:
            assert (told["tau_h", number].old, told["tau_h", number].new) == (noted, now.tau_h)
            noted = now.tau_h
    assert told


def test_what_is_no_number_is_refused_before_it_reaches_the_engine() -> None:
    steering = Steering()
    with pytest.raises(ConfigError, match=r"d0 .*give a number"):
        steering.turn("d0", float("nan"))
    assert steering.turns == ()


# Any turns


values = st.one_of(st.floats(allow_nan=False), st.floats(-0.2, 1.2), st.integers(-1, 40).map(float))
anything = st.dictionaries(st.integers(0, 9), st.lists(st.tuples(st.sampled_from(OF_TREES), values), max_size=4))


@examples(4)
@given(turns=anything, selection=st.sampled_from(["bfs", "best"]), name=st.sampled_from(["neox", "gpt2"]))
def test_whatever_is_turned_whenever_every_method_writes_the_text_of_plain_greedy_search(
    tiny_models: TinyModels, turns: Turns, selection: Selection, name: str
) -> None:
    methods, tree = methods_of(name), replace(SMALL.of(DynaTree), selection=selection)
    config = RunConfig(methods, 20, dynatree=tree, fixed=SMALL.of(Fixed))
    played = turned(tiny_models.engine(name), config, turns)
    expected = tiny_models.generate(tiny_models.pair(name), "float32", PROMPT, 20)
    assert {method: played.tokens(method) for method in methods} == dict.fromkeys(methods, expected)


# One method with two settings


DEEP, FLAT = DynaTree(d0=4), DynaTree(d0=1)
WITH_KNOBS = tuple(name for name, method in BY_NAME.items() if method.rules)


def rounds(events: list[Event], method: str) -> list[Round]:
    return [event for event in events if isinstance(event, Round) and event.method == method]


@pytest.mark.parametrize("method", WITH_KNOBS)
def test_every_method_with_parameters_has_a_side_a_that_writes_the_same_text(
    tiny_models: TinyModels, method: str
) -> None:
    config = RunConfig((method, "ar"), 24)
    both = config.compared(method, config.rules(BY_NAME[method].rules or method))
    race = fold(decode(tiny_models.engine("neox"), PROMPT, both))
    assert list(race.tallies) == [method, f"{method}{SIDE_A}", "ar"]
    assert len({tuple(tally.tokens) for tally in race.tallies.values()}) == 1


def test_each_side_drafts_by_its_own_settings_and_the_run_tells_both(tiny_models: TinyModels) -> None:
    config = RunConfig(("dynatree",), 24, dynatree=DEEP).compared("dynatree", FLAT)
    start, *events = decode(tiny_models.engine("neox"), PROMPT, config)
    assert isinstance(start, Run)
    assert [own["d0"] for own in start.methods.values()] == [4, 1]
    first = [rounds(events, name)[0].knobs for name in start.methods]
    assert first == [Knobs(DEEP.tau_h, DEEP.tau_l, 4), Knobs(FLAT.tau_h, FLAT.tau_l, 1)]


def test_a_turn_changes_side_b_alone(tiny_models: TinyModels) -> None:
    config = RunConfig(("alg1",), 24, dynatree=DEEP).compared("alg1", DEEP)
    steering, events = Steering(), list[Event]()
    for event in decode(tiny_models.engine("neox"), PROMPT, config, steering):
        events.append(event)
        if len(events) == 6:
            steering.turn("n_max", 2, "dynatree")
    assert [event.method for event in events if isinstance(event, Knob) and event.source == "user"] == ["alg1"]
    assert max(len(event.tokens) for event in rounds(events, f"alg1{SIDE_A}")[4:]) > 2
    assert max(len(event.tokens) for event in rounds(events, "alg1")[4:]) <= 2


@pytest.mark.parametrize("method", ["ar", "hf"])
def test_a_method_without_parameters_has_no_settings_to_compare(method: str) -> None:
    with pytest.raises(ConfigError, match=f"{method} has no parameters"):
        RunConfig((method,)).compared(method, Linear())


def test_the_parameters_of_another_method_are_refused() -> None:
    with pytest.raises(ConfigError, match="give DynaTree"):
        RunConfig().compared("dynatree", Linear())


def looked_at(engine: Engine, prompt: str) -> Blocks:
    config = RunConfig(("dynatree",), 8 * (WARM_UP + LOOKS[0]), seed=7, temperature=0.6)
    events = [*decode(engine, prompt, config.compared("dynatree", config.of(DynaTree)))]
    sides = [places(rounds(events, name)) for name in (f"dynatree{SIDE_A}", "dynatree")]
    return tuple(
        Block(*(between(side[place], side[place + 1]) for side in sides))
        for place in range(WARM_UP, min(map(len, sides)) - 1)
    )


@pytest.mark.parametrize("count", [1, pytest.param(200, marks=pytest.mark.soak)])
def test_equal_settings_of_the_embedded_pair_are_called_different_at_most_once_in_20_texts(count: int) -> None:
    engine = load_pair()
    books = "It was late, and the house", "The captain looked at the sea", "My dear sister", "In the spring", "He said"
    found = [compared(looked_at(engine, f"{books[n % 5]} {n}. ")) for n in range(count)]
    seen = [each for each in found if each is not None]
    assert len(seen) >= 0.8 * count
    assert all(each.tokens_per_round.value == pytest.approx(1) for each in seen)
    assert sum(each.verdict in ("faster", "slower") for each in seen) <= max(1, 0.08 * len(seen))
