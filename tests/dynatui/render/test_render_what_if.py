"""The what-if panel: its contents and layout, and that it claims no more than the data support."""

from dataclasses import replace
from functools import partial

import pytest
from msgspec import structs

from decoder.analysis.what_if import Grid, GridCell, WhatIf
from dynatui.render import palette
from dynatui.render.ink import Rows, in_ascii
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.text import HOT
from dynatui.render.what_if import whatif
from dynatui.render.words import remedy
from dynatui.render.work import work
from dynatui.state.run_state import RunState, apply
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, plain_round, run, running, state_of, tree_round

SURE = GridCell(20, 20, 3.0, 20, 9.0)
TIMED = replace(SURE, seconds=0.02, rates=(140.0, 161.0), gains=(1.0, 1.0))
TAU_H = (0.5, 0.6, 0.7, 0.8, 0.9)
TAU_L = (0.2, 0.3, 0.4, 0.5, 0.6)
DEPTHS = (3.0, 4.0, 5.0, 6.0, 7.0)


def _what_if(usual: GridCell = SURE, **changed: GridCell) -> WhatIf:
    def cells(table: str) -> tuple[tuple[GridCell, ...], ...]:
        return tuple(tuple(changed.get(f"{table}{row}{column}", usual) for column in range(5)) for row in range(5))

    tau_h, tau_l = (
        Grid("tau_h", "d0", TAU_H, DEPTHS, cells("h"), (2, 2)),
        Grid("tau_l", "d0", TAU_L, DEPTHS, cells("l"), (2, 2)),
    )
    return WhatIf((tau_h, tau_l), 20, tau_h.cells[2][2])


def _one(down: str, across: str, rows: tuple[float, ...]) -> WhatIf:
    cells = tuple(
        tuple(replace(TIMED, tokens=3 + row / 10, seconds=0.02 - 0.001 * row) for _ in range(5)) for row in range(5)
    )
    return WhatIf((Grid(down, across, rows, DEPTHS, cells, (1, 2)),), 20, cells[1][2])


def _panel(found: WhatIf | None, width: int = 80, height: int = 14) -> Rows:
    return whatif(replace(running(), whatif=found), width, height)


def _said(found: WhatIf) -> str:
    return " ".join(line.strip("│ ").strip() for line in lines(_panel(found, 120, 18)))


DOUBTFUL, BOUND, OTHER_BOUND = (
    GridCell(20, 2, 3.0, 2, 9.0),
    GridCell(20, 15, 3.4, 15, 12.0),
    GridCell(20, 15, 3.1, 15, 9.0),
)
QUICK = replace(TIMED, tokens=2.7, seconds=0.015, rates=(171.0, 190.0), gains=(1.13, 1.28))
PART = replace(QUICK, judged=15, drafted_judged=15, levels_exact=False)
FASTER = _what_if(TIMED, h31=QUICK)
HEATED = _what_if(h20=replace(SURE, tokens=1.0), h21=replace(SURE, tokens=2.0), h24=replace(SURE, tokens=4.0))


TOLD = {
    "the fastest is told although another has more tokens a round": _what_if(
        TIMED, l04=replace(TIMED, tokens=3.4, seconds=0.04), h31=QUICK
    ),
    "one that may be no faster is not called so": _what_if(TIMED, h31=replace(QUICK, gains=(0.97, 1.4))),
    "none is faster": _what_if(TIMED, l04=replace(TIMED, tokens=3.01)),
    "one that is at least as fast as told": _what_if(TIMED, h31=PART),
    "without history": replace(_what_if(TIMED, h31=QUICK), by_history=True),
    "without history, by trees known in part": replace(_what_if(TIMED, h31=PART), by_history=True),
    "knobs that were turned, so that their own trees are known in part": _what_if(
        replace(PART, gains=None), h31=replace(QUICK, gains=None)
    ),
    "the most tokens without history": replace(_what_if(l04=replace(SURE, tokens=3.4)), by_history=True),
    "the most tokens": _what_if(l04=replace(SURE, tokens=3.4, drafted=12.0)),
    "a gain that is a bound": _what_if(h33=BOUND),
    "two bounds are not compared": _what_if(h22=OTHER_BOUND, l22=OTHER_BOUND, h33=GridCell(20, 15, 3.4, 15, 9.0)),
    "the same for less": _what_if(h02=replace(SURE, drafted=5.0)),
    "nothing is better": _what_if(),
    "too little is known": _what_if(h22=DOUBTFUL, l22=DOUBTFUL),
    "an automatic number of nodes is taken for granted": replace(_what_if(), by_costs=True),
}


