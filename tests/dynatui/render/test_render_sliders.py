"""All knobs, the row of sliders, clicks on them, the effect of the last turn, and tables of what other knobs give."""

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from decoder.analysis.what_if import Grid, GridCell, WhatIf
from decoder.events import Event, Knob, Limit, Round
from decoder.knobs import KnobName
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.run.config import RunConfig
from dynatui.keymap import KEYMAP
from dynatui.knobs import info, owner, rules_in_force, rules_of, sampling_in_force
from dynatui.render import cards, drawer, palette, sliders
from dynatui.render.ink import Rows, in_ascii, width_of
from dynatui.render.race import race
from dynatui.render.scene import Scene
from dynatui.render.sliders import consequence_line, notes
from dynatui.render.text import HOT
from dynatui.render.what_if import whatif
from dynatui.render.words import limited, moved_back, remedy
from dynatui.render.work import work
from dynatui.session import DEMO
from dynatui.state.run_state import RunState, apply
from tests.dynatui.compared_runs import compared
from tests.dynatui.render.extreme_scenes import SCENES
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, plain_round, run, running, sampled_run, state_of, text_of, tree_round
from tests.dynatui.turned_runs import rounds, turned

FULL = {
    "d0": 5.0,
    "d_max": 8,
    "branching": [1, 2, 3],
    "tau_h": 0.9,
    "tau_l": 0.4,
    "rho_stop": 0.1,
    "rho_deep": 0.5,
    "tau": 0.05,
    "n_max": 256,
    "selection": "best",
    "history": True,
    "window": 3,
    "target_acceptance": 0.7,
}
METHODS: dict[str, dict[str, Any]] = {
    "dynatree": FULL,
    "auto": {name: value for name, value in FULL.items() if name not in ("n_max", "selection")},
    "linear": {"k": 5},
    "fixed": {"depth": 5, "branching": 2, "tau": 0.05, "n_max": 256},
    "ar": {},
}


def raced(*turns: tuple[KnobName, float], watched: str = "dynatree") -> RunState:
    begins = structs.replace(run(), methods=METHODS)
    told = [Knob(method=watched, round=1, name=name, old=0, new=value, source="user") for name, value in turns]
    return structs.replace(state_of([begins, tree_round(0), *told]), chosen=watched)


def opened(state: RunState, width: int = 120, height: int = 20, **view: Any) -> Rows:
    return drawer.drawer(Scene(state, **view), width, height)


def within(name: KnobName, row: str, x: int) -> float:
    track = next(found for found in re.finditer("[─·●○┼]+", row) if found.start() <= x < found.end())
    span = {"n_max": 1023.0, "d0": 6.0, "sharpness": 3.5, "temperature": 2.0}.get(
        name, 1.0 if info(name).step < 1 else 31.0
    )
    return (info(name).step + span / max(1, len(track.group()) - 1)) / 2 + 1e-6


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 15), st.integers(70, 200), st.integers(3, 24), st.floats(0, 1), st.data())
def test_a_click_where_a_knob_is_drawn_asks_for_its_value(
    place: int, width: int, height: int, share: float, data: st.DataObject
) -> None:
    state = raced()
    name = drawer.listed_knobs(state)[place]
    rules, shared = rules_in_force(state), sampling_in_force(state)
    assert rules is not None
    assert shared is not None
    low, high = {**rules.ends(), **shared.ends()}[name]
    value = low + share * (high - low)
    value = float(round(value)) if info(name).integer else value
    scene = Scene(state, pending={name: value}, slider=name)
    rows = lines(drawer.drawer(scene, width, height))
    y = next(y for y, row in enumerate(rows) if f"▸ {info(name).symbol} " in row)
    x = rows[y].index("○")
    found = drawer.hit(scene, width, height, x, y)
    assert found is not None
    assert found[0] == name
    assert abs(found[1] - value) <= within(name, rows[y], x)
    beside = data.draw(st.sampled_from([0, 1, width - 1, width + 5]))
    assert drawer.hit(scene, width, height, beside, y) is None
    assert drawer.hit(scene, width, height, x, height + 1) is None


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["tau_h", "tau_l", "d0"]), st.integers(60, 200), st.integers(1, 8), st.floats(0.01, 1))
def test_a_click_on_a_slider_in_the_row_asks_for_what_is_drawn_there(
    name: KnobName, width: int, height: int, share: float
) -> None:
    value = 1 + 6 * share if name == "d0" else share
    scene = replace(running(), pending={name: value})
    rows = lines(sliders.knobs(scene, width, height))
    y = next(y for y, row in enumerate(rows) if "○" in row)
    x = rows[y].index("○")
    found = sliders.hit(scene, width, height, x, y)
    assert found is not None
    assert found[0] == name
    assert abs(found[1] - value) <= within(name, rows[y], x)


