"""A panel: rows it patches itself or leaves to Textual, what covers it, and the patches that a terminal receives."""

from collections.abc import Mapping

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App, ComposeResult
from textual.geometry import Offset, Region
from textual.screen import ModalScreen

from dynatui.render.ink import Ink, Row, Rows, fit
from dynatui.render.scene import Scene
from dynatui.screen.canvas import Canvas, uncovered
from dynatui.screen.wire import RESET, Frame, Shown, cell_style, in_looks, parts, style_change

INKS: dict[Ink, Style] = {"plain": Style.parse("#ffffff"), "good": Style.parse("#00ff00")}
PLACE = Offset(0, 0)


def speeds(scene: Scene, width: int, height: int) -> Rows:
    del width
    return [(("top", "plain"),), ((f"speed {scene.speed:.0f}", "good"),), *[()] * (height - 2)]


class Panels(App[None]):
    CSS = "Screen { layout: horizontal; } Canvas { width: 1fr; height: 4; }"

    def compose(self) -> ComposeResult:
        yield Canvas(speeds, panel="left")
        yield Canvas(speeds, panel="right")

    def panel(self, name: str) -> Canvas:
        return self.query_one(f"#{name}", Canvas)


def patched(canvas: Canvas, scene: Scene, place: Offset = PLACE, inks: Mapping[Ink, Style] = INKS) -> str:
    """The patch for a terminal that shows the canvas as it is, in this place."""
    shown = Shown((60, 20))
    for y, row in enumerate(canvas._rows):
        Frame(shown).put(in_looks(row, canvas._looks_of_inks()), place.x, place.y + y)
    frame = Frame(shown)
    canvas.patch(scene, inks, place, frame)
    return frame.text()


def text_of(canvas: Canvas) -> list[str]:
    return [strip.text.rstrip() for strip in canvas.render_lines(Region(0, 0, *canvas.size))]


async def test_only_the_changed_cells_are_patched_at_the_panels_place() -> None:
    app = Panels()
    async with app.run_test(size=(20, 6)):
        right = app.panel("right")
        right.show(Scene(), INKS)
        patch = patched(right, Scene(speed=7), Offset(10, 2))
        assert patch.startswith("\x1b[4;17H")
        assert patch.endswith("7\x1b[m")
        assert patched(right, Scene(speed=7), Offset(10, 2)) == ""


async def test_what_was_patched_is_what_textual_shows_from_then_on() -> None:
    app = Panels()
    async with app.run_test(size=(20, 6)) as pilot:
        left = app.panel("left")
        left.show(Scene(), INKS)
        await pilot.pause()
        patched(left, Scene(speed=7))
        assert text_of(left)[:2] == ["top", "speed 7"]


async def test_after_a_change_of_size_or_inks_textual_draws() -> None:
    app = Panels()
    async with app.run_test(size=(20, 6)) as pilot:
        left = app.panel("left")
        left.show(Scene(), INKS)
        await pilot.resize_terminal(30, 6)
        assert patched(left, Scene()) == "", "the new size was drawn as it came"
        assert patched(left, Scene(speed=7), inks={**INKS}) == "", "other inks concern all rows"
        assert text_of(left)[1] == "speed 7"


async def test_panels_are_in_the_open_until_something_lies_over_them() -> None:
    app = Panels()
    async with app.run_test(size=(90, 20), notifications=True) as pilot:
        screen = app.screen
        assert uncovered(screen) == {app.panel("left"): Offset(0, 0), app.panel("right"): Offset(45, 0)}
        app.notify("at the bottom, which only the right one reaches", timeout=60)
        app.panel("right").styles.height = 20
        await pilot.pause()
        assert uncovered(screen) == {app.panel("left"): Offset(0, 0)}


async def test_a_hidden_panel_is_not_in_the_open() -> None:
    app = Panels()
    async with app.run_test(size=(90, 20)) as pilot:
        app.panel("left").display = False
        await pilot.pause()
        assert list(uncovered(app.screen)) == [app.panel("right")]


async def test_a_page_over_the_screen_shows_the_newest_rows_behind_it() -> None:
    app = Panels()
    async with app.run_test(size=(20, 6)) as pilot:
        left = app.panel("left")
        left.show(Scene(), INKS)
        patched(left, Scene(speed=7))
        await app.push_screen(ModalScreen())
        await pilot.pause()
        assert "speed 7" in "".join(strip.text for strip in app.screen._compositor.render_strips())


