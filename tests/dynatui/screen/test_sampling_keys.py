"""Keys for temperature and top-p: live, for all methods at once, and refused where they have no effect."""

from collections.abc import Sequence
from functools import partial

import pytest

from decoder.events import End
from decoder.run.config import RunConfig
from dynatui.keymap import KEYMAP
from dynatui.session import View
from dynatui.state.run_state import Loading, Prompt, Record
from tests.dynatui.screen.shown_app import screen_text, shown
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import ScriptedSource, plain_round, sampled_round, sampled_run, turned_temperature

ALL = ("dynatree", "ar", "linear", "hf")


def racing(methods: Sequence[str] = ("dynatree", "ar"), rounds: int = 3) -> list[Record]:
    told = [event for number in range(rounds) for event in (sampled_round(number), plain_round("ar", number))]
    return [Prompt(1, 2), sampled_run(methods), *told]


def warm(source: ScriptedSource) -> None:
    source.steering.config = RunConfig(temperature=0.6, top_p=0.9)


@pytest.mark.parametrize("watched", range(4))
async def test_the_keys_turn_them_whatever_method_is_watched(watched: int) -> None:
    async with shown(racing(ALL)) as (_, source, pilot):
        warm(source)
        await pilot.press(*["w"] * watched, "right_parenthesis", "left_parenthesis", "left_parenthesis")
        await pilot.press("comma", "semicolon", "semicolon")
        values = [("temperature", 0.65), ("temperature", 0.6), ("temperature", 0.55)]
        assert source.turns == [*values, ("top_p", 0.85), ("top_p", 0.9), ("top_p", 0.95)]
        assert (source.steering.config.sampling.temperature, source.steering.config.sampling.top_p) == (0.55, 0.95)


async def test_a_note_tells_the_value_and_from_where_it_is_in_force() -> None:
    async with shown(racing()) as (app, source, pilot):
        warm(source)
        await pilot.press("right_parenthesis")
        assert app.scene.note == "T 0.65 for all methods, from about token 9 on"
        await pilot.press("comma")
        assert app.scene.note == "top-p 0.85 for all methods, from about token 9 on"
        assert "T 0.6→0.65" in screen_text(app)


async def test_at_0_the_note_says_greedy_and_at_a_bound_that_nothing_was_turned() -> None:
    async with shown(racing()) as (app, source, pilot):
        source.steering.config = RunConfig(temperature=0.05)
        await pilot.press("left_parenthesis")
        assert app.scene.note == "T 0, greedy, for all methods, from about token 9 on"
        await pilot.press("left_parenthesis")
        assert app.scene.note == "T 0 as before"
        assert source.turns == [("temperature", 0.0)]


async def test_what_another_key_does_is_named_by_that_key() -> None:
    keys = KEYMAP.rebound({"temperature_up": ["f7"], "top_p_up": ["f8"]})
    async with shown(view=View(keys=keys)) as (app, source, pilot):
        await pilot.press("f8")
        assert app.scene.note.endswith("; f7 raises T")
        await pilot.press("f7")
        assert source.turns == [("temperature", 0.05)]


async def test_once_a_method_has_finished_the_text_a_turn_is_for_the_next_prompt() -> None:
    async with shown([*racing(), End(method="dynatree", reason="length")]) as (app, source, pilot):
        warm(source)
        await pilot.press("right_parenthesis")
        assert app.scene.note == "T 0.65 for all methods, from the next prompt on: dynatree has finished this text"


async def test_while_the_models_are_loaded_a_turn_counts_from_the_first_token_on() -> None:
    async with shown([Loading("importing torch")]) as (app, source, pilot):
        warm(source)
        await pilot.press("right_parenthesis")
        assert app.scene.note == "T 0.65 for all methods, from the first token on"


async def test_hf_keeps_what_it_began_with() -> None:
    async with shown(racing(("dynatree", "ar", "hf"))) as (app, source, pilot):
        warm(source)
        await pilot.press("right_parenthesis")
        assert app.scene.note == "T 0.65 for all methods, from about token 9 on; hf from the next prompt on"
    async with shown([sampled_run(("hf",))]) as (app, source, pilot):
        warm(source)
        await pilot.press("right_parenthesis")
        assert app.scene.note == "T 0.65 for all methods, from the next prompt on"


async def test_a_turn_is_pending_until_the_watched_method_has_come_there() -> None:
    async with shown(racing()) as (app, source, pilot):
        warm(source)
        await pilot.press("right_parenthesis", "right_parenthesis")
        assert app.scene.pending == {"temperature": 0.7}
        source.records.append(turned_temperature("dynatree", 3, 0.6, 0.7))
        app.tick()
        assert app.scene.pending == {}
        await pilot.press("w")
        assert app.scene.pending == {"temperature": 0.7}, "ar is behind"


async def test_a_turn_begins_b_of_the_comparison() -> None:
    records = racing(rounds=12)
    async with shown(records) as (app, source, pilot):
        source.records.append(turned_temperature("dynatree", 12, 0.6, 0.7))
        source.records += [sampled_round(number) for number in range(12, 24)]
        app.read_events()
        app.draw(everything=True)
        await pilot.pause()
        assert len(app.pins["dynatree"].samples) == 12
        assert "A/B no clear difference so far" in screen_text(app)


async def test_undo_takes_back_temperature_and_top_p_one_by_one() -> None:
    async with shown(racing()) as (app, source, pilot):
        warm(source)
        await pilot.press("right_parenthesis", "comma", "w", "u")
        assert app.scene.note == "undone: top-p of all methods"
        await pilot.press("u")
        assert source.turns[2:] == [("top_p", 0.9), ("temperature", 0.6)]


@pytest.mark.parametrize("watched", [0, 1])
async def test_the_defaults_are_those_of_the_start_for_them_too(watched: int) -> None:
    async with shown(racing()) as (_, source, pilot):
        await pilot.press(*["w"] * watched, "right_parenthesis", "right_parenthesis", "comma", "0")
        assert source.steering.config == source.steering.session.config
        await pilot.press("u")
        sampling = source.steering.config.sampling
        assert (sampling.temperature, sampling.top_p) == (0.1, 0.95), "the defaults are undone at once"


async def test_in_the_drawer_they_are_chosen_turned_and_typed_like_every_knob() -> None:
    async with shown(racing()) as (app, source, pilot):
        warm(source)
        await pilot.press("d", "end", "up")
        assert app.scene.slider == "temperature"
        await pilot.press("right", "shift+left", "1", ".", "2", "enter")
        assert [value for _, value in source.turns] == [0.65, 0.45, 1.2]
        assert app.scene.note.startswith("T 1.2 for all methods")
        await pilot.press("down", "0", ".", "5", "enter", "9", "enter")
        assert source.turns[3:] == [("top_p", 0.5), ("top_p", 1.0)]


async def test_the_difference_from_ar_that_hf_cannot_have_is_explained() -> None:
    records = racing(("hf", "dynatree", "ar"))
    async with shown(records) as (app, _, pilot):
        await pilot.press("f")
        assert app.scene.note.startswith("hf: at T above 0 it samples with its own noise")


test_transcript = transcripts(
    {
        "top p is refused where nothing is drawn": (shown, "comma"),
        "a recording is not turned": (partial(shown, racing(), steerable=False), "right_parenthesis"),
    }
)
