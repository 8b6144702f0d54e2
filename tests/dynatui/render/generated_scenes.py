"""Generated scenes and panel sizes for painters, including states that no good run has."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Event
from decoder.session.steering import Stage, StageName
from dynatui.render.ink import Rows, in_ascii, width_of
from dynatui.render.scene import HEATS, Scene
from dynatui.state.run_state import RunState
from tests.dynatui.scripted_runs import (
    HOSTILE,
    delayed_run,
    drawn_round,
    lines,
    plain_round,
    run,
    state_of,
    story,
    tree_round,
)

SIZES = st.tuples(st.integers(1, 200), st.integers(1, 60))


def _hostile() -> list[Event]:
    absurd = structs.replace(
        tree_round(7, HOSTILE),
        t=1e308,
        draft_s=1e308,
        verify_s=None,
        logprobs=[math.nan, 1e300, -1e300, -math.inf, math.inf, 5.0],
        pieces=[HOSTILE, "", "\n", "世界", "\u0301", " " * 40],
    )
    empty = structs.replace(plain_round("dynatree", 7), t=1e308, text="", committed=[])
    return [run(), absurd, empty, structs.replace(tree_round(2**53, "\n\n"), t=0.0, accepted=[0, 1, 3])]


STATES: Sequence[RunState] = (
    RunState(),
    state_of([run()]),
    state_of(story()),
    state_of(story()[:-3]),
    state_of([run(("ar",)), plain_round("ar", 0), plain_round("ar", 1)]),
    state_of([run(("hf",)), structs.replace(plain_round("hf", 0), draft_forwards=None, text=" several at once\n")]),
    state_of([run(("alg1",)), structs.replace(tree_round(0), method="alg1", accepted=[0, 1], knobs=None)]),
    state_of([run(("alg1",)), structs.replace(tree_round(0), method="alg1", accepted=[], committed=[5], text="x")]),
    state_of([delayed_run(), drawn_round(0), drawn_round(1, told=False), drawn_round(2)]),
    state_of(_hostile()),
)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    state = draw(st.sampled_from(STATES))
    scene = Scene(
        state,
        heat=draw(st.sampled_from(HEATS)),
        cursor=draw(st.none() | st.integers(-2, len(state.lane.tokens) + 1)),
        symbols=draw(st.sampled_from(("braille", "block", "ascii"))),
    )
    name = draw(st.none() | st.sampled_from(get_args(StageName)))
    return scene if name is None else replace(scene, stage=Stage(name, tree_round(9)))


def is_drawn(rows: Rows, scene: Scene, size: tuple[int, int]) -> bool:
    drawn = in_ascii(rows) if scene.symbols == "ascii" else rows
    plain = scene.symbols != "ascii" or scene.state is STATES[-1] or all(line.isascii() for line in lines(drawn))
    return [width_of(row) for row in drawn] == [size[0]] * size[1] and plain
