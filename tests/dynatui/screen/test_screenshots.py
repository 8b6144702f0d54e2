"""The pictures of the README are drawings of the recorded trace, and any browser can play the moving one."""

import asyncio
import re
from collections import Counter

import pytest

from decoder.events import SCHEMA, Knob, Round, Run
from decoder.run.config import RunConfig
from decoder.tree import depths
from dynatui.prompts import embedded
from dynatui.record.reader import Runs, read_events
from dynatui.screen.app import DynaApp
from dynatui.session import EMBEDDED_SEED, EMBEDDED_TEMPERATURE
from dynatui.sources.playback import TraceSource
from screenshots import animate
from screenshots.animate import FILE, ROUNDS, Frame, Piece, Span, drawing, film
from screenshots.make import FIRST, HERE, SHARE_OF_RUN, SHOTS, SPEED, TRACE, Shot, picture


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
async def test_a_screenshot_is_current(shot: Shot) -> None:
    kept = (HERE / f"{shot.name}.svg").read_text(encoding="utf-8")
    assert await picture(shot) == kept, "python screenshots/make.py draws them anew"


def test_no_picture_is_left_over() -> None:
    assert {path.stem for path in HERE.glob("*.svg")} == {*(shot.name for shot in SHOTS), animate.FILE.stem}


def test_where_the_recording_is_shown_there_is_something_to_see() -> None:
    source = TraceSource(Runs(TRACE))
    source.play(SHARE_OF_RUN * source.played_s[1])
    last = {record.method: record for record in source.records if isinstance(record, Round)}
    rates = {name: (event.position + len(event.committed)) / event.t for name, event in last.items()}
    assert rates["dynatree"] > 1.1 * rates["linear"]
    assert rates["dynatree"] > 1.3 * rates["ar"]
    levels = Counter(depths(last["dynatree"].parents))
    assert min(levels[1], levels[2]) >= 3
    assert any(isinstance(record, Knob) and record.source == "user" for record in source.records)
    run = source.records[1]
    assert isinstance(run, Run)
    assert (run.schema, run.target) == (SCHEMA, "books-16m")
    assert list(run.methods) == ["dynatree", "auto", "ar", "linear", "fixed"]


LARGEST_FILE = 1_000_000
TEXT_ENDS = (15, 75)
TEXT_A = Piece(3, 2, 5, "fill: #fff", "a < b")


async def standing(rounds: int) -> Frame:
    source = TraceSource(Runs(FIRST), speed=SPEED)
    source.seek_round(animate.METHOD, rounds)
    app = DynaApp(source, ticking=False, clock=lambda: 0.0)
    async with app.run_test(size=animate.SIZE) as pilot:
        animate.foresee(app)
        app.draw(everything=True)
        await pilot.pause()
        return animate.frame(app.export_screenshot())


def beside_the_text(pieces: Frame) -> set[Piece]:
    return {p for p in pieces if p.text and (p.row >= TEXT_ENDS[0] or p.column >= TEXT_ENDS[1])}


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NO_COLOR", "TEXTUAL_THEME"):
            patch.delenv(name, raising=False)
        return asyncio.run(film(Runs(FIRST)))


def test_the_animated_picture_is_current(frames: list[Frame]) -> None:
    assert drawing(frames) == FILE.read_text(encoding="utf-8"), "run python screenshots/animate.py"


def test_it_is_of_the_run_that_the_screen_shows_first() -> None:
    started = next(event for event in read_events(FIRST) if isinstance(event, Run))
    assert (started.prompt, started.seed) == (embedded()[0], EMBEDDED_SEED)
    assert started.temperature == EMBEDDED_TEMPERATURE
    assert (started.max_new_tokens, [*started.methods]) == (RunConfig().max_new_tokens, [*RunConfig().methods])


async def test_a_frame_is_the_screen_at_its_round(frames: list[Frame]) -> None:
    assert frames[0] == await standing(1)
    for rounds in (ROUNDS // 2, ROUNDS):
        assert beside_the_text(frames[rounds - 1]) == beside_the_text(await standing(rounds))


def test_a_piece_that_comes_back_has_a_span_each_time() -> None:
    some, none = frozenset({TEXT_A}), frozenset[Piece]()
    assert animate.spans([some, none, some, some]) == {TEXT_A: [Span(0, 1), Span(2, 4)]}


def test_it_needs_nothing_but_a_browser() -> None:
    kept = FILE.read_text(encoding="utf-8")
    assert len(kept.encode()) < LARGEST_FILE
    assert not re.search(r"<script|<foreignObject|<image|@import|@font-face|url\(|href", kept)
