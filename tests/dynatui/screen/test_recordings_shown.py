"""Recordings in the app: scrubbing, looking ahead, resuming at the viewed round, and the figures of drawn trees."""

from functools import partial
from pathlib import Path

import pytest

from decoder.events import Event, Summary, encode
from dynatui.record.reader import Runs
from dynatui.screen.canvas import Canvas
from screenshots.make import standing_at
from tests.dynatui.screen.shown_app import replayed, screen_text
from tests.dynatui.screen.transcripts import transcripts
from tests.dynatui.scripted_runs import delayed_run, drawn_round, rounds_shown, runs_of, story

playing = partial(replayed, seconds=1.0)


async def test_a_click_ahead_on_the_time_line_of_a_recording_looks_ahead_and_plays_on_from_there() -> None:
    async with replayed(runs_of(story())) as (app, _, pilot):
        line = next(line for line in screen_text(app).splitlines() if "◀" in line)
        y = screen_text(app).splitlines().index(line)
        await pilot.click(offset=(line.index("▶") - 2, y))
        assert "looking ahead" in screen_text(app)
        assert app.scene.place.round >= 5
        await pilot.press("P")
        assert app.viewpoint.live
        assert app.viewpoint.work.rounds("dynatree") >= 5


async def test_looking_back_what_comes_later_stays_there_and_is_dim() -> None:
    async with replayed(runs_of(story())) as (app, _, pilot):
        await pilot.press("G", "left", "left", "left", "left")
        assert app.scene.place.round == 2
        text, line = (app.query_one(f"#{name}", Canvas)._rows for name in ("text", "timeline"))
        assert "atatime" in "".join(text for row in text for text, ink in row if ink == "ghost")
        assert any(ink == "ghost" for row in line for _, ink in row)


@pytest.mark.parametrize("key", ["space", "P"])
@pytest.mark.parametrize("looks", [("home", "right", "right"), ("left", "right"), ()], ids=["back", "reached", "none"])
async def test_the_view_goes_on_from_the_place_that_is_looked_at_and_then_with_the_recording(
    key: str, looks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing() as (app, source, pilot):
        await pilot.press("P", *looks)
        place = 2 if "home" in looks else rounds_shown(source.records)
        assert (source.paused, app.viewpoint.live) == (True, not looks)
        if looks != ("home", "right", "right"):
            monkeypatch.setattr(source, "seek_round", lambda *_: pytest.fail("was told again"))
        await pilot.press(key)
        assert (source.paused, app.viewpoint.live) == (False, True)
        assert rounds_shown(source.records) == place
        source.play(0.5)
        app.tick()
        assert app.scene.place.round == rounds_shown(source.records) > place


async def test_a_replay_has_the_light_the_chances_and_the_depths_and_follows_a_look_back(tmp_path: Path) -> None:
    told: list[Event] = [delayed_run(("delayed",)), *(drawn_round(number, generator=0.1) for number in range(40))]
    path = tmp_path / "drawn.jsonl"
    path.write_bytes(b"".join(map(encode, [*told, Summary(methods={})])))
    app = standing_at(Runs(path), 1.0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("9")
        page = screen_text(app)
        for words in ("● losslessness light: green", "over 40 rounds", "traversal, delayed (2, 1, 2)", "x2 62%"):
            assert words in page
        await pilot.press("home", *["right"] * 3)
        assert "too few tokens to judge: 9 of 50" in screen_text(app)
        assert "over 3 rounds" in screen_text(app)


test_transcript = transcripts(
    {
        "a recording is scrubbed beyond what was played": (playing, "shift+right", "home"),
        "a recording plays on from where one looks": (playing, "home right right", "space", []),
        "a recording is stepped by rounds": (playing, ". ."),
        "in a recording the end is its end and not what was played": (
            partial(replayed, runs_of(story()), 0.25),
            *("G", "home right"),
        ),
    }
)
