"""Keys that cycle the verifier and the drafting in a live run, for the method that has them."""

from collections.abc import Sequence

from decoder.events import Knob
from decoder.methods.delayed import Delayed
from decoder.run.config import RunConfig
from dynatui.state.run_state import Loading, Prompt, Record
from tests.dynatui.screen.shown_app import screen_text, shown
from tests.dynatui.scripted_runs import ScriptedSource, delayed_run, drawn_round, plain_round, sampled_run

DRAWN: Sequence[Record] = (Prompt(1, 1), delayed_run(), drawn_round(0), plain_round("ar", 0))


def drawing(source: ScriptedSource, *, rollouts: int = 2, temperature: float = 0.6) -> None:
    own = Delayed("specinfer", "delayed", rollouts, 1, 2)
    source.steering.config = RunConfig(("delayed", "ar"), temperature=temperature, delayed=own)


async def test_a_key_goes_through_the_verifiers_that_fit_the_trees_and_begins_again() -> None:
    async with shown(DRAWN) as (app, source, pilot):
        drawing(source)
        await pilot.press("V")
        assert source.steering.config.verifier == "khisti"
        assert app.scene.note == "verifier khisti, from the next round on"
        await pilot.press("V", "V")
        assert source.steering.config.verifier == "nss"
        assert app.scene.note == "verifier nss, from the next round on; coupled, block do not fit these trees"
        await pilot.press("V", "V", "V", "V")
        assert source.steering.config.verifier == "specinfer"


async def test_block_verification_is_among_them_where_one_path_is_drawn() -> None:
    async with shown(DRAWN) as (_, source, pilot):
        drawing(source, rollouts=1)
        await pilot.press("V", "V", "V")
        assert source.steering.config.verifier == "block"


async def test_a_key_goes_through_the_ways_to_draw_trees() -> None:
    async with shown(DRAWN) as (app, source, pilot):
        drawing(source)
        await pilot.press("D")
        assert source.steering.config.drafting == "selector"
        assert app.scene.note.startswith("drafting selector, from the next round on")
        for drafting in ("iid", "delayed"):
            await pilot.press("D")
            assert source.steering.config.drafting == drafting


async def test_undo_and_the_defaults_take_them_back() -> None:
    async with shown(DRAWN) as (app, source, pilot):
        drawing(source)
        await pilot.press("V", "D", "u", "u")
        assert (source.steering.config.verifier, source.steering.config.drafting) == ("specinfer", "delayed")
        assert app.scene.note == "undone: verifier of delayed"


async def test_a_turn_is_pending_until_a_round_obeys_it() -> None:
    async with shown(DRAWN) as (app, source, pilot):
        drawing(source)
        await pilot.press("V")
        assert app.scene.pending == {"verifier": 6.0}
        assert "traversal→khisti" in screen_text(app)
        source.records.append(Knob(method="delayed", round=1, name="verifier", old=7, new=6, source="user", turn=1))
        app.tick()
        assert app.scene.pending == {}


async def test_another_method_says_which_one_has_them() -> None:
    async with shown(DRAWN) as (app, source, pilot):
        drawing(source)
        await pilot.press("w", "V")
        assert app.scene.note == "ar has no verifier, which is a knob of delayed; w watches another method"
        assert source.turns == []
    async with shown([sampled_run(("dynatree", "ar"))]) as (app, source, pilot):
        await pilot.press("D")
        told = "dynatree has no drafting, which is a knob of delayed; to race with it, start with --methods delayed,ar"
        assert app.scene.note == told
        assert source.turns == []


async def test_at_temperature_0_the_note_says_that_nothing_changes() -> None:
    async with shown(DRAWN) as (app, source, pilot):
        drawing(source, temperature=0.0)
        await pilot.press("V")
        assert app.scene.note == "verifier khisti, which has no effect at T 0, where decoding is greedy; ) raises T"


async def test_while_the_models_are_loaded_a_turn_counts_from_the_first_round_on() -> None:
    async with shown([Loading("importing torch")]) as (app, source, pilot):
        drawing(source)
        await pilot.press("V")
        assert app.scene.note == "verifier khisti, from the first round on"


async def test_a_recording_is_not_turned() -> None:
    async with shown(DRAWN, steerable=False) as (app, source, pilot):
        await pilot.press("V")
        assert app.scene.note == "knobs of a recording cannot be turned"
        assert source.turns == []


async def test_in_the_drawer_the_named_values_are_listed_with_their_numbers() -> None:
    async with shown(DRAWN, size=(200, 60)) as (app, source, pilot):
        drawing(source)
        await pilot.press("d", "home", "down", "down", "down")
        assert app.scene.slider == "verifier"
        page = screen_text(app)
        assert all(name in page for name in ("1 nss, ", "2 naive, 3 naive_tree"))
        assert "7 traversal" in page
        assert "8 block" not in page
        await pilot.press("6", "enter")
        assert source.steering.config.verifier == "khisti"
        assert "traversal →khisti" in screen_text(app)
