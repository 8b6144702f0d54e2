"""The pictures of the README are drawings of the recorded trace, and any browser can play the moving one."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest

from decoder.events import SCHEMA, Knob, Round, Run
from decoder.run.config import RunConfig
from decoder.tree import depths
from dynatui.prompts.load import embedded
from dynatui.record.reader import Runs, read_events
from dynatui.screen.app import DynaApp
from dynatui.session import EMBEDDED_SEED, EMBEDDED_TEMPERATURE
from dynatui.sources.playback import TraceSource
from screenshots import animate
from screenshots.animate import FILE, FRAME_S, ROUNDS, Frame, Piece, Span, drawing, film
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


SVG = "{http://www.w3.org/2000/svg}"
LARGEST_FILE = 1_000_000
TEXT_ENDS = (15, 75)
TEXT_A, TEXT_B = Piece(3, 2, 5, "fill: #fff", "a < b"), Piece(3, 9, 1, "fill: #fff", "!")
GROUND, BAR = Piece(0, 0, 80, "#000"), Piece(1, 4, 6, "#7cb7ff")


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


def groups(svg: str) -> Iterator[tuple[str, float, ET.Element]]:
    screen = ET.fromstring(svg).find(f"{SVG}g")  # noqa: S314 - our own output
    assert screen is not None
    for group in screen.findall(f"{SVG}g"):
        delay = re.search(r"(-?[\d.]+)s", group.get("style", "0s"))
        assert delay
        yield group.get("class", ""), float(delay[1]), group


def shown(svg: str, place: int, count: int) -> set[tuple[int, int, int, str]]:
    found = set()
    for name, delay_s, group in groups(svg):
        since = (place + 0.5 - delay_s / FRAME_S) % count
        if name and since >= int(name.split()[0].removeprefix("f")):
            continue
        for each in group:
            row, column = int(each.attrib["y"]) // animate.HIGH, int(each.attrib["x"]) // animate.WIDE
            width = int(each.get("width") or each.attrib["textLength"]) // animate.WIDE
            found.add((row, column, width, each.text or each.attrib["fill"]))
    return found


def told(pieces: Frame, ground: str) -> set[tuple[int, int, int, str]]:
    return {(p.row, p.column, p.cells, p.text or p.style) for p in pieces if p.text or p.style != ground}


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


def test_each_piece_is_seen_in_its_frames_alone() -> None:
    frames = [frozenset({GROUND, TEXT_A}), frozenset({GROUND, TEXT_A, BAR}), frozenset({GROUND, TEXT_B, BAR})]
    svg = drawing(frames)
    assert [shown(svg, place, 3) for place in range(3)] == [told(each, "#000") for each in frames]


def test_where_nothing_may_move_the_last_frame_stands() -> None:
    frames = [frozenset({GROUND, TEXT_A}), frozenset({GROUND, BAR, TEXT_B}), frozenset({GROUND, BAR})]
    ends = [[each.tag for each in group] for name, _, group in groups(drawing(frames)) if "end" in name.split()]
    assert ends == [[f"{SVG}rect"]]


def test_a_piece_that_comes_back_has_a_span_each_time() -> None:
    some, none = frozenset({TEXT_A}), frozenset[Piece]()
    assert animate.spans([some, none, some, some]) == {TEXT_A: [Span(0, 1), Span(2, 4)]}


def test_it_needs_nothing_but_a_browser() -> None:
    kept = FILE.read_text(encoding="utf-8")
    assert len(kept.encode()) < LARGEST_FILE
    assert not re.search(r"<script|<foreignObject|<image|@import|@font-face|url\(|href", kept)


def test_its_frames_differ() -> None:
    kept = FILE.read_text(encoding="utf-8")
    length = re.search(r"animation:([\d.]+)s", kept)
    assert length
    count = round(float(length[1]) / FRAME_S)
    seen = {frozenset(shown(kept, place, count)) for place in range(count)}
    assert len(seen) == ROUNDS
