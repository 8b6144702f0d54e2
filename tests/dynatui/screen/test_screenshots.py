"""The pictures of the README equal the program's drawings of the recorded trace."""

from collections import Counter

import pytest

from decoder.events import SCHEMA, Knob, Round, Run
from decoder.tree import depths
from dynatui.record.reader import Runs
from dynatui.sources.playback import TraceSource
from screenshots import animate
from screenshots.make import HERE, SHARE_OF_RUN, SHOTS, TRACE, Shot, picture


@pytest.fixture(autouse=True)
def _in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
async def test_a_screenshot_is_current(shot: Shot) -> None:
    kept = (HERE / f"{shot.name}.svg").read_text(encoding="utf-8")
    assert await picture(Runs(TRACE), shot) == kept, "python screenshots/make.py draws them anew"


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
