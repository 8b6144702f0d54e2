"""The app that watches a server: its panels, keys and end, on a scripted source and in a pseudo-terminal."""

import re
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from textual.pilot import Pilot

from decoder.errors import RecordingError
from dynatui.keymap import KEYMAP
from dynatui.screen.canvas import Canvas
from dynatui.screen.server_app import ServerApp
from dynatui.servers.attach.events import Event
from dynatui.servers.profile_file import write_profile
from dynatui.session import View
from dynatui.sources.server import ServerSource, played
from tests.dynatui.pty_terminal import Start, assert_left_clean, leave
from tests.dynatui.screen.shown_app import screen_text
from tests.dynatui.servers.attach.page_server import PageServer, page, serving, text
from tests.dynatui.servers.attach.scripted_session import (
    ANSWER,
    ASKED,
    DRAFTING,
    GAP,
    OPENING,
    reading,
    session,
    wasting,
)
from tests.dynatui.servers.attach.stand_in import OTHER, profile, promise, promised_draft, steady, vllm
from tests.dynatui.servers.attach.stand_in import watched as served
from tests.dynatui.terminal_grammar import forbidden_output

SIZES = [(80, 24), (120, 40), (200, 60)]
LAST = reading(4.0)
KNOWN = structs.replace(LAST, drafting=DRAFTING)
WITHOUT_POSITIONS = structs.replace(KNOWN, session=structs.replace(LAST.session, acceptance_by_position=[]))


class ScriptedServer(ServerSource):
    """A source of the events that a test sets."""

    ended = False

    def __init__(self, events: Sequence[Event]) -> None:
        super().__init__(played([]))
        self.upcoming = list(events)
        self.fault: Exception | None = None
        self.paused = self.stopped = self.started = False

    def start(self) -> None:
        self.started = True

    def take(self) -> list[Event]:
        if self.fault:
            raise self.fault
        taken, self.upcoming = self.upcoming, []
        return taken

    def set_paused(self, *, paused: bool) -> None:
        self.paused = paused

    def stop(self) -> None:
        self.stopped = True


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


async def told(app: ServerApp, source: ScriptedServer, pilot: Pilot[None], *events: Event) -> str:
    source.upcoming = list(events)
    app.tick()
    app.draw(everything=True)
    await pilot.pause()
    return screen_text(app)


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_everything_that_matters_is_seen_at_every_usual_size(size: tuple[int, int]) -> None:
    async with watched(session(), size) as (app, source, pilot):
        assert source.started
        page = screen_text(app)
        for words in (
            *("connected", "vLLM", "meta-llama/Llama-3.1-8B-Instruct", "L-bar", "acceptance", "tokens/s"),
            *("Acceptance by position", "Totals", "generated tokens", "watched for 1 min 0 s", "pause", "quit", "help"),
        ):
            assert words in page, words
        page = await told(app, source, pilot, ANSWER)
        for words in ("Our request", "4 rounds, L-bar 2.00", "▆·█▃"):
            assert words in page, words
        assert "Totals" not in page, "the answer to a request of ours takes their place"


@pytest.mark.parametrize("size", [*SIZES, (40, 10)], ids=str)
async def test_wasted_drafts_are_seen_at_every_size_until_drafts_are_accepted(size: tuple[int, int]) -> None:
    async with watched(wasting(), size) as (app, source, pilot):
        assert "DRAFTS WASTED" in screen_text(app)
        assert "3% " in screen_text(app)
        assert "WASTED" not in await told(app, source, pilot, reading(61.0))


def not_kept() -> list[Event]:
    server = vllm(OTHER)
    return served(server, steady(server), promise(((1, 64, 3),)))


