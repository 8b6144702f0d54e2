"""On the screen, a line reports the effect of each knob turn."""

import pytest

from decoder.knobs import KnobName
from dynatui.state.run_state import Record
from tests.dynatui.screen.shown_app import FULL, TABBED, screen_text, shown
from tests.dynatui.scripted_runs import run
from tests.dynatui.turned_runs import rounds, turned

WITHIN = 12
OFF = turned("history", 0, 1, 0)


@pytest.mark.parametrize("size", [FULL, TABBED], ids=["full", "tabbed"])
async def test_from_one_end_to_the_other_each_slider_has_its_line_with_an_interval_soon(size: tuple[int, int]) -> None:
    turns: list[tuple[KnobName, str, float, float]] = [
        ("d0", "D0 1 → 7", 1, 7),
        ("tau_h", "τh 0.41 → 1", 0.41, 1),
        ("tau_l", "τl 0.01 → 0.99", 0.01, 0.99),
    ]
    async with shown([run(), OFF, *rounds(range(WITHIN))], size=size) as (app, source, _):
        for place, (name, told, old, new) in enumerate(turns, 1):
            first = WITHIN * place
            source.records.append(turned(name, first, old, new))
            source.records += rounds(range(first, first + WITHIN), nodes=7 + place)
            app.read_events()
            app.draw(everything=True)
            assert f"{told}: nodes {6 + place} → {7 + place}, L-bar" in screen_text(app)
            assert " to +" in screen_text(app)


async def test_a_look_back_shows_the_line_of_that_place() -> None:
    records: list[Record] = [
        run(),
        OFF,
        *rounds(range(12)),
        turned("d0", 12, 2, 5),
        *rounds(range(12, 24), nodes=10),
        turned("tau_h", 24, 0.9, 0.8),
        *rounds(range(24, 36), nodes=8),
    ]
    async with shown(records, size=FULL) as (app, _, pilot):
        assert "τh 0.9 → 0.8: nodes 10 → 8" in screen_text(app)
        await pilot.press("shift+left", "left", "left", "left")
        assert "D0 2 → 5: nodes 7 → 10" in screen_text(app)
        await pilot.press("G")
        assert "τh 0.9 → 0.8: nodes 10 → 8" in screen_text(app)