def test_a_click_on_the_switch_turns_history_off_and_on_again() -> None:
    x = lines(sliders.knobs(running(), 120, 4))[1].index("history")
    asked = replace(running(), pending={"history": 0.0})
    hits = [sliders.hit(scene, 120, 4, x, y) for scene, y in ((running(), 1), (asked, 1), (running(), 2))]
    assert hits == [("history", 0.0), ("history", 1.0), None]


def test_without_knobs_a_click_asks_for_nothing() -> None:
    scene = Scene(state_of([run(("ar",)), plain_round("ar", 0)]))
    for x in range(80):
        hits = sliders.hit(scene, 80, 4, x, 1), drawer.hit(scene, 80, 9, x, 3), drawer.hit(Scene(), 80, 9, x, 1)
        assert hits == (None, None, None)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([*SCENES.values()]), *(st.integers(*ends) for ends in ((1, 200), (1, 40), (-3, 210), (-3, 45))))
def test_a_click_anywhere_in_any_scene_is_harmless(scene: Scene, width: int, height: int, x: int, y: int) -> None:
    for hit in (sliders.hit, drawer.hit):
        found = hit(scene, width, height, x, y)
        assert found is None or RunConfig().turned(*found, owner(found[0], rules_of(scene.state.watched) or "dynatree"))


def moved(*news: float, old: float = 5.0, set_to: float = 2.0) -> RunState:
    told = [Knob(method="dynatree", round=1, name="d0", old=old, new=set_to, source="user")]
    for new in news:
        told.append(structs.replace(told[-1], round=2, old=told[-1].new, new=new, source="history"))
    return state_of([run(), tree_round(0), *told])


def history(state: RunState, width: int) -> str:
    return text_of(sliders.history_line(state.lane, width))


def last_moves() -> RunState:
    d0 = Knob(method="dynatree", round=3, name="d0", old=5.4, new=5.6, source="history")
    tau_h = Knob(method="dynatree", round=3, name="tau_h", old=0.9, new=0.88, source="history")
    return state_of([run(), *map(tree_round, range(3)), d0, tau_h])


LIMITS: Sequence[Limit | None] = (None, "cost", "d0", "d0", "rho_stop")
LIMITED = state_of(
    [run(), *(structs.replace(tree_round(number), limited_by=name) for number, name in enumerate(LIMITS))]
)
DEMO_RUN = structs.replace(sampled_run(), methods={"dynatree": asdict(DEMO)})
BACK = [turned("d0", 0, 6, 4), turned("d0", 0, 4, 4.6, source="history")]
COMPARED = {
    "too few": compared()[:60],
    "faster": compared(),
    "slower": compared(b_s=0.025),
    "unclear": compared(b_s=0.02),
    "equal settings": compared(b_s=0.02, a=DynaTree(d0=6)),
}


def ruled(events: Sequence[Round], by: Limit | None, d0: float = 5.0) -> list[Round]:
    return [structs.replace(event, limited_by=by, knobs=tree_round(event.round, d0=d0).knobs) for event in events]


def state(
    name: KnobName = "d0",
    old: float = 2,
    new: float = 5,
    *,
    by: Limit | None = "n_max",
    nodes: tuple[int, int] = (7, 7),
    count: int = 10,
    later: Sequence[Event] = (),
    **parameters: Any,
) -> RunState:
    told = run()
    own = {**told.methods["dynatree"], "history": False, **parameters}
    begun = structs.replace(told, methods={"dynatree": own, "ar": {}})
    before, after = rounds(range(12), nodes[0]), rounds(range(12, 12 + count), nodes[1], more=1)
    return state_of([begun, *before, turned(name, 12, old, new), *ruled(after, by), *later])


def line(told: RunState, width: int = 116, **seen: Any) -> str:
    return text_of(consequence_line(Scene(told, **seen), width)).rstrip()


GROWN = state(nodes=(7, 10), by="d0")
HIDING: tuple[Limit, ...] = ("n_max", "rho_stop", "cost", "length", "context")
TURN: tuple[KnobName, float, float] = ("tau_h", 0.9, 0.8)
AFTER_FEW = state_of([run(), *rounds(range(6)), turned("d0", 6, 2, 5), *rounds(range(6, 20), 10, more=1)])
TOGETHER = [turned("tau_h", 22, 0.9, 0.8), turned("tau_l", 22, 0.4, 0.3), turned("d0", 22, 5, 4)]
MOVED_ON = state(count=2, by="d0", later=ruled(rounds(range(14, 16)), "d0", d0=3.8), history=True)
LATER = rounds(range(12, 22), more=1)
MIXED = [*ruled(LATER[:4], "n_max"), *ruled(LATER[4:7], "rho_stop"), *ruled(LATER[7:], "d0")]