WIDTH = 24
STYLES: dict[Ink, Style] = {
    "plain": Style.parse("#dfe4ec on #0f1319"),
    "strong": Style.parse("bold #dfe4ec on #0f1319"),
    "bonus": Style.parse("underline #f2b866 on #0f1319"),
    "tab": Style.parse("bold reverse #7cb7ff on #0f1319"),
    "prompt": Style.parse("italic color(3) on #0f1319"),
    "bar": Style(),
}
LOOKS = {ink: cell_style(style, ColorSystem.TRUECOLOR) for ink, style in STYLES.items()}
EMPTY: Row = ((" " * WIDTH, "plain"),)

texts = st.lists(st.sampled_from(["a", "b", " ", " ", "-", "│", "⣿", "漢", "👩", "e\u0301"]), max_size=8).map("".join)
rows = st.lists(st.tuples(texts, st.sampled_from(sorted(STYLES))), max_size=6).map(
    lambda spans: fit(tuple(spans), WIDTH)
)


def terminal(*patches: str) -> list[tuple[object, ...]]:
    screen = pyte.Screen(WIDTH + 4, 3)
    stream = pyte.Stream(screen)
    for patch in patches:
        stream.feed(patch)
    return [_seen(screen.buffer[1][x]) for x in range(screen.columns)]


def showing(row: Row, column: int = 0, line: int = 0) -> Shown:
    shown = Shown((WIDTH + 4, 3))
    Frame(shown).put(in_looks(row, LOOKS), column, line)
    return shown


def sent(before: Row, after: Row, column: int = 0, line: int = 0) -> str:
    frame = Frame(showing(before, column, line))
    frame.put(in_looks(after, LOOKS), column, line)
    return frame.text()


def whole(row: Row) -> str:
    return "\x1b[2;3H" + "".join(f"{style_change(RESET, LOOKS[ink])[0]}{text}\x1b[m" for text, ink in row)


def _seen(cell: pyte.screens.Char) -> tuple[object, ...]:
    under = (cell.bg, cell.underscore, cell.reverse)
    return under if cell.data == " " and not cell.reverse else (cell.data, cell.fg, cell.bold, cell.italics, *under)


def test_a_look_stays_in_force_from_row_to_row() -> None:
    shown, row = Shown((WIDTH, 2)), in_looks((("word", "strong"),), LOOKS)
    frame = Frame(shown)
    for line in (0, 1):
        frame.put(row, 0, line)
    assert frame.text().endswith("word\x1b[2;1Hword\x1b[m")


@given(rows, rows, rows)
def test_a_row_looks_the_same_whatever_was_written_before_it_in_the_frame(other: Row, before: Row, after: Row) -> None:
    frame = Frame(showing(before, 2, 1))
    frame.put(in_looks(other, LOOKS), 2, 0)
    frame.put(in_looks(after, LOOKS), 2, 1)
    assert terminal(whole(before), frame.text()) == terminal(whole(before), sent(before, after, 2, 1))


@given(st.lists(rows, min_size=1, max_size=6))
def test_patches_add_up_to_the_row_itself(history: list[Row]) -> None:
    shown, patches = showing(EMPTY, 2, 1), list[str]()
    for row in history:
        frame = Frame(shown)
        frame.put(in_looks(row, LOOKS), 2, 1)
        patches.append(frame.text())
    assert terminal(whole(EMPTY), *patches) == terminal(whole(EMPTY), whole(history[-1]))


def test_an_unchanged_row_costs_nothing() -> None:
    row = fit((("time", "strong"), (" flies", "plain")), WIDTH)
    assert sent(row, row) == ""


def test_a_changed_figure_costs_a_move_and_its_signs() -> None:
    before, after = (fit(((f"acceptance {share}   depth 5.0", "plain"),), WIDTH) for share in (".71", ".73"))
    assert sent(before, after) == "\x1b[1;14H\x1b[38;2;223;228;236;48;2;15;19;25m3\x1b[m"


def test_places_far_apart_are_written_one_by_one_and_near_ones_together() -> None:
    after = fit((("a b" + " " * 12 + "c", "plain"),), WIDTH)
    assert sent(EMPTY, after).endswith("ma b\x1b[12Cc\x1b[m")


