"""Tests of what every panel writes alike: numbers with their zero, and the speed relative to plain decoding."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from decoder.knobs import KnobInfo
from decoder.methods import all_knobs
from dynatui.number_format import short
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
    timeline,
    tree,
    what_if,
    work,
)
from dynatui.render.ink import Rows
from dynatui.render.scene import Scene
from dynatui.screen.widgets.canvas import DrawPanel
from dynatui.state.ab_comparison import signed
from dynatui.state.run_state import RunState
from dynatui.state.timeline import TimelinePosition
from tests.dynatui.scripted_runs import lines, plain_round, run, sampled_round, sampled_run, state_of, story

BARE = re.compile(r"(?<![\w.)])\.\d")
PANELS: Sequence[DrawPanel] = (
    cards.cards, curves.acceptance, curves.depth, curves.trends, drawer.drawer, guide.guide, inspect.inspect, log.log,
    prompts.prompts, race.race, sampling.sampling, sliders.knobs, status.status, status.essentials, timeline.timeline,
    tree.tree, what_if.whatif, work.work,
)  # fmt: skip
SAMPLED = state_of(
    [sampled_run(), *map(sampled_round, range(12)), *(plain_round("ar", number) for number in range(40))]
)


@given(st.floats(), st.integers(0, 4))
def test_a_figure_below_one_begins_with_its_zero(value: float, digits: int) -> None:
    assert not BARE.search(short(value, digits))
    assert not BARE.search(signed(value, digits))


@given(st.sampled_from([*all_knobs().values()]), st.floats(0, 1))
def test_a_knob_below_one_begins_with_its_zero(knob: KnobInfo, value: float) -> None:
    assert not BARE.search(knob.written(value))


@pytest.mark.parametrize("state", [state_of(story()), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("size", [(40, 10), (80, 24), (150, 30)])
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.__name__)
def test_no_panel_writes_a_number_without_its_zero(panel: DrawPanel, size: tuple[int, int], state: RunState) -> None:
    scene = Scene(state, place=TimelinePosition(round=2, rounds=4, seconds=0.25))
    for shown in (scene, replace(scene, cursor=1), replace(scene, pending={"temperature": 0.7, "tau_h": 0.05})):
        assert not BARE.findall("\n".join(lines(panel(shown, *size))))


@pytest.mark.parametrize("speed", [0.8, 1.0, 1.63])
def test_headline_tile_and_race_give_one_figure_in_one_wording(speed: float) -> None:
    own = (structs.replace(plain_round("linear", number), t=0.02 * (number + 1) / speed) for number in range(60))
    in_turns = chain.from_iterable(zip(own, (plain_round("ar", number) for number in range(60)), strict=True))
    scene = Scene(state_of([run(("linear", "ar")), *in_turns]))
    figure = f"{speed:.2f}x"
    words = f"{figure} the speed of plain decoding"
    assert words in text(status.status(scene, 200, 1))
    assert f"{figure} plain decoding" in text(cards.cards(scene, 220, 3))
    assert figure in text(race.race(scene, 80, 12))
    assert "as fast as" not in text(race.race(scene, 120, 30))


def text(rows: Rows) -> str:
    return "\n".join(lines(rows))