def test_it_is_as_wide_as_its_place() -> None:
    for width in range(1, 130):
        assert width_of(consequence_line(Scene(GROWN), width)) == width


def moved_back_later() -> RunState:
    back = Knob(method="dynatree", round=14, name="d0", old=5, new=3.8, source="history")
    return state(count=2, by="d0", later=[back, *ruled(rounds(range(14, 16)), "d0", d0=3.8)], history=True)


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


DOUBTFUL, BOUND = GridCell(20, 2, 3.0, 2, 9.0), GridCell(20, 15, 3.4, 15, 12.0)
QUICK = replace(TIMED, tokens=2.7, seconds=0.015, rates=(171.0, 190.0), gains=(1.13, 1.28))
PART = replace(QUICK, judged=15, drafted_judged=15, levels_exact=False)
FASTER = _what_if(TIMED, h31=QUICK)
HEATED = _what_if(h20=replace(SURE, tokens=1.0), h21=replace(SURE, tokens=2.0), h24=replace(SURE, tokens=4.0))


TOLD = (
    _what_if(TIMED, l04=replace(TIMED, tokens=3.4, seconds=0.04), h31=QUICK),
    _what_if(TIMED, h31=replace(QUICK, gains=(0.97, 1.4))),
    replace(_what_if(TIMED, h31=PART), by_history=True),
    _what_if(replace(PART, gains=None), h31=replace(QUICK, gains=None)),
    replace(_what_if(l04=replace(SURE, tokens=3.4)), by_history=True),
    _what_if(h33=BOUND),
    _what_if(h22=DOUBTFUL, l22=DOUBTFUL),
    replace(_what_if(), by_costs=True),
)


def limited_by_the_draft(found: WhatIf | None) -> Scene:
    rounds = [structs.replace(tree_round(number), draft_s=0.015) for number in range(40)]
    plain = [plain_round("ar", number) for number in range(40)]
    return replace(running(), state=state_of([run(), *rounds, *plain]), whatif=found)


@pytest.mark.parametrize("found", [None, _what_if(TIMED), FASTER])
def test_race_work_and_what_if_name_the_same_remedy(found: WhatIf | None) -> None:
    scene = limited_by_the_draft(found)
    helps = remedy(scene)
    assert helps is not None
    panels = {draw: " ".join(" ".join(lines(draw(scene, 150, 40))).split()) for draw in (race, work, whatif)}
    assert helps.hint in panels[race]
    assert f"What would help: {helps.whole}." in panels[work]
    if found is not None:
        assert helps.hint in panels[whatif]


