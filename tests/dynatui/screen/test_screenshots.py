"""The pictures of the README are what the program draws from the recorded trace."""

import pytest

from dynatui.keep.recording import read
from screenshots import animate
from screenshots.make import HERE, SHOTS, TRACE, Shot, picture


@pytest.fixture(autouse=True)
def _in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
async def test_a_screenshot_is_current(shot: Shot) -> None:
    kept = (HERE / f"{shot.name}.svg").read_text(encoding="utf-8")
    assert await picture(read(TRACE), shot) == kept, "python screenshots/make.py draws them anew"


def test_no_picture_is_left_over() -> None:
    assert {path.stem for path in HERE.glob("*.svg")} == {*(shot.name for shot in SHOTS), animate.FILE.stem}
