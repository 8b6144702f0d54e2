"""Laws of all panels: size, ASCII, cost, numbers with their zero, and one name and one wording for each figure."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.analysis.metrics import FIGURES
from decoder.events import Figures
from decoder.knobs import KnobInfo
from decoder.methods import all_knobs
from dynatui.number_format import short
from dynatui.record.reader import read_events
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
    status,
    tree,
    versus,
    what_if,
    work,
)
from dynatui.render.ink import Ink, Rows, in_ascii, width_of
from dynatui.render.palette import palette
from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel
from dynatui.result import aligned, table
from dynatui.screen.canvas import DrawPanel
from dynatui.sources.source import EXPLANATIONS, LABELS
from dynatui.state.run_state import Prompt, RunState
from dynatui.state.timeline import TimelinePosition
from dynatui.state.turn_effect import signed
from tests.dynatui.render.extreme_scenes import SCENES, SIZES, is_drawn, scenes
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import (
    lines,
    plain_round,
    running,
    sampled_round,
    sampled_run,
    state_of,
    story,
    text_of,
)


def text(scene: Scene, width: int, height: int) -> Rows:
    return TextPanel()(scene, width, height)


def mask(scene: Scene, width: int, height: int) -> Rows:
    return tree.tree(replace(scene, mask=True), width, height)


PAINTERS: Mapping[str, DrawPanel] = {
    painter.__name__: painter
    for painter in (
        *(cards.cards, curves.acceptance, curves.depth, curves.trends, drawer.drawer, guide.guide, inspect.inspect),
        *(log.log, prompts.prompts, race.race, sampling.sampling, sliders.knobs, status.essentials, status.footer),
        *(status.status, status.tabs, text, status.timeline, mask, tree.tree, what_if.whatif, work.work),
    )
}
FEW_ROWS = {"cards", "essentials", "footer", "status", "tabs", "timeline", "trends"}
WITHOUT_FOREIGN_TEXT = {"inspect", "mask", "text", "tree", "work"}
WIDTHS = (40, 60, 76, 120, 200)
UNNAMED = re.compile(r"(?i)(?<!depth )acceptance(?! rate| length)|(?<!depth )acc\.(?! rate)")
BARE = re.compile(r"(?<![\w.)])\.\d")
SAMPLED = state_of(
    [sampled_run(), *map(sampled_round, range(12)), *(plain_round("ar", number) for number in range(40))]
)

every_panel = pytest.mark.parametrize("painter", PAINTERS.values(), ids=PAINTERS)


@every_panel
@settings(max_examples=60, deadline=None)
@given(scene=scenes(), size=SIZES)
def test_every_panel_fits_every_size_whatever_it_shows(painter: DrawPanel, scene: Scene, size: tuple[int, int]) -> None:
    rows = painter(scene, *size)
    assert {width_of(row) for row in rows} == {size[0]}
    assert len(rows) == size[1] or (len(rows) in (1, 3) and painter.__name__ in FEW_ROWS)
    assert not any(ord(character) < 32 or character in "\x9b\u202e" for row in rows for character in text_of(row))
    assert painter.__name__ not in WITHOUT_FOREIGN_TEXT or is_drawn(rows, scene, size)


@every_panel
def test_in_ascii_every_panel_is_ascii(painter: DrawPanel) -> None:
    for scene in (SCENES["running"], SCENES["done"], SCENES["no knobs yet"], SCENES["drawn"]):
        held = replace(scene, symbols="ascii", place=TimelinePosition(2, 6, 0.1, live=False))
        for size in ((30, 3), (76, 11), (120, 40)):
            assert all(line.isascii() for line in lines(in_ascii(painter(held, *size))))


@every_panel
def test_every_panel_is_cheap(painter: DrawPanel) -> None:
    events = list(read_events(Path("tests/traces/demo.jsonl")))
    scene = Scene(state_of([Prompt(1, 5), *events[:400]]))
    took = []
    for _ in range(5):
        # CPU time of this thread, so that other programs do not count.
        began = time.thread_time()
        painter(scene, 120, 11)
        took.append(time.thread_time() - began)
    assert min(took) < 0.010, "a tenth of a frame's time"


def test_every_ink_has_a_style_and_what_carries_meaning_an_attribute() -> None:
    styles = palette({"foreground": "ansi_default"}, color=False)
    assert set(styles) == set(get_args(Ink))
    assert styles["cursor"].bold


@given(st.floats(), st.integers(0, 4), st.sampled_from([*all_knobs().values()]), st.floats(0, 1))
def test_a_number_below_one_begins_with_its_zero(value: float, digits: int, knob: KnobInfo, share: float) -> None:
    for written in (short(value, digits), signed(value, digits), knob.written(share)):
        assert not BARE.search(written)


@pytest.mark.parametrize("state", [state_of(story()), SAMPLED], ids=["greedy", "sampled"])
@every_panel
def test_no_panel_writes_a_number_without_its_zero(painter: DrawPanel, state: RunState) -> None:
    scene = Scene(state, place=TimelinePosition(round=2, rounds=4, seconds=0.25))
    for seen in (scene, replace(scene, cursor=1), replace(scene, pending={"temperature": 0.7, "tau_h": 0.05})):
        for size in ((40, 10), (80, 24), (150, 30)):
            assert not BARE.findall("\n".join(lines(painter(seen, *size))))


def drawn() -> Iterator[str]:
    for painter in PAINTERS.values():
        for scene in SCENES.values():
            yield from (" ".join(lines(painter(scene, width, height))) for width in WIDTHS for height in (1, 8, 40))
    state = running().state
    yield from (" ".join(lines(versus.table((state, state), (width, 9)))) for width in WIDTHS)
    yield "\n".join(aligned(table({"dynatree": Figures()})))
    yield " ".join((*LABELS.values(), *EXPLANATIONS.values(), *(figure.label for figure in FIGURES)))


def test_no_panel_speaks_of_acceptance_without_saying_of_what() -> None:
    texts = [re.sub("[│\\s]+", " ", text) for text in drawn()]
    assert not {text[found.start() - 30 : found.end() + 20] for text in texts for found in UNNAMED.finditer(text)}
    assert sum("acceptance" in text for text in texts) > 50


def test_curves_and_what_moves_history_name_their_rounds_at_every_width() -> None:
    scene = running()
    for width in range(40, 200, 8):
        for seen in (scene, SCENES["compared"]):
            assert "last 3" in lines(curves.acceptance(seen, width, 8))[0]
            assert "last 3" in lines(curves.trends(seen, width, 8))[0]
        assert "last 3" in text_of(sliders.history_line(scene.state.lane, width)) or width >= 120


test_golden = golden({"cards tell the run from the last rounds": lambda: cards.cards(running(), 160, 3)})
