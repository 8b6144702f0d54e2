"""The app on a scripted source: keys, frame rate, layouts, freezing, failures and leaving."""

from functools import partial

import pytest
from msgspec import structs

from decoder.errors import ConfigError
from decoder.events import Knob
from dynatui.screen.canvas import Canvas
from dynatui.session import View
from dynatui.state.run_state import Failure, Loading, Prompt, Record
from tests.dynatui.compared_runs import compared
from tests.dynatui.screen.shown_app import FULL, MIDWAY, SMALL, TABBED, Clock, screen_text, shown, still
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import ScriptedSource, plain_round, run, story, tree_round
from tests.dynatui.turned_runs import rounds, turned

UNSEEN = [tree_round(6, " unseen")]
MOVED_BACK: list[Record] = [turned("d0", 6, 6, 2), tree_round(6, d0=2.0), turned("d0", 7, 2, 3, "history")]
IN_FORCE: list[Record] = [
    Knob(method="dynatree", round=6, name="d0", old=6.0, new=7.0, source="user", turn=1),
    tree_round(6, d0=6.5),
]
ANOTHER: list[Record] = [Prompt(2, 2), run(prompt="Another tale"), tree_round(0)]
AR = [structs.replace(plain_round("ar", number), committed=[token]) for number, token in enumerate((11, 13, 7))]
WITHIN = 12
TWO_TURNS: list[Record] = [
    run(),
    turned("history", 0, 1, 0),
    *rounds(range(12)),
    turned("d0", 12, 2, 5),
    *rounds(range(12, 24), nodes=10),
    turned("tau_h", 24, 0.9, 0.8),
    *rounds(range(24, 36), nodes=8),
]


@pytest.mark.parametrize("size", [FULL, TABBED], ids=["full", "tabbed"])
async def test_from_one_end_to_the_other_each_slider_has_its_line_with_an_interval_soon(size: tuple[int, int]) -> None:
    turns = (turned("d0", 12, 1, 7), turned("tau_h", 24, 0.41, 1), turned("tau_l", 36, 0.01, 0.99))
    told = ("D0 1 → 7", "τh 0.41 → 1", "τl 0.01 → 0.99")
    async with shown([run(), turned("history", 0, 1, 0), *rounds(range(WITHIN))], size=size) as (app, source, _):
        for nodes, (turn, words) in enumerate(zip(turns, told, strict=True), 7):
            source.records += [turn, *rounds(range(turn.round, turn.round + WITHIN), nodes=nodes + 1)]
            app.read_events()
            app.draw(everything=True)
            assert f"{words}: nodes {nodes} → {nodes + 1}, L-bar" in screen_text(app)
            assert " to +" in screen_text(app)


@pytest.mark.parametrize("keys", [("q",), ("ctrl+c",), ("?", "q"), ("?", "ctrl+c")])
async def test_the_app_can_be_left_from_everywhere(keys: tuple[str, ...]) -> None:
    async with shown() as (app, source, pilot):
        await pilot.press(*keys)
        assert source.stopped
        assert app.return_code == 0


async def test_the_exit_code_of_a_failure_is_kept() -> None:
    async with shown([*MIDWAY, Failure("no space on the device", 3)]) as (app, _, pilot):
        await pilot.press("q")
        assert app.return_code == 3


async def test_runs_that_are_over_are_forgotten() -> None:
    async with shown(story()) as (app, source, _):
        source.records += [*story()[:-3]]
        app.tick()
        assert source.records == story()[:-3]
        assert app.viewpoint.work.rounds("dynatree") == 6
        app.tick()
        assert app.viewpoint.work.rounds("dynatree") == 6


async def test_the_screen_follows_a_resize_to_any_size_and_is_never_blank() -> None:
    odd = ((30, 6), (20, 3), (10, 1), (1, 1), (300, 8), (20, 90))
    async with shown() as (app, _, pilot):
        for size in (TABBED, SMALL, *odd, FULL):
            await pilot.resize_terminal(*size)
            rows = screen_text(app).split("\n")
            assert (len(rows[0]), len(rows)) == size
            assert size == (1, 1) or "".join(rows).strip()
            assert size in odd or "18 in 6" in rows[0] or "18 tokens in 6 passes" in rows[0]


async def test_only_changed_rows_are_drawn_again() -> None:
    async with shown() as (app, source, pilot):
        text = app.query_one("#text", Canvas)
        before = list(text._rows)
        source.records.append(tree_round(6, " end"))
        app.tick()
        await pilot.pause()
        assert 0 < sum(a != b for a, b in zip(before, text._rows, strict=True)) <= 2


async def test_panels_are_drawn_no_more_often_than_they_should() -> None:
    source, clock = ScriptedSource(MIDWAY), Clock()
    app = still(source, clock=clock)
    async with app.run_test(size=FULL) as pilot:
        await pilot.pause()
        tree = app.query_one("#tree", Canvas)
        before = list(tree._rows)
        source.records.append(tree_round(6))
        for clock.now, drawn in ((0.1, False), (0.3, True)):
            app.tick()
            assert (tree._rows != before) is drawn