@pytest.mark.parametrize("size", [*SIZES, (40, 10)], ids=str)
async def test_a_promise_that_is_not_kept_is_seen_at_every_size_with_its_cause(size: tuple[int, int]) -> None:
    async with watched([]) as (app, source, pilot):
        await pilot.resize_terminal(*size)
        page = await told(app, source, pilot, *not_kept())
        assert "PROMISE NOT KEPT" in page
        assert "the server drafts up to 5 tokens" in page
        if size[0] >= 80:
            assert "acceptance is below the promise" in page
            assert "promised" in page


@pytest.mark.parametrize(("size", "at_once"), [((80, 24), False), ((120, 40), True)], ids=str)
async def test_figures_by_load_are_beside_the_totals_or_take_their_place(
    size: tuple[int, int], *, at_once: bool
) -> None:
    async with watched(not_kept(), size) as (app, _, pilot):
        assert ("Acceptance by running requests" in screen_text(app)) == at_once
        await pilot.press("l")
        await pilot.pause()
        assert "Acceptance by running requests" in screen_text(app)
        assert ("Totals" in screen_text(app)) == at_once


@pytest.mark.parametrize(
    ("events", "before", "later", "after"),
    [
        ([*session(3), KNOWN], "Acceptance by position", [WITHOUT_POSITIONS], ["limit of verified tokens"]),
        ([*session(3), ASKED], "no answer yet", [ANSWER], ["4 rounds, L-bar 2.00"]),
        ([OPENING], "connecting", [*session(), GAP], ["NO METRICS", "Connection refused; trying again"]),
    ],
    ids=["drafting in the place of positions", "a request before its answer", "news"],
)
async def test_news_are_shown_at_the_next_tick(
    events: list[Event], before: str, later: list[Event], after: list[str]
) -> None:
    async with watched(events) as (app, source, pilot):
        assert before in screen_text(app)
        page = await told(app, source, pilot, *later)
        assert all(words in page for words in after)


async def test_a_small_terminal_keeps_state_figures_and_curves() -> None:
    async with watched(session(), (40, 10)) as (app, _, _pilot):
        assert "connected" in screen_text(app)
        assert "L-bar" in screen_text(app)
        assert not app.query_one("#below").display


@pytest.mark.parametrize("key", ["space", "p", "P"])
async def test_a_pause_holds_the_view_while_the_server_is_watched_on(key: str) -> None:
    async with watched(session(5)) as (app, source, pilot):
        await pilot.press(key)
        assert source.paused
        page = await told(app, source, pilot, reading(66.0))
        assert "PAUSED" in page
        assert "watched for 5 s" in page
        assert app.state.t == 66.0
        await pilot.press(key)
        assert "watched for 1 min 6 s" in screen_text(app)
        assert not source.paused


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_keys_of_the_settings_act_symbols_change_the_help_names_figures_and_it_quits(key: str) -> None:
    view = View(keys=KEYMAP.rebound({"pause": ["f5"]}))
    async with watched(session(), view=view) as (app, source, pilot):
        for cap, held in (("p", False), ("f5", True)):
            await pilot.press(cap)
            assert (app.frozen_state is not None) is held
        await pilot.press("v", "v", "question_mark")
        assert app.scene.symbols == "ascii"
        assert "╭" not in screen_text(app)
        assert "hardly more than one token" in screen_text(app, -1)
        await pilot.press("escape")
        assert len(app.screen_stack) == 1
        await pilot.press(key)
    assert app.return_code == 0
    assert source.stopped


async def test_an_error_of_the_recording_ends_it_with_the_exit_code_and_the_reason() -> None:
    async with watched(session()) as (app, source, _):
        source.fault = RecordingError("cannot write server.jsonl: No space left on device")
        app.tick()
    assert app.return_code == 2
    assert str(app.failure) == "cannot write server.jsonl: No space left on device"


