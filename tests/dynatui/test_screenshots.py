"""The pictures of the README are what the program draws from the recorded trace."""

import pytest

from dynatui.recording import read
from screenshots.make import HERE, SIZES, TRACE, picture


@pytest.fixture(autouse=True)
def _in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_a_screenshot_is_current(size: tuple[int, int]) -> None:
    width, height = size
    kept = (HERE / f"dynatui-{width}x{height}.svg").read_text(encoding="utf-8")
    assert await picture(read(TRACE), size) == kept, "python screenshots/make.py draws them anew"