async def test_without_colour_no_cell_has_one_and_origins_still_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown() as (app, _, _pilot):
        styles = {}
        for strip in app.screen._compositor.render_strips():
            for segment in strip:
                assert segment.style is None or segment.style.color is None or segment.style.color.is_default
                styles[segment.text.strip()] = segment.style
        at, time = styles["at"], styles["time"]
        assert at is not None
        assert time is not None
        assert (at.bold, time.underline) == (True, True)


def test_an_unknown_theme_is_refused_with_the_names_of_the_others() -> None:
    with pytest.raises(ConfigError, match=r"theme is 'no-such'; give one of .*dynatui"):
        still(ScriptedSource(), View(theme="no-such"))


@pytest.mark.parametrize(("fps", "ssh", "expected"), [(None, "", 10), (None, "10.0.0.1", 5), (8, "10.0.0.1", 8)])
def test_fewer_frames_over_ssh(fps: int | None, ssh: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if ssh:
        monkeypatch.setenv("SSH_CONNECTION", ssh)
    assert still(ScriptedSource(), View(fps=fps))._fps == expected


test_transcript = transcripts(
    {
        "at full size every panel is there": (shown,),
        "keys turn the knobs and show it at once": (shown, "[", "]", "{", "}", "-", "="),
        "history is switched off with its knobs where they are": (shown, "h"),
        "without such a knob there is nothing to hold": (shown, "H"),
        "what history has moved back is held by one key": (shown, MOVED_BACK, "H"),
        "every panel shows the method that is watched": (shown, "w", "W"),
        "two settings are compared on the prompt that is decoded again": (
            partial(shown, [run(), *(tree_round(number) for number in range(12))]),
            "b",
            "b",
            compared()[:150],
            "S",
            "S w b",
        ),
        "two presses add up before the first is in force": (shown, "[ ["),
        "a knob in force is turned on from where it is": (shown, "=", IN_FORCE, "-"),
        "a turn against the stop is none": (partial(shown, [run(), tree_round(0, d0=7.0)]), "= ="),
        "a recordings knobs cannot be turned": (partial(shown, steerable=False), "[ h ="),
        "knobs that are turned while the models load wait for the first round": (
            partial(shown, [Loading("importing torch")]),
            "[ - space P n",
        ),
        "pause holds the source and goes on": (shown, "P", "P"),
        "a frozen view stands still while data is read": (shown, "space", UNSEEN, "space"),
        "escape goes back to what happens now": (shown, "i", UNSEEN, "escape"),
        "a frozen run stays when the next prompt begins": (shown, "left", ANOTHER, "space"),
        "results of prompts are kept": (partial(shown, [Prompt(1, 2), *story()]), ANOTHER, "7"),
        "a step pauses first and then goes on by stages": (shown, ".", ". ."),
        "next restart and previous move among the prompts": (partial(shown, [Prompt(1, 2), *story()]), "n R N"),
        "speed halves and doubles": (shown, "< < >"),
        "help names every key and closes again": (shown, "?", "?", "? escape"),
        "a failure is shown in every tab": (
            partial(shown, size=TABBED),
            "2",
            [Failure("no space\nGive a smaller.", 3)],
        ),
        "after a failure restart tries again": (partial(shown, [Failure("no such model", 3)]), "R", ANOTHER),
        "in a small terminal tabs share one place": (partial(shown, size=TABBED), *"123456789"),
        "a look back shows the consequence of that place": (
            partial(shown, TWO_TURNS),
            "shift+left left left left",
            "G",
        ),
        "the first difference from ar is found": (partial(shown, [run(), tree_round(0), *AR]), "f"),
        "a click on the time line goes there": (shown, "@timeline+6+0"),
        "a click on a token inspects it": (shown, "@text+49+2"),
        "a click in the race below its lanes watches nothing else": (shown, "@race+5+4"),
        "a cursor in the text says why a token is there": (shown, "i"),
        "the tree shows the round of the inspected token": (shown, "i home"),
        "every panel shows the round of the token that is inspected": (
            shown,
            "i home right right right",
            "left",
            "escape",
        ),
        "the cursor goes by token round and end and stays inside": (
            shown,
            *("i left", "shift+left", "end right right", "home left"),
        ),
        "the cursor goes by line": (partial(shown, [*story(40)[:-3]]), "i home down", "up"),
        "scrubbing shows every panel as it was": (shown, "left left", "home", "shift+right", "end"),
        "conditions to pause at are switched by number": (shown, "B", "1 5 right 1", "escape"),
        "a prompt is edited in place": (shown, "E", "! ctrl+r"),
        "an edit can be left and an unchanged one is none": (shown, "E x escape E ctrl+r"),
        "the drawer turns any knob by key and by value": (shown, "d", "left 0 . 7 enter", "down right", "escape"),
        "undo takes back the last turn": (shown, "[ u"),
        "a panel can have the screen for itself": (shown, "2 e", "escape"),
        "tab goes from panel to panel": (partial(shown, size=TABBED), "tab tab", "shift+tab shift+tab shift+tab"),
        "heat mask symbols and theme change": (shown, "o t v T", "down enter"),
    }
)