def test_smaller_trees_are_no_remedy_where_no_other_size_is_estimated_to_be_faster() -> None:
    unknown, settled = (remedy(limited_by_the_draft(found)) for found in (None, _what_if(TIMED)))
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
        "a turn that is not in force yet is shown beside the value": lambda: opened(raced(), pending={"rho_stop": 0.2}),
        "a method without knobs says how to watch another": lambda: [
            opened(raced(watched="ar"), 60, 7),
            sliders.knobs(Scene(raced(watched="ar")), 60, 5),
        ],
        "a slider says what it is in force where and how far it goes": lambda: opened(raced(("n_max", 128.0))),
        "bounds follow the other knobs": lambda: opened(raced(("rho_deep", 0.3), ("d_max", 12.0))),
        "typed digits stand at the chosen slider": lambda: opened(raced(), slider="rho_stop", typed="0.7"),
        "the chosen slider explains itself even without a column for it": lambda: opened(
            raced(), 60, 8, slider="rho_stop"
        ),
        "in a narrow terminal the meaning gives way first and the bounds last": lambda: [
            opened(raced(), width, slider="tau_h") for width in (80, 44)
        ],
        "the row of sliders says what the keys do to the watched method": lambda: [
            sliders.knobs(Scene(raced(watched=watched)), 140, 5) for watched in ("dynatree", "auto", "linear", "fixed")
        ],
        "the last move of history is explained with its numbers": lambda: [
            history(last_moves(), width) for width in (160, 60)
        ],
        "history that moves back what a hand has set is named with the key that holds it": lambda: [
            history(moved(2.6, 3.1), 120),
            history(moved(2.6), 40),
        ],
        "what a turn has brought takes the place of history or rows of its own": lambda: [
            sliders.knobs(Scene(state_of(compared(*BACK))), 120, height) for height in (4, 5, 6)
        ],
        "a comparison gives the verdict of its latest look": lambda: [
            text_of(sliders.compared_line(Scene(state_of(events)), width))
            for events in COMPARED.values()
            for width in (150, 76)
        ],
        "of a recording nobody is told to turn knobs": lambda: [
            sliders.knobs(Scene(raced(), replaying=True), 120, 4),
            opened(raced(), replaying=True),
        ],
        "the drawer scrolls to the chosen slider": lambda: [
            opened(raced(), 80, height, slider=name) for name in ("tau_h", "rho_stop", "selection") for height in (3, 9)
        ],
        "history that goes on where the hand went moves nothing back": lambda: [
            moved_back(moved(*news).lane) for news in ((1.4,), (2.6, 1.4), ())
        ],
        "the limits of the last rounds are named with their shares": lambda: [
            sliders.knobs(Scene(LIMITED), 120, 5),
            opened(LIMITED),
            cards.cards(Scene(LIMITED), 200, 3),
            limited(state_of([run(), tree_round(0)]).lane),
        ],
        "a knob that history moves on names the key of history": lambda: [
            line(MOVED_ON),
            line(state(count=2, by="d0", history=True)),
            line(MOVED_ON, keys=KEYMAP.rebound({"history": ["f5"]})),
        ],
        "beside what history moved back the turn is told where there are two rows": lambda: [
            notes(Scene(told), 100, room)
            for told in (moved_back_later(), state_of(compared(*BACK)))
            for room in (2, 1, 0)
        ],
        "its signs have ascii names": lambda: in_ascii([consequence_line(Scene(state("tau_h", 0.9, 0.8)), 116)]),
        "from one end to the other the line is there within twelve rounds": lambda: [
            line(state(name, old, new, nodes=nodes))
            for name, old, new in (("d0", 1, 7), ("tau_h", 0.41, 1), ("tau_l", 0.01, 0.89))
            for nodes in ((5, 12), (7, 7))
        ],
        "a turn is told with nodes tokens a round and speed and what has no room gives way from the end": lambda: [
            line(GROWN, width) for width in (116, 76, 40, 30)
        ],
        "a rule that ends the trees instead is named with the key that frees the knob": lambda: [
            line(state(by=by)) for by in HIDING
        ],
        "unless there are more nodes or too few rounds": lambda: [
            line(state(nodes=(7, 10))),
            line(state(count=9)),
        ],
        "where no rule ends most trees or paths are ended none is named": lambda: [
            line(told)
            for told in (state(by="d0"), state(by=None), state(count=0, later=MIXED), state(*TURN, by="rho_stop"))
        ],
        "other knobs that hide a knob are named and their values are told at once": lambda: [
            line(state("d_max", 8, 12, by="d0")),
            line(state(*TURN)),
            line(state(*TURN, count=1, by=None, branching=[2, 2, 3])),
            line(state("tau_l", 0.9, 0.8, count=1, by=None, branching=[1, 3, 3])),
            line(state("d0", 0.9, 0.8, count=1, by=None, rho_stop=0.5, rho_deep=0.5)),
        ],
        "rounds are counted up until there are enough": lambda: [
            line(state(count=0)),
            line(state(nodes=(7, 10), count=3)),
        ],
        "a turn after few rounds is not compared": lambda: line(AFTER_FEW),
        "many knobs at once are counted": lambda: line(state(later=TOGETHER)),
        "in a recording the rule is named without a key": lambda: line(state(), replaying=True),
        "the drawer has a slider for every knob of the watched method and for what all share": lambda: [
            f"{watched}: {' '.join(drawer.listed_knobs(raced(watched=watched)))}" for watched in METHODS
        ],
        "the titles of knobs name the preset in force": lambda: [
            panel(Scene(state_of([structs.replace(run(), methods={"dynatree": asdict(rules)}), *turns])), 100, 30)[0]
            for rules in PRESETS.values()
            for turns in ((), (turned("n_max", 1, 0, 99),))
            for panel in (sliders.knobs, drawer.drawer)
        ],
        "the large trees of the demo name the key for the faster preset": lambda: [
            panel(replace(Scene(state_of([DEMO_RUN, *turns, tree_round(0)])), replaying=replaying), *size)
            for turns in ((), (turned("d0", 1, 4, 3, source="history"),), (turned("d0", 1, 4, 3),))
            for replaying in (False, True)
            for panel, size in ((sliders.knobs, (120, 5)), (cards.cards, (80, 3)))
        ],
        "the sentence says what the fastest or largest cell gives": lambda: [_said(found) for found in TOLD],
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
