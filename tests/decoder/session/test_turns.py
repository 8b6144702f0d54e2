"""Knobs turned by the user or by history: each method applies its own from the next round on, tells of it, and writes
the text of plain decoding.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder import DynaTree, Fixed, Linear, RunConfig, Steering, decode
from decoder.errors import ConfigError
from decoder.events import Event, Knob, Round
from decoder.knobs import KnobName, RulesName
from decoder.methods import all_knobs
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.methods.delayed import Delayed
from decoder.methods.dynatree import Selection
from decoder.sampling.settings import Sampling
from decoder.tree import depths
from tests.decoder.makers import METHODS, PROMPT, Played, TinyModels, methods_of, play
from tests.decoder.property_settings import examples
from tests.decoder.session.all_methods import CONFIG, LIVELY
from tests.decoder.session.round_comparison import assert_same_rounds
from tests.reference import simulate

TREES = ("dynatree", "alg1", "linear", "fixed")
SMALL = RunConfig(TREES, 24, dynatree=DynaTree(n_max=4), fixed=Fixed(n_max=4))
"""Small trees, for which the caches are allocated without spare room."""
Turns = Mapping[int, Sequence[tuple[KnobName, float]]]


def rules_of(config: RunConfig, method: str) -> DynaTree | Linear | Fixed:
    return config.of(Linear) if method == "linear" else config.of(Fixed) if method == "fixed" else config.of(DynaTree)


def steered(tiny_models: TinyModels, name: str, dtype: str, config: RunConfig, turns: Turns) -> Played:
    """A run in which `turns` are made just before the given rounds of the first method."""
    steering, events = Steering(), list[Event]()

    def turn(number: int) -> None:
        for knob, value in turns.get(number, ()):
            steering.turn(knob, value)

    turn(0)
    for event in decode(tiny_models.engine(name, dtype), PROMPT, config, steering):
        events.append(event)
        if isinstance(event, Round) and event.method == config.methods[0]:
            turn(event.round + 1)
    return Played(events)


SHARED = ("temperature",)
"""Shared knobs that the value 1 changes. The method hf keeps its initial settings."""
OF_TREES = tuple(name for name in all_knobs() if name not in {knob.name for knob in Sampling.knobs})
OWN: dict[str, tuple[KnobName, ...]] = {
    "dynatree": (*DynaTree().ends(), *SHARED),
    "alg1": (*DynaTree().ends(), *SHARED),
    "auto": (*Auto().ends(), *SHARED),
    "linear": ("k", *SHARED),
    "fixed": ("fixed_depth", "fixed_branching", "fixed_tau", "n_max", *SHARED),
    "bestfirst": (*BestFirst().ends(), *SHARED),
    "streaming": ("k", *SHARED),
    "delayed": (*Delayed().ends(), *SHARED),
    "ar": SHARED,
    "hf": (),
}


@pytest.mark.parametrize("name", all_knobs())
def test_the_methods_that_have_a_knob_and_no_others_tell_that_it_was_turned(
    tiny_models: TinyModels, name: KnobName
) -> None:
    config = RunConfig(METHODS, 16, dynatree=DynaTree())
    race = steered(tiny_models, "neox", "float32", config, {1: [(name, 1.0)]})
    for method in METHODS:
        told = [(event.name, event.new) for event in race.turned(method, "user")]
        of_others = {each: config.rules(each) for each in ("auto", "bestfirst", "delayed", "streaming")}
        rules = config.sampling if name in SHARED else of_others.get(method) or rules_of(config, method)
        assert told == ([(name, rules.turned(name, 1).knob(name))] if name in OWN[method] else [])


def test_a_turn_to_greedy_that_comes_in_the_middle_of_trees_is_told_of_every_node(tiny_models: TinyModels) -> None:
    config = RunConfig(("dynatree", "linear", "fixed", "ar"), 48, temperature=0.8, linear=Linear(11))
    turns = {1: [("temperature", 0.0)], 3: [("temperature", 1.2)], 5: [("temperature", 0.0)]}
    played = steered(tiny_models, "neox", "float64", config, turns)
    sampled = [event for name in config.methods for event in played.rounds(name) if event.draft_logprobs]
    assert any(own == chance for event in sampled for own, chance in tree_pairs(event)), "greedy behind sampled ones"
    assert any(own != chance for event in sampled for own, chance in tree_pairs(event))
    texts = {tuple(token for event in played.rounds(name) for token in event.committed) for name in config.methods}
    assert len(texts) == 1


def test_turns_of_temperature_before_a_token_are_told_as_the_last_of_them_unless_they_lead_back(
    tiny_models: TinyModels,
) -> None:
    config = RunConfig(("dynatree", "ar"), 24, temperature=0.6)
    turns = {1: [("temperature", 0.8), ("temperature", 1.0)], 3: [("temperature", 0.2), ("temperature", 1.0)]}
    played = steered(tiny_models, "neox", "float32", config, turns)
    for method in config.methods:
        assert [(event.old, event.new, event.turn) for event in played.turned(method, "user")] == [(0.6, 1.0, 2)]


def tree_pairs(event: Round) -> list[tuple[float, float]]:
    """For each drafted node, its log-probability under the draft and the one that was used to grow the tree."""
    return list(zip(event.draft_logprobs[1:], event.logprobs[1:], strict=True))


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("linear", "k", 11),
        ("fixed", "n_max", 60),
        ("fixed", "fixed_depth", 2),
        ("fixed", "fixed_branching", 3),
        ("fixed", "fixed_tau", 0.4),
        ("dynatree", "d_max", 3),
        ("dynatree", "n_max", 12),
        ("dynatree", "b_min", 2),
        ("dynatree", "b_mid", 3),
        ("dynatree", "b_max", 6),
        ("dynatree", "rho_stop", 0.4),
        ("dynatree", "rho_deep", 0.6),
        ("dynatree", "tau", 0.3),
        ("alg1", "n_max", 3),
        ("alg1", "b_max", 6),
    ],
)
def test_a_turned_knob_shapes_the_trees_from_the_next_round_on(
    tiny_models: TinyModels, method: str, name: KnobName, value: float
) -> None:
    pair, turns = tiny_models.pair("neox"), {3: [(name, value)]}
    tree = DynaTree(rho_stop=0.05, rho_deep=0.1, n_max=30, d0=2, d_max=6, history=False)
    config = RunConfig((method,), 24, dynatree=tree, fixed=Fixed(n_max=9))
    played = steered(tiny_models, "neox", "float64", config, turns)
    prompt, oracle = tiny_models.prompt_tokens(pair, PROMPT), tiny_models.oracle(pair, "float64")
    assert_same_rounds(played.rounds(method), simulate(oracle, prompt, method, rules_of(config, method), 24, turns))
    as_before = tiny_models.play(pair, "float64", PROMPT, config).rounds(method)
    assert [event.parents for event in played.rounds(method)] != [event.parents for event in as_before]


@pytest.mark.parametrize(("of", "counts"), [("auto", [0, 1, 0]), ("dynatree", [1, 0, 1])])
def test_a_turn_of_one_parameter_set_leaves_the_others_alone(
    tiny_models: TinyModels, of: RulesName, counts: list[int]
) -> None:
    """Algorithm 1 obeys the knobs of `dynatree`."""
    steering = Steering()
    steering.turn("d0", 2, of)
    config = RunConfig(("dynatree", "auto", "alg1"), 12)
    race = Played(list(decode(tiny_models.engine("neox"), PROMPT, config, steering)))
    assert [len(race.turned(method, "user")) for method in config.methods] == counts


@pytest.mark.parametrize("method", ["linear", "fixed"])
def test_a_turn_is_told_before_its_first_round_with_the_value_that_it_took(
    tiny_models: TinyModels, method: str
) -> None:
    name: KnobName = "k" if method == "linear" else "fixed_depth"
    played = steered(tiny_models, "neox", "float32", RunConfig((method,), 24), {2: [(name, 99)]})
    (told,) = [event for event in played.events if isinstance(event, Knob)]
    assert told == Knob(method=method, round=2, name=name, old=5, new=32, source="user", turn=1)
    rounds = [event.round for event in played.events[: played.events.index(told)] if isinstance(event, Round)]
    assert rounds == [0, 1]


def test_several_turns_of_one_round_act_in_their_order(tiny_models: TinyModels) -> None:
    config = RunConfig(("dynatree",), 24, dynatree=DynaTree(history=False))
    played = steered(tiny_models, "neox", "float32", config, {1: [("d_max", 20), ("d0", 15), ("d_max", 3), ("d0", 2)]})
    told = [(event.name, event.old, event.new) for event in played.turned("dynatree", "user")]
    assert told == [("d_max", 8, 20), ("d0", 5, 15), ("d_max", 20, 16), ("d0", 15, 2)]


@pytest.mark.parametrize("selection", ["bfs", "best"])
@pytest.mark.parametrize("method", TREES)
def test_trees_may_outgrow_the_room_that_they_began_with(
    tiny_models: TinyModels, method: str, selection: Selection
) -> None:
    tree = replace(SMALL.of(DynaTree), selection=selection, history=False, rho_stop=0, rho_deep=0, tau=0, d0=2, d_max=3)
    config = replace(SMALL, methods=(method,), max_new_tokens=48).with_rules("dynatree", tree)
    more: list[tuple[KnobName, float]] = [("n_max", 300), ("b_max", 16), ("b_mid", 16), ("b_min", 16), ("tau", 0)]
    more += [("fixed_branching", 16), ("k", 32)]
    played = steered(tiny_models, "neox", "float32", config, {2: more, 4: [("d_max", 12), ("d0", 11), ("n_max", 1024)]})
    assert played.tokens(method) == tiny_models.generate(
        tiny_models.pair("neox"), "float32", PROMPT, config.max_new_tokens
    )
    sizes = [len(event.tokens) for event in played.rounds(method)]
    assert max(sizes[:2]) <= 6
    assert max(sizes[2:]) >= 33


def test_history_goes_on_from_where_the_user_turned_a_knob(tiny_models: TinyModels) -> None:
    tree = DynaTree(window=1, eta_d=2, target_acceptance=0.0, n_max=30)
    config = RunConfig(("dynatree",), 24, dynatree=tree)
    played = steered(tiny_models, "neox", "float64", config, {2: [("d0", 1), ("d_max", 3)], 4: [("d_max", 5)]})
    d0 = [event.knobs.d0 for event in played.rounds("dynatree") if event.knobs]
    assert d0[2] == 1
    assert max(d0[2:4]) <= 2
    assert 2 < max(d0[4:]) <= 4


def test_history_does_not_claim_what_the_user_did(tiny_models: TinyModels) -> None:
    config = RunConfig(("dynatree",), 24, dynatree=DynaTree(window=99))
    played = steered(tiny_models, "neox", "float32", config, {1: [("d0", 2), ("tau_h", 0.7), ("tau_l", 0.2)]})
    assert len(played.turned("dynatree", "user")) == 3
    assert played.turned("dynatree", "history") == []


def test_a_turned_knob_is_told_before_its_first_round_and_history_off_leaves_knobs_where_they_are(
    tiny_models: TinyModels,
) -> None:
    config = replace(CONFIG, methods=("dynatree",))
    race = steered(tiny_models, "neox", "float64", config, {3: [("history", 0)], 6: [("tau_h", 0.6), ("d0", 99)]})
    told = [(knob.round, knob.name, knob.new) for knob in race.turned("dynatree", "user")]
    assert told == [(3, "history", 0), (6, "tau_h", 0.6), (6, "d0", 7)]
    assert all(knob.round <= 3 for knob in race.turned("dynatree", "history"))
    seen = [(event.knobs.tau_h, event.knobs.d0) for event in race.rounds("dynatree") if event.knobs]
    assert len(set(seen[3:6])) == 1
    assert set(seen[6:]) == {(0.6, 7)}
    knob = race.turned("dynatree", "user")[1]
    rounds = [event.round for event in race.events[: race.events.index(knob)] if isinstance(event, Round)]
    assert (rounds[-1], knob.old) == (5, seen[5][0])


def test_knobs_turned_before_the_run_count_from_its_first_round(tiny_models: TinyModels) -> None:
    race = steered(tiny_models, "neox", "float64", replace(CONFIG, methods=("dynatree", "alg1")), {0: [("d0", 2)]})
    for method in ("dynatree", "alg1"):
        assert [(knob.round, knob.new) for knob in race.turned(method, "user")] == [(0, 2)]
        knobs = race.rounds(method)[0].knobs
        assert knobs is not None
        assert knobs.d0 == 2


@pytest.mark.parametrize("method", ["dynatree", "alg1"])
@pytest.mark.parametrize("name", ["neox", "llama", "neox-strange"])
def test_history_tells_when_the_used_depth_changes_or_tau_h_has_moved_by_a_hundredth(
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


def test_history_rests_until_its_window_is_full(tiny_models: TinyModels) -> None:
    tree = replace(LIVELY, window=5)
    played = play(tiny_models.engine("neox-strange", "float64"), RunConfig(("dynatree",), 20, dynatree=tree))
    d0 = [event.knobs.d0 for event in played.rounds("dynatree") if event.knobs]
    assert d0[:5] == [5.0] * 5
    assert d0[5] != 5.0


def test_history_starts_afresh_with_every_run(tiny_models: TinyModels) -> None:
    config = replace(CONFIG, methods=("dynatree",))
    first, second = (play(tiny_models.engine("neox", "float64"), config) for _ in range(2))
    assert [event.knobs for event in first.rounds("dynatree")] == [event.knobs for event in second.rounds("dynatree")]


def test_what_is_no_number_is_refused_before_it_reaches_the_engine() -> None:
    steering = Steering()
    with pytest.raises(ConfigError, match=r"d0 .*give a number"):
        steering.turn("d0", float("nan"))
    assert steering.turns == ()


values = st.one_of(st.floats(allow_nan=False), st.floats(-0.2, 1.2), st.integers(-1, 40).map(float))
anything = st.dictionaries(st.integers(0, 9), st.lists(st.tuples(st.sampled_from(OF_TREES), values), max_size=4))


@examples(8)
@given(turns=anything, selection=st.sampled_from(["bfs", "best"]), name=st.sampled_from(["neox", "gpt2"]))
def test_whatever_is_turned_whenever_every_method_writes_the_text_of_plain_greedy_search(
    tiny_models: TinyModels, turns: Turns, selection: Selection, name: str
) -> None:
    methods, tree = methods_of(name), replace(SMALL.of(DynaTree), selection=selection)
    config = RunConfig(methods, 20, dynatree=tree, fixed=SMALL.of(Fixed))
    played = steered(tiny_models, name, "float32", config, turns)
    expected = tiny_models.generate(tiny_models.pair(name), "float32", PROMPT, config.max_new_tokens)
    assert {method: played.tokens(method) for method in methods} == dict.fromkeys(methods, expected)


moderate = st.one_of(
    st.tuples(st.just("n_max"), st.integers(1, 40)),
    st.tuples(st.sampled_from(["d_max", "k", "fixed_depth"]), st.integers(1, 9)),
    st.tuples(st.sampled_from(["b_min", "b_mid", "b_max", "fixed_branching"]), st.integers(1, 5)),
    st.tuples(st.sampled_from(["tau_h", "tau_l", "rho_stop", "rho_deep", "tau"]), st.floats(0, 1)),
    st.tuples(st.just("d0"), st.floats(0, 9)),
    st.tuples(st.just("history"), st.integers(0, 1)),
)


@examples(80)
@given(
    turns=st.dictionaries(st.integers(0, 9), st.lists(moderate, min_size=1, max_size=3), min_size=2),
    method=st.sampled_from(TREES),
    dtype=st.sampled_from(["float64", "float32"]),
)
def compare_turned(tiny_models: TinyModels, score: Counter[str], turns: Turns, method: str, dtype: str) -> None:
    rules = replace(SMALL.of(DynaTree), window=2, eta_h=0.3)
    config = replace(SMALL, methods=(method,)).with_rules("dynatree", rules)
    pair = tiny_models.pair("neox")
    played = steered(tiny_models, "neox", dtype, config, turns)
    prompt, oracle = tiny_models.prompt_tokens(pair, PROMPT), tiny_models.oracle(pair, dtype)
    assert_same_rounds(played.rounds(method), simulate(oracle, prompt, method, rules_of(config, method), 24, turns))
    score["rounds"] += len(played.rounds(method))
    score["turned"] += len({max(depths(event.parents)) for event in played.rounds(method)}) > 2


def test_whatever_is_turned_whenever_every_round_is_the_reference_s_round(tiny_models: TinyModels) -> None:
    score: Counter[str] = Counter()
    compare_turned(tiny_models, score)
    assert score["rounds"] > 400
    assert score["turned"] > 20
