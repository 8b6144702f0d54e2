"""Each name means one figure: acceptance is always shown with its exact kind."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from decoder.analysis.metrics import FIGURES
from decoder.events import Figures
from dynatui.record.transcript import table
from dynatui.render import (
    cards,
    curves,
    drawer,
    guide,
    inspect,
    log,
    prompts,
    race,
    sampling,
    sliders,
    tree,
    versus,
    what_if,
    work,
)
from dynatui.screen.widgets.canvas import DrawPanel
from dynatui.sources.source import EXPLANATIONS, LABELS
from dynatui.state.ab_comparison import Pin
from tests.dynatui.render.extreme_scenes import extreme_scenes
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, running, text_of

PAINTERS: tuple[DrawPanel, ...] = (
    cards.cards,
    curves.acceptance,
    curves.depth,
    curves.trends,
    drawer.drawer,
    guide.guide,
    inspect.inspect,
    log.log,
    prompts.prompts,
    race.race,
    sampling.sampling,
    sliders.knobs,
    tree.tree,
    what_if.whatif,
    work.work,
)
WIDTHS = (40, 60, 76, 120, 200)
UNNAMED = re.compile(r"(?i)(?<!depth )acceptance(?! rate| length)|(?<!depth )acc\.(?! rate)")


def drawn() -> Iterator[str]:
    for painter in PAINTERS:
        for scene in extreme_scenes().values():
            yield from (" ".join(lines(painter(scene, width, height))) for width in WIDTHS for height in (1, 8, 40))
    state = running().state
    yield from (" ".join(lines(versus.table((state, state), (width, 9)))) for width in WIDTHS)
    yield "\n".join(table({"dynatree": Figures()}))
    yield " ".join((*LABELS.values(), *EXPLANATIONS.values(), *(figure.label for figure in FIGURES)))


def test_no_panel_speaks_of_acceptance_without_saying_of_what() -> None:
    texts = [re.sub("[│\\s]+", " ", text) for text in drawn()]
    assert not {text[found.start() - 30 : found.end() + 20] for text in texts for found in UNNAMED.finditer(text)}
    assert sum("acceptance" in text for text in texts) > 50


@pytest.mark.parametrize("painter", [curves.acceptance, curves.trends])
def test_curves_name_the_rounds_that_they_are_means_of(painter: DrawPanel) -> None:
    for width in range(40, 200, 8):
        state = running().state
        for scene in (running(), replace(running(), pinned=Pin.of(state, state.watched))):
            assert "last 3" in lines(painter(scene, width, 8))[0]


def test_what_moves_history_names_its_rounds_in_every_wording() -> None:
    lane = running().state.lane
    assert all("last 3" in text_of(sliders.history_line(lane, width)) for width in range(40, 120, 8))


@pytest.mark.parametrize("width", [40, 76, 120])
def test_tables_of_whole_runs_say_so(width: int) -> None:
    state = running().state
    assert "whole run" in lines(prompts.prompts(running(), max(width, 76), 12))[0]
    assert any("run  " in row for row in lines(versus.table((state, state), (width, 9))))
    assert any("whole run" in row for row in lines(race.race(running(), max(width, 60), 40)))


test_golden = golden(
    {
        "cards tell the run from the last rounds": lambda: cards.cards(running(), 160, 3),
    }
)