@pytest.mark.parametrize("erases", [True, False])
def test_after_a_clear_only_what_differs_from_a_blank_screen_is_sent(erases: bool) -> None:  # noqa: FBT001
    shown = Shown((WIDTH, 3), erases=erases)
    frame = Frame(shown)
    frame.clear(LOOKS["plain"])
    assert frame.text().startswith("\x1b[48;2;15;19;25m\x1b[2J" if erases else "\x1b[m\x1b[2J")
    frame = Frame(shown)
    frame.put(in_looks(EMPTY, LOOKS), 0, 1)
    assert bool(frame.text()) == (not erases)


def test_what_lies_outside_the_screen_is_not_sent() -> None:
    shown = Shown((WIDTH, 2))
    frame = Frame(shown)
    frame.put(in_looks(EMPTY, LOOKS), 0, 2)
    assert frame.text() == ""
    frame.put(in_looks((("ab", "plain"),), LOOKS), WIDTH + 3, 1)
    assert frame.text() == ""
    frame.put(in_looks((("ab", "plain"),), LOOKS), WIDTH - 1, 1)
    assert frame.text().endswith("ma\x1b[m")


async def test_what_textual_draws_is_sent_as_textual_would_show_it_and_once() -> None:
    app = Panels()
    async with app.run_test(size=(WIDTH, 6)) as pilot:
        app.panel("left").show(Scene(), INKS)
        shown, ours, theirs = Shown((WIDTH, 6)), pyte.Screen(WIDTH, 6), pyte.Screen(WIDTH, 6)
        streams = pyte.Stream(ours), pyte.Stream(theirs)

        def taken(update: object) -> str:
            assert isinstance(update, LayoutUpdate | ChopsUpdate)
            frame = Frame(shown)
            for column, line, row in parts(update, ColorSystem.TRUECOLOR):
                frame.put(row, column, line)
            streams[0].feed(frame.text())
            streams[1].feed(update.render_segments(app.console).replace("\n", "\r\n"))
            return frame.text()

        compositor = app.screen._compositor
        assert taken(compositor.render_update(full=True))
        assert taken(compositor.render_update(full=True)) == ""
        await pilot.pause()
        app.panel("left").show(Scene(speed=7), INKS)
        compositor.update_widgets({app.panel("left")})
        assert 0 < len(taken(compositor.render_update())) < 60
        assert ours.display == theirs.display
        assert "speed 7" in ours.display[1]


def test_blanks_between_words_of_one_look_need_no_code() -> None:
    words = fit((("two", "strong"), (" ", "plain"), ("words", "strong")), WIDTH)
    assert "two words" in sent(EMPTY, words)


def test_underlined_words_leave_their_gaps_alone() -> None:
    words = fit((("two", "bonus"), (" ", "plain"), ("words", "bonus")), WIDTH)
    assert "two words" not in sent(EMPTY, words)


def test_a_row_with_wide_signs_is_sent_whole() -> None:
    before, after = (fit(((f"漢字 {figure}", "plain"),), WIDTH) for figure in "12")
    assert f"漢字 2{' ' * (WIDTH - 6)}" in sent(before, after)


@pytest.mark.parametrize(
    ("before", "after", "codes"),
    [
        ("bold", "bold", ""),
        ("", "bold", "\x1b[1m"),
        ("bold red", "red", "\x1b[22m"),
        ("bold red", "", "\x1b[m"),
        ("bold dim", "dim", "\x1b[22;2m"),
        ("red on blue", "red", "\x1b[49m"),
        ("red", "blue", "\x1b[34m"),
    ],
)
def test_a_turn_names_only_what_differs(before: str, after: str, codes: str) -> None:
    old, new = (cell_style(Style.parse(style), ColorSystem.STANDARD) for style in (before, after))
    assert style_change(old, new)[0] == codes


def test_colours_become_those_that_the_terminal_has() -> None:
    style = Style.parse("#ff0000")
    assert cell_style(style, ColorSystem.TRUECOLOR).foreground == "38;2;255;0;0"
    assert cell_style(style, ColorSystem.EIGHT_BIT).foreground.startswith("38;5;")
    assert cell_style(Style(), ColorSystem.TRUECOLOR) is RESET
