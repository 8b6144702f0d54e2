"""The app that watches a server, on a scripted source: its panels, keys and end."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec import structs
from textual.pilot import Pilot

from decoder.errors import RecordingError
from dynatui.attach.events import Event
from dynatui.keymap import KEYMAP
from dynatui.screen.server_app import ServerApp
from dynatui.screen.widgets.canvas import Canvas
from dynatui.session import View
from tests.dynatui.attach.scripted_session import ANSWER, ASKED, DRAFTING, GAP, OPENING, reading, session, wasting
from tests.dynatui.hostile_text import hostile

SIZES = [(80, 24), (120, 40), (200, 60)]


class ScriptedServer:
    def __init__(self, events: Sequence[Event] = (), *, live: bool = True) -> None:
        self.paused, self.recording, self.live = False, False, live
        self.upcoming = list(events)
        self.fault: Exception | None = None
        self.ended = self.stopped = self.started = False

    def start(self) -> None:
        self.started = True

    def take(self) -> list[Event]:
        if self.fault:
            raise self.fault
        taken, self.upcoming = self.upcoming, []
        return taken

    def stop(self) -> None:
        self.stopped = True

    def close(self, timeout_s: float) -> bool:
        del timeout_s
        return True


@asynccontextmanager
async def watched(
    events: Sequence[Event], size: tuple[int, int] = (120, 40), view: View | None = None
) -> AsyncIterator[tuple[ServerApp, ScriptedServer, Pilot[None]]]:
    source = ScriptedServer(events)
    app = ServerApp(source, view, ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.draw(everything=True)
        yield app, source, pilot


def screen_text(app: ServerApp, level: int = 0) -> str:
    strips = app.screen_stack[level]._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_everything_that_matters_is_seen_at_every_usual_size(size: tuple[int, int]) -> None:
    async with watched(session(), size) as (app, source, _):
        told = screen_text(app)
        assert source.started
        for words in (
            *("connected", "vLLM", "meta-llama/Llama-3.1-8B-Instruct", "L-bar", "acceptance", "tokens/s"),
            *("Acceptance by position", "Totals", "generated tokens", "watched for 1 min 0 s", "pause", "quit", "help"),
        ):
            assert words in told, words


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_answer_to_a_request_of_ours_takes_the_place_of_the_totals(size: tuple[int, int]) -> None:
    async with watched([*session(), ANSWER], size) as (app, _, _pilot):
        told = screen_text(app)
        assert "Our request" in told
        assert "4 rounds, L-bar 2.00" in told
        assert "▆·█▃" in told
        assert "Totals" not in told


@pytest.mark.parametrize("size", [*SIZES, (40, 10)], ids=str)
async def test_wasted_drafts_are_seen_at_every_size_until_drafts_are_accepted(size: tuple[int, int]) -> None:
    async with watched(wasting(), size) as (app, source, pilot):
        assert "DRAFTS WASTED" in screen_text(app)
        assert "3% " in screen_text(app)
        source.upcoming = [reading(61.0)]
        app.tick()
        app.draw(everything=True)
        await pilot.pause()
        assert "WASTED" not in screen_text(app)


async def test_how_a_server_drafts_takes_the_place_of_positions_that_it_does_not_tell() -> None:
    last = reading(4.0)
    known = structs.replace(last, drafting=DRAFTING)
    async with watched([*session(3), known]) as (app, source, pilot):
        assert "Acceptance by position" in screen_text(app)
        source.upcoming = [structs.replace(known, session=structs.replace(last.session, acceptance_by_position=[]))]
        app.tick()
        app.draw(everything=True)
        await pilot.pause()
        assert "limit of verified tokens" in screen_text(app)


async def test_a_request_is_seen_before_it_is_answered() -> None:
    async with watched([*session(3), ASKED]) as (app, source, pilot):
        assert "no answer yet" in screen_text(app)
        source.upcoming = [ANSWER]
        app.tick()
        app.draw(everything=True)
        await pilot.pause()
        assert "4 rounds, L-bar 2.00" in screen_text(app)


async def test_a_small_terminal_keeps_state_figures_and_curves() -> None:
    async with watched(session(), (40, 10)) as (app, _, _pilot):
        told = screen_text(app)
        assert "connected" in told
        assert "L-bar" in told
        assert not app.query_one("#below").display


async def test_news_are_shown_at_the_next_tick() -> None:
    async with watched([OPENING]) as (app, source, pilot):
        assert "connecting" in screen_text(app)
        source.upcoming = [*session(), GAP]
        app.tick()
        app.draw(everything=True)
        await pilot.pause()
        assert "NO METRICS" in screen_text(app)
        assert "Connection refused; trying again" in screen_text(app)


@pytest.mark.parametrize("key", ["space", "p", "P"])
async def test_a_pause_holds_the_view_while_the_server_is_watched_on(key: str) -> None:
    async with watched(session(5)) as (app, source, pilot):
        await pilot.press(key)
        assert source.paused
        source.upcoming = [reading(66.0)]
        app.tick()
        app.draw(everything=True)
        await pilot.pause()
        assert "PAUSED" in screen_text(app)
        assert "watched for 5 s" in screen_text(app)
        assert app.state.t == 66.0
        await pilot.press(key)
        assert "watched for 1 min 6 s" in screen_text(app)
        assert not source.paused


async def test_the_help_names_keys_and_figures() -> None:
    async with watched(session()) as (app, _, pilot):
        await pilot.press("question_mark")
        assert len(app.screen_stack) == 2
        await pilot.pause()
        assert "when at least 100 rounds, over at least 10 s," in screen_text(app, -1)
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


async def test_symbols_change() -> None:
    async with watched(session()) as (app, _, pilot):
        await pilot.press("v", "v")
        assert app.scene.symbols == "ascii"
        assert "╭" not in screen_text(app)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_it_quits(key: str) -> None:
    async with watched(session()) as (app, source, pilot):
        await pilot.press(key)
    assert app.return_code == 0
    assert source.stopped


async def test_keys_that_are_bound_anew_act() -> None:
    view = View(keys=KEYMAP.rebound({"pause": ["f5"]}))
    async with watched(session(), view=view) as (app, _, pilot):
        await pilot.press("p")
        assert app.frozen_state is None
        await pilot.press("f5")
        assert app.frozen_state is not None


async def test_an_error_of_the_recording_ends_it_with_the_exit_code_and_the_reason() -> None:
    async with watched(session()) as (app, source, _):
        source.fault = RecordingError("cannot write server.jsonl: No space left on device")
        app.tick()
    assert app.return_code == 2
    assert str(app.failure) == "cannot write server.jsonl: No space left on device"


async def test_it_survives_any_size() -> None:
    async with watched(session()) as (app, _, pilot):
        for size in ((1, 1), (10, 3), (40, 10), (300, 80), (59, 200), (80, 24)):
            await pilot.resize_terminal(*size)
            app.tick()


async def test_panels_that_have_no_room_leave_at_once_and_come_back() -> None:
    async with watched(session()) as (app, _, pilot):
        for size, room in (((50, 13), (False, False)), ((50, 40), (True, False)), ((120, 40), (True, True))):
            await pilot.resize_terminal(*size)
            assert (app.query_one("#below").display, app.query_one("#speeds").display) == room, size


async def test_foreign_text_steers_nothing() -> None:
    story = session(3)
    gap = type(GAP)(t=9.0, reason=hostile("REASON"))
    async with watched([*story, gap]) as (app, _, _pilot):
        assert not set("\x1b\x07\x9b\u202e\r\x7f") & set(screen_text(app))


async def test_between_two_readings_nothing_is_sent() -> None:
    async with watched(session()) as (app, _, pilot):
        before = {canvas.id: canvas._rows for canvas in app.query(Canvas)}
        app.tick()
        app.draw(everything=True)
        await pilot.pause()
        assert {canvas.id: canvas._rows for canvas in app.query(Canvas)} == before
