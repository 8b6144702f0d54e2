"""Knobs turned by the user or by history: the first round in which they act, and their events."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from decoder import RunConfig, Steering, decode
from decoder.events import Round
from decoder.knobs import KnobName
from tests.decoder.makers import METHODS, Played, TinyModels
from tests.decoder.session.all_methods import CONFIG, LIVELY, PROMPT, steered
from tests.decoder.session.round_comparison import assert_same_rounds
from tests.reference import simulate


def turning(turns: list[tuple[KnobName, float]]) -> Callable[[Steering], object]:
    """A user action that turns knobs one after the other."""

    def turn(steering: Steering) -> None:
        for name, value in turns:
            steering.turn(name, value)

    return turn


TURNS: dict[str, list[tuple[KnobName, float]]] = {
    "tau_h": [("tau_h", 0.6)],
    "tau_l": [("tau_l", 0.8)],
    "d0": [("d0", 1.0)],
    "history off": [("history", 0)],
    "several": [("tau_l", 0.2), ("tau_h", 0.3), ("d0", 3.7)],
    "beyond the bounds": [("d0", 99), ("tau_h", -3), ("tau_l", 7)],
}


@pytest.mark.parametrize("method", ["dynatree", "alg1"])
@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS)
def test_turned_knobs_are_in_force_from_the_next_round(
    tiny_models: TinyModels, turns: list[tuple[KnobName, float]], method: str
) -> None:
    config = replace(CONFIG, methods=(method,))
    pair = tiny_models.pair("neox")
    played = steered(tiny_models, config, 4, turning(turns))
    prompt = tiny_models.prompt_tokens(pair, PROMPT)
    steps = simulate(tiny_models.oracle(pair, "float64"), prompt, method, LIVELY, config.max_new_tokens, {4: turns})
    assert_same_rounds(played.rounds(method), steps)


@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS)
def test_turned_knobs_leave_the_text_alone(tiny_models: TinyModels, turns: list[tuple[KnobName, float]]) -> None:
    config = replace(CONFIG, methods=("dynatree", "alg1"))
    played = steered(tiny_models, config, 2, turning(turns))
    expected = tiny_models.generate(tiny_models.pair("neox"), "float64", PROMPT, config.max_new_tokens)
    assert (played.tokens("dynatree"), played.tokens("alg1")) == (expected, expected)


def test_a_turned_knob_is_told_before_its_first_round(tiny_models: TinyModels) -> None:
    config = replace(CONFIG, methods=("dynatree",)).with_rules("dynatree", replace(LIVELY, history=False))
    played = steered(tiny_models, config, 4, lambda steering: steering.turn("tau_h", 0.6))
    (knob,) = played.turned("dynatree", "user")
    assert (knob.round, knob.name, knob.old, knob.new) == (4, "tau_h", 0.9, 0.6)
    rounds = [event.round for event in played.events[: played.events.index(knob)] if isinstance(event, Round)]
    assert rounds[-1] == 3
    seen = [event.knobs.tau_h for event in played.rounds("dynatree") if event.knobs]
    assert seen == [0.9] * 4 + [0.6] * (len(seen) - 4)


def test_a_knob_turned_beyond_its_bounds_tells_the_value_that_it_took(tiny_models: TinyModels) -> None:
    config = replace(CONFIG, methods=("dynatree",)).with_rules("dynatree", replace(LIVELY, history=False))
    played = steered(tiny_models, config, 1, lambda steering: steering.turn("d0", 99))
    (knob,) = played.turned("dynatree", "user")
    assert (knob.old, knob.new) == (5.0, 7.0)


def test_knobs_turned_before_the_run_count_from_its_first_round(tiny_models: TinyModels) -> None:
    steering = Steering()
    steering.turn("d0", 2)
    config = replace(CONFIG, methods=("dynatree", "alg1"))
    played = Played(list(decode(tiny_models.loaded(tiny_models.pair("neox"), "float64"), PROMPT, config, steering)))
    for method in config.methods:
        assert [(knob.round, knob.new) for knob in played.turned(method, "user")] == [(0, 2)]
        knobs = played.rounds(method)[0].knobs
        assert knobs is not None
        assert knobs.d0 == 2


def test_every_method_with_knobs_applies_a_turn_once(tiny_models: TinyModels) -> None:
    played = steered(tiny_models, CONFIG, 2, lambda steering: steering.turn("tau_l", 0.3), "float32")
    assert {method: len(played.turned(method, "user")) for method in METHODS} == {
        "dynatree": 1,
        "auto": 1,
        "alg1": 1,
        "ar": 0,
        "linear": 0,
        "fixed": 0,
        "bestfirst": 0,
        "delayed": 0,
        "streaming": 0,
        "hf": 0,
    }


def test_history_switched_off_leaves_the_knobs_where_they_are(tiny_models: TinyModels) -> None:
    config = replace(CONFIG, methods=("dynatree",))
    played = steered(tiny_models, config, 4, lambda steering: steering.turn("history", 0))
    after = [event.knobs for event in played.rounds("dynatree")[4:]]
    assert len(set(map(str, after))) == 1
    assert all(knob.round <= 4 for knob in played.turned("dynatree", "history"))
    (knob,) = played.turned("dynatree", "user")
    assert (knob.name, knob.old, knob.new) == ("history", 1, 0)


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
    played = tiny_models.play(
        tiny_models.pair("neox-strange"), "float64", PROMPT, RunConfig(("dynatree",), 20, dynatree=tree)
    )
    d0 = [event.knobs.d0 for event in played.rounds("dynatree") if event.knobs]
    assert d0[:5] == [5.0] * 5
    assert d0[5] != 5.0


def test_history_starts_afresh_with_every_run(tiny_models: TinyModels) -> None:
    pair, config = tiny_models.loaded(tiny_models.pair("neox"), "float64"), replace(CONFIG, methods=("dynatree",))
    first, second = (Played(list(decode(pair, PROMPT, config))) for _ in range(2))
    assert [event.knobs for event in first.rounds("dynatree")] == [event.knobs for event in second.rounds("dynatree")]
