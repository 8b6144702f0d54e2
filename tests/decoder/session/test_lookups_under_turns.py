"""Lookups with turned knobs, at the end of a text, and on short prompts write the text of plain decoding."""

import random
from collections.abc import Mapping

import pytest

from decoder import RunConfig, Steering, decode
from decoder.engine import Engine
from decoder.events import Event, Round
from decoder.knobs import KnobName
from decoder.methods import METHODS
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.session.protocol import Outcome
from decoder.tree_rules import Rules
from tests.decoder.makers import Played, TinyModels, host_session, with_pair
from tests.decoder.session.made_costs import FREE, priced, some_costs
from tests.eagle3_checkpoints import name
from tests.tiny import SENTENCES

PROMPT = SENTENCES[2] + " " + SENTENCES[2]
ALONE = tuple(method for method, found in METHODS.items() if not found.needs_model)
LIMIT = 48
REPEATING = name("neox", "flat")
Turns = Mapping[int, tuple[KnobName, float]]


def alone(tiny_models: TinyModels) -> Engine:
    """A target without a draft model that often repeats itself, so that some lookups are accepted."""
    return priced(with_pair(tiny_models.loaded(tiny_models.pair(REPEATING), "float64"), head=None), FREE)


def mixed(tiny_models: TinyModels, pair: str = "neox", luck: random.Random | None = None) -> Engine:
    """A pair whose costs are drawn from `luck`; without `luck`, drafts cost nothing."""
    return priced(tiny_models.loaded(tiny_models.pair(pair), "float64"), some_costs(luck) if luck else FREE)


def steered(engine: Engine, config: RunConfig, turns: Turns, prompt: str = PROMPT) -> Played:
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


HEATS: Turns = {2: ("temperature", 0.8), 6: ("temperature", 0.0), 9: ("temperature", 1.3), 14: ("top_p", 0.6)}


@pytest.mark.parametrize(("temperature", "seed"), [(0.0, 0), (0.7, 1)])
def test_all_methods_write_one_text_while_the_temperature_is_turned(
    tiny_models: TinyModels, temperature: float, seed: int
) -> None:
    as_ar(steered(alone(tiny_models), RunConfig(ALONE, LIMIT, seed, temperature=temperature), HEATS))


@pytest.mark.parametrize("seed", range(2))
def test_mixed_trees_write_it_too(tiny_models: TinyModels, seed: int) -> None:
    luck = random.Random(seed)
    for pair in ("neox", "neox-strange", REPEATING, name("llama", "nested")):
        config = RunConfig(("ar", "auto"), LIMIT, seed, temperature=luck.choice((0.0, 0.7)))
        as_ar(steered(mixed(tiny_models, pair, luck), config, HEATS))


def test_lookups_may_be_turned_off_and_on_in_a_text(tiny_models: TinyModels) -> None:
    turns: Turns = {3: ("lookup", 0), 8: ("lookup", 1), 12: ("lookup", 0), 13: ("lookup", 1)}
    for engine in (alone(tiny_models), mixed(tiny_models), mixed(tiny_models, luck=random.Random(0))):
        for temperature in (0.0, 0.7):
            played = steered(engine, RunConfig(("ar", "auto"), LIMIT, temperature=temperature), turns)
            as_ar(played)
            for event in played.rounds("auto"):
                off = 3 <= event.round < 8 or event.round == 12
                assert not (off and "lookup" in event.origins)


def test_lookups_that_were_off_know_what_came_meanwhile(tiny_models: TinyModels) -> None:
    engine = mixed(tiny_models, "neox-strange")
    turned = steered(engine, RunConfig(("auto",), LIMIT, auto=Auto(lookup=False)), {6: ("lookup", 1)})
    origins = ["lookup" in event.origins for event in turned.rounds("auto")]
    assert not any(origins[:6])
    assert any(origins[6:])


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_text_may_end_at_the_context_within_a_looked_up_chain(tiny_models: TinyModels, temperature: float) -> None:
    prompt_tokens = len(tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT))
    for more in (1, 2, 7):
        for engine, methods in ((alone(tiny_models), ALONE), (mixed(tiny_models), ("auto", "ar"))):
            short = with_pair(engine, context=prompt_tokens + more)
            played = steered(short, RunConfig(methods, more, temperature=temperature), {})
            as_ar(played)
            assert len(played.tokens("ar")) == more


@pytest.mark.parametrize("rules", [Linear(), Fixed(), DynaTree(), Auto()], ids=str)
def test_a_text_ends_with_an_end_token_inside_a_looked_up_chain(tiny_models: TinyModels, rules: Rules) -> None:
    """The prompt is already a repeating text and contains the end token."""
    engine, circle = alone(tiny_models), tiny_models.prompt_tokens(tiny_models.pair(REPEATING), PROMPT)
    circle += steered(engine, RunConfig(("ar",), LIMIT), {}).tokens("ar")
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
        config = RunConfig(ALONE, LIMIT, temperature=temperature)
        as_ar(steered(alone(tiny_models), config, {}, prompt))
        config = RunConfig(("ar", "auto"), LIMIT, temperature=temperature)
        for pair in ("neox", REPEATING):
            as_ar(steered(mixed(tiny_models, pair), config, {}, prompt))


def test_some_of_these_lookups_were_right(tiny_models: TinyModels) -> None:
    """Otherwise the tests above would prove little."""
    played = steered(alone(tiny_models), RunConfig(ALONE, LIMIT, temperature=0.7), {6: ("temperature", 0.0)})
    for method in set(ALONE) - {"ar"}:
        assert max(len(event.accepted) for event in played.rounds(method)) > 2, method


def test_history_goes_by_what_rules_have_drafted(tiny_models: TinyModels) -> None:
    """Trees grown by rules move the knobs, even if all nodes are looked up. Lookups of `auto` do not."""
    rules = DynaTree(window=1, eta_d=2)
    played = steered(alone(tiny_models), RunConfig(("ar", "dynatree"), LIMIT, dynatree=rules), {})
    as_ar(played)
    assert played.turned("dynatree", "history")
    played = steered(alone(tiny_models), RunConfig(("ar", "auto"), LIMIT, auto=Auto(window=1, eta_d=2)), {})
    assert not played.turned("auto", "history")
