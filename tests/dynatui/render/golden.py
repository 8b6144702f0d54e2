"""Golden texts of panels: a table of named panels becomes one test for each name.

After an intended change, run `pytest --snapshot-update` on the file and check the texts in `__snapshots__`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from dynatui.render.ink import Row
from tests.dynatui.scripted_runs import text_of


def golden(panels: Mapping[str, Callable[[], Any]]) -> Callable[..., None]:
    @pytest.mark.parametrize("name", panels)
    def test_golden(name: str, snapshot: object) -> None:
        assert shown(panels[name]()) == snapshot

    return test_golden


def shown(value: Any) -> str:
    """The text of a row, of rows, of wordings, or of several of these below each other."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        return str(value)
    is_row = all(isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str) for part in value)
    return text_of(value) if isinstance(value, tuple) and is_row else "\n".join(map(shown, value))


def inked(rows: Sequence[Row]) -> list[str]:
    """The words of each row, each after the name of its ink."""
    return [" ".join(f"<{ink}> {text.strip()}" for text, ink in row if text.strip()) for row in rows]