def limited(found: WhatIf | None) -> Scene:
    rounds = [structs.replace(tree_round(number), draft_s=0.015) for number in range(40)]
    plain = [plain_round("ar", number) for number in range(40)]
    return replace(running(), state=state_of([run(), *rounds, *plain]), whatif=found)


@pytest.mark.parametrize("found", [None, _what_if(TIMED), FASTER])
def test_race_work_and_what_if_name_the_same_remedy(found: WhatIf | None) -> None:
    scene = limited(found)
    helps = remedy(scene)
    assert helps is not None
    panels = {draw: " ".join(" ".join(lines(draw(scene, 150, 40))).split()) for draw in (race, work, whatif)}
    assert helps.helps in panels[race]
    assert f"What would help: {helps.whole}." in panels[work]
    if found is not None:
        assert helps.helps in panels[whatif] or helps.hint in panels[whatif]


def test_smaller_trees_are_no_remedy_where_no_other_size_is_estimated_to_be_faster() -> None:
    unknown, settled = (remedy(limited(found)) for found in (None, _what_if(TIMED)))
    assert unknown is not None
    assert settled is not None
    assert ("trees" in unknown.whole, "trees" in settled.whole) == (True, False)


def test_the_most_tokens_have_the_colour_of_what_is_good_and_none_that_of_what_is_slow() -> None:
    inks = {text: ink for row in _panel(HEATED) for text, ink in row}
    roles = {text: palette._ATTRIBUTES[inks[text]][0] for text in ("▁1.00", "▃2.00", "▅3.00", "▇4.00")}
    assert roles["▇4.00"] == palette._ATTRIBUTES["good"][0]
    assert not set(roles.values()) & {palette._ATTRIBUTES[ink][0] for ink in HOT[-2:]}


SLOW = replace(TIMED, seconds=0.04, rates=(70.0, 80.0), gains=(0.45, 0.56))


test_golden = golden(
    {
        **{name: partial(_said, found) for name, found in TOLD.items()},
        "every cell shows tokens a round and a second and the knobs stand in brackets": lambda: _panel(
            _what_if(TIMED, h00=replace(TIMED, tokens=2.0), h24=replace(TIMED, tokens=4.0, seconds=0.04), h31=PART)
        ),
        "with history no cell has the knobs of now": lambda: _panel(
            replace(_what_if(TIMED, h31=PART), by_history=True), 120
        ),
        "a bound has a plus and what is not known a question mark": lambda: _panel(
            _what_if(h20=GridCell(20, 12, 3.2, 11, 9.5), h21=GridCell(20, 4, 9.0, 4, 30.0))
        ),
        "a narrow panel keeps the columns around the knobs and says that it is an estimate": lambda: [
            _panel(_what_if(), width) for width in (40, 36)
        ],
        "a chain has a table of its length and its least probability": lambda: [
            _panel(_one("p_min", "k", (0.2, 0.3, 0.4, 0.5, 0.6)), width) for width in (100, 50)
        ],
        "a low panel keeps the speeds and leaves out their ranges": lambda: _panel(_what_if(TIMED, h31=PART), 68, 9),
        "a beam has a table of its levels and its nodes": lambda: _panel(
            _one("draft_tokens", "eagle_steps", (4.0, 6.0, 8.0, 10.0, 12.0)), 100
        ),
        "what is missing is explained": lambda: [
            _panel(None, 120),
            whatif(Scene(apply(apply(RunState(), run(("ar",))), plain_round("ar", 0))), 78, 8),
        ],
        "as many tables as there is room for": lambda: [
            _panel(_what_if(), *size) for size in ((160, 14), (100, 14), (80, 24), (80, 14), (60, 4))
        ],
        "in ascii the heat can still be told": lambda: in_ascii(_panel(HEATED)),
        "the chosen cell has its tokens a second with their range and the key that turns the knobs to it": lambda: [
            whatif(
                replace(running(), whatif=_what_if(TIMED, h31=QUICK, l04=SLOW), whatif_choice=choice or None), 150, 18
            )
            for choice in ({}, {"tau_l": 0.2, "d0": 7.0}, {"tau_h": 0.7, "d0": 5.0}, {"tau_h": 0.1, "d0": 1.0})
        ],
    }
)
