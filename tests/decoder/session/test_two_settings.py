"""One method in two lanes of a race, with two settings: side A keeps its own, side B obeys the user's turns."""

import pytest

from decoder import DynaTree, RunConfig, Steering, decode, load_pair
from decoder.analysis.metrics import fold
from decoder.analysis.paired import LOOKS, WARM_UP, Block, Blocks, between, compared, places
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.events import Event, Knob, Knobs, Round, Run
from decoder.methods import METHODS, SIDE_A
from decoder.methods.linear import Linear
from tests.decoder.makers import PROMPT, TinyModels

DEEP, FLAT = DynaTree(d0=4), DynaTree(d0=1)
WITH_KNOBS = tuple(name for name, method in METHODS.items() if method.rules)


def rounds(events: list[Event], method: str) -> list[Round]:
    return [event for event in events if isinstance(event, Round) and event.method == method]


@pytest.mark.parametrize("method", WITH_KNOBS)
def test_every_method_with_parameters_has_a_side_a_that_writes_the_same_text(
    tiny_models: TinyModels, method: str
) -> None:
    config = RunConfig((method, "ar"), 24)
    both = config.compared(method, config.rules(METHODS[method].rules or method))
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