async def test_it_survives_any_size_and_panels_without_room_leave_at_once_and_come_back() -> None:
    rooms: dict[tuple[int, int], Any] = {(50, 13): (False, False), (50, 40): (True, False), (120, 40): (True, True)}
    async with watched(session()) as (app, _, pilot):
        for size in (*rooms, (1, 1), (10, 3), (40, 10), (300, 80), (59, 200), (80, 24)):
            await pilot.resize_terminal(*size)
            room = app.query_one("#below").display, app.query_one("#speeds").display
            assert room == rooms.get(size, room), size
            app.tick()


async def test_between_two_readings_nothing_is_sent() -> None:
    async with watched(session()) as (app, source, pilot):
        before = {canvas.id: canvas._rows for canvas in app.query(Canvas)}
        await told(app, source, pilot)
        assert {canvas.id: canvas._rows for canvas in app.query(Canvas)} == before


HOSTILE = "\x1b]52;c;UFdORUQ=\x07\x9b2J\u202e"


@pytest.fixture
def server() -> Iterator[PageServer]:
    with serving(text(page("vllm-1"))) as found:
        yield found


def test_a_server_is_shown_and_a_key_leaves_a_clean_terminal(start: Start, server: PageServer) -> None:
    terminal = start("-m", "dynatui", "attach", server.url, "--interval", "0.2")
    terminal.wait_for("connected")
    assert "vLLM" in terminal.shown
    server.answer = text(page("vllm-2"))
    terminal.wait_for("2.70")
    server.answer = text("", 503)
    terminal.wait_for("answers 503 Service Unavailable")
    assert "NO METRICS" in terminal.shown
    server.answer = text(page("vllm-2"))
    terminal.wait_for("connected")
    leave(terminal)
    assert re.search(r"vLLM at http://127.0.0.1:\d+/metrics, watched for \d+ s: L-bar 2.70", terminal.afterwards)


def test_a_signal_leaves_a_clean_terminal(start: Start, server: PageServer) -> None:
    terminal = start("-m", "dynatui", "attach", server.url)
    terminal.wait_for("connected")
    terminal.child.kill(signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert_left_clean(terminal)


def test_it_ends_at_once_though_the_server_does_not_answer(start: Start, server: PageServer) -> None:
    server.answer = lambda handler: handler.connection.recv(1) and None
    terminal = start("-m", "dynatui", "attach", server.url)
    terminal.play("connecting", b"q")
    assert terminal.end(within_s=10.0) == 0
    assert_left_clean(terminal)


def test_a_promise_that_is_not_kept_is_exit_code_5_and_its_cause_stays_in_the_terminal(
    start: Start, server: PageServer, tmp_path: Path
) -> None:
    worker, path = vllm(OTHER), tmp_path / "mine.json"
    write_profile(path, profile(small=promised_draft()))

    def answer(handler: Any) -> None:
        worker.serve(400)
        text(worker.page())(handler)

    server.answer = answer
    terminal = start("-m", "dynatui", "attach", server.url, "--expect", str(path), "--interval", "0.2")
    terminal.wait_for("PROMISE NOT KEPT")
    leave(terminal, 5)
    assert "the promise is not kept: acceptance is below the promise" in terminal.afterwards


def test_hostile_names_are_shown_and_never_obeyed(start: Start, server: PageServer) -> None:
    server.answer = text(page("vllm-1").replace("meta-llama", f"NAME{HOSTILE}"))
    terminal = start("-m", "dynatui", "attach", server.url, size=(200, 60))
    terminal.wait_for("NAME")
    leave(terminal)
    assert not forbidden_output(terminal.written, (200, 60))
    assert b"52;c;" not in terminal.written.replace(b"\xe2\x90\x9b]52;c;", b"")


def test_a_full_disk_ends_it_with_a_clean_terminal_and_one_line(start: Start, server: PageServer) -> None:
    terminal = start("-m", "dynatui", "attach", server.url, "--record", "/dev/full")
    assert terminal.end() == 2
    assert_left_clean(terminal)
    assert "cannot write /dev/full: No space left on device" in terminal.afterwards
