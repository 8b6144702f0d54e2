"""Headline, cards, race, knobs, status line, tabs, footer and guide, and which panels are on the screen."""

import re
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from rich.console import Console, RenderableType

from decoder.analysis.metrics import FIGURES
from decoder.analysis.roofline import round_s, step_s
from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.events import TRANSLATED, End, Event, Expected, Knob, Summary
from decoder.session.steering import Stage
from dynatui.gpu import GpuLoad
from dynatui.keymap import KEYMAP, PANELS
from dynatui.render.cards import cards, compared, expected_words, gpu_wordings, headline, overhead_words
from dynatui.render.guide import GUIDE, guide
from dynatui.render.ink import Rows
from dynatui.render.layout import LAYOUTS, arranged, layout, shared_place
from dynatui.render.race import lane_at, race
from dynatui.render.scene import Meters, Scene
from dynatui.render.sliders import history_line, knobs
from dynatui.render.status import essentials, footer, footer_action, speed_text, status, tab_action, tabs
from dynatui.render.work import work
from dynatui.screen.canvas import DrawPanel
from dynatui.screen.pages.help import help_page
from dynatui.state.run_state import Failure, Loading, RunState
from dynatui.state.timeline import TimelinePosition
from tests.dynatui.render.golden import golden, inked
from tests.dynatui.scripted_runs import lines, plain_round, raced, run, running, state_of, story, tree_round

FIRST = Scene(state_of([run(), tree_round(0)]))
AR_ALONE = Scene(state_of([run(("ar",)), plain_round("ar", 0)]))
HISTORY_OFF = Knob(method="dynatree", round=1, name="history", old=1, new=0, source="user")
HELD = {stage: Stage(stage, tree_round(6)) for stage in ("drafted", "verified", "committed")}
BACK = TimelinePosition(round=3, rounds=6, live=False)


def texts_beside_ar(*committed: int, end: End | None = None, methods: tuple[str, ...] = ("dynatree", "ar")) -> RunState:
    plain = [structs.replace(plain_round("ar", place), committed=[token]) for place, token in enumerate(committed)]
    return state_of([run(methods), tree_round(0), *plain, *([end] if end else [])])


def judged(state: RunState, before: list[Event], **judgement: object) -> RunState:
    told = {name: structs.replace(entry, **judgement) for name, entry in state.figures().items()}
    return state_of([*before, Summary(methods=told)])


def raced_so_far(rounds: int, *, ended: bool = False) -> Rows:
    return race(Scene(state_of(story(rounds) if ended else story(rounds)[:-3])), 72, 6)


def limited(verify_s: float) -> RunState:
    trees = map(tree_round, range(8))
    slow = [structs.replace(each, verify_s=verify_s, draft_s=0.0001, accepted=[1, 3, 5]) for each in trees]
    plain = [structs.replace(plain_round("ar", number), verify_s=0.006) for number in range(8)]
    return state_of([run(), *slow, *plain])


def seen(**view: object) -> Scene:
    return replace(running(), **view)  # type: ignore[arg-type]  # fields of a scene


@pytest.mark.parametrize("size", [(1, 1), (7, 2), (9, 3), (40, 1), (40, 4), (60, 5), (120, 20)])
def test_a_click_on_a_lane_finds_the_method_that_is_drawn_there_and_the_watched_one_and_ar_come_first(
    size: tuple[int, int],
) -> None:
    methods = ("linear", "dynatree", "fixed", "ar")
    rounds = [structs.replace(plain_round("ar", 0), method=name) for name in methods]
    scene = Scene(state_of([run(methods), *rounds]))
    rows = [row.lstrip("│ ") for row in lines(race(scene, *size))]
    found = {y: method for y in range(-1, size[1] + 1) if (method := lane_at(scene, size, y))}
    assert all(rows[y].startswith(method[: max(1, size[0] - 4)]) for y, method in found.items())
    room = size[1] if size[1] < 4 else size[1] - 2
    assert list(found.values()) == [name for name in methods if name in ("linear", "ar", "dynatree", "fixed")[:room]]


def printed(page: RenderableType, width: int) -> str:
    console = Console(width=width, file=StringIO(), color_system=None)
    console.print(page)
    return console.file.getvalue() if isinstance(console.file, StringIO) else ""


def test_the_help_page_names_every_key_and_every_figure() -> None:
    page = " ".join(printed(help_page(KEYMAP), 300).split())
    for key in KEYMAP.keys:
        assert key.help in page
    for figure in FIGURES:
        assert f"{figure.label} = {figure.formula}" in page
        assert figure.elsewhere in page
    for term, meaning in GUIDE:
        assert f"{term} {meaning}" in page


def test_lines_of_the_help_page_that_do_not_fit_hang_under_their_own_beginning() -> None:
    page = printed(help_page(KEYMAP), 60).splitlines()
    row = next(number for number, line in enumerate(page) if "turn τh down or up" in line)
    assert page[row].index("turn τh down or up") == len(page[row + 1]) - len(page[row + 1].lstrip())
    assert all(len(line) <= 60 for line in page)


@pytest.mark.parametrize("height", range(8, 60, 4))
def test_the_guide_leaves_few_rows_empty(height: int) -> None:
    page = lines(guide(Scene(), 50, height))
    assert sum(not row.strip("│ ") for row in page[1:-1]) <= 2


STATES = (
    *(Scene(), Scene(state_of([Loading("importing torch")])), running(), Scene(state_of(story()))),
    *(seen(paused=True), seen(frozen=True), seen(paused=True, place=BACK), seen(frozen=True, place=BACK)),
    *(seen(replaying=True), seen(following=True), seen(recording=True)),
    seen(preparing="CUDA graphs: 3 of 14 captured"),
    seen(state=structs.replace(RunState(), failure=Failure("x", 3))),
    *(seen(stage=stage, paused=True) for stage in HELD.values()),
    seen(broke="nothing accepted, round 8", paused=True),
    seen(broke="nothing accepted of 5", stage=HELD["committed"], paused=True),
)


def decoded_by(path: str, reason: str = "", device: str = "cpu") -> Scene:
    return Scene(state_of([structs.replace(run(), device=device, path=path, path_reason=reason)]))


def test_the_status_line_gives_way_part_by_part() -> None:
    scene = seen(recording=True, meters=Meters(fps=4.0, slow_line=True, ui_share=0.029))
    line_of = {width: lines(status(scene, width, 1))[0] for width in range(1, 201)}
    assert [len(line) for line in line_of.values()] == list(line_of)
    for part, from_width in (("decoding", 34), ("REC", 60), ("4 fps, slow line", 170), ("UI 2.9 %", 170)):
        assert [width for width, line in line_of.items() if width >= from_width and part not in line] == []


FULL_GPU = GpuLoad(0.87, int(12.3e9), int(139e9), 250.3, 61)
OTHER_GPU = replace(FULL_GPU, load=0.634, used_bytes=int(11.9e9))
ALIKE, SILENT = GpuLoad(0.5, 2 * 10**9, None, None, None), GpuLoad(None, None, None, 90.0, 40)


GPUS = (
    *({0: FULL_GPU}, {3: GpuLoad(None, 10**9, None, None, None)}, {0: FULL_GPU, 2: OTHER_GPU}),
    *({0: ALIKE, 1: ALIKE}, {0: SILENT, 1: ALIKE}, {0: SILENT, 1: SILENT}),
)


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_a_click_on_a_tab_finds_its_panel(width: int) -> None:
    row = lines(tabs(Scene(), width, 1))[0]
    for number, name in enumerate(PANELS, 1):
        assert tab_action(Scene(), width, row.index(str(number))) == f"panel({name!r})"
    assert tab_action(Scene(), width, width) == ""


def test_every_key_of_the_footer_is_a_button_and_a_label_where_the_key_has_one_action() -> None:
    row = lines(footer(Scene(), 300, 1))[0]
    for words, action in {"[ ]": ("turn('[')", "", "turn(']')"), "w W": ("watch(1)", "", "watch(-1)")}.items():
        x = row.index(f" {words} ") + 1
        assert [footer_action(Scene(), 300, place) for place in (x, x + 3, x + 2)] == [action[0], "", action[2]]
    for words, name in (("space freeze", "freeze"), ("q quit", "leave"), ("? help", "help")):
        x = row.index(words)
        assert {footer_action(Scene(), 300, place) for place in range(x, x + len(words))} == {name}
    assert footer_action(Scene(), 300, row.index("1-9")) == footer_action(Scene(), 300, 299) == ""
    expanded = replace(Scene(), maximised=True)
    assert footer_action(expanded, 80, lines(footer(expanded, 80, 1))[0].index("back")) == "back"


VIEWS: tuple[dict[str, Any], ...] = (
    *({"panel": panel} for panel in PANELS),
    {"panel": "text", "maximised": True},
    {"panel": "curves", "maximised": True},
    {"panel": "tree", "maximised": True, "mode": "inspect"},
    {"panel": "work", "maximised": True, "mode": "knobs"},
    {"panel": "work", "mode": "inspect"},
    {"mode": "inspect"},
    {"mode": "knobs"},
    {"place": TimelinePosition(live=False)},
)


EXPECTED = Expected(target_read_s=0.002, target_row_s=0.0004, draft_pass_s=0.0001)
WARM = [tree_round(number) for number in range(WARM_UP_TOKENS)]


def measured(speedup: float, *, same: bool = True) -> RunState:
    took_s = 3 * 0.02 / speedup
    trees = [structs.replace(event, t=took_s * (event.round + 1)) for event in WARM]
    plain = [plain_round("ar", number) for number in range(3 * WARM_UP_TOKENS)]
    events: list[Event] = [run(("dynatree", "ar")), *raced(trees, plain)]
    told = dict(state_of(events).figures())
    told["dynatree"] = structs.replace(told["dynatree"], committed=256, target_forwards=70, identical_to_ar=same)
    told["ar"] = structs.replace(told["ar"], committed=256)
    return state_of([*events, Summary(methods=told)])


def test_it_stands_first_at_every_width() -> None:
    scene = Scene(measured(1.33))
    for width in range(5, 201):
        (line,) = lines(status(scene, width, 1))
        assert line.startswith("1.33x")
        assert len(line) == width
        assert lines(essentials(scene, width, 1))[0].startswith("1.33x")


def estimated(*events: Event, expected: Expected = EXPECTED) -> RunState:
    return state_of([structs.replace(run(), expected=expected), *events])


def test_the_overhead_of_a_round_is_its_time_beyond_the_estimate_for_its_own_size() -> None:
    state = estimated(*WARM)
    # Each round takes 20 ms, makes 2 draft passes and verifies 6 rows.
    estimate = round_s(EXPECTED, 2, 6)
    (slow,) = overhead_words(state)
    assert slow.startswith(
        f"A round takes 20.00 ms; memory and arithmetic of this machine need {1000 * estimate:.2f} ms by "
        "estimate, so the rest"
    )
    assert slow in " ".join(" ".join(line.strip("│ ") for line in lines(work(Scene(state), 150, 40))).split())
    (fast,) = overhead_words(estimated(*WARM, expected=Expected(target_read_s=0.019)))
    assert "need 19.00 ms by estimate, so only smaller trees or smaller weights help much" in fast


def test_the_overhead_is_told_once_the_watched_method_is_warm_and_reports_its_passes() -> None:
    plain = [plain_round("ar", number) for number in range(WARM_UP_TOKENS)]
    cold, warm = (structs.replace(estimated(*told), chosen="ar") for told in (plain[:-1], plain))
    assert (overhead_words(cold) == (), overhead_words(warm) == ()) == (True, False)
    assert overhead_words(estimated(*(structs.replace(event, draft_forwards=None) for event in WARM))) == ()


LIMIT = re.compile(r"at (most|least) ([\d.]+) (tokens/s|ms)")


@given(st.floats(0.02, 50.0))
def test_no_limit_on_the_screen_is_exceeded_by_what_is_measured(speed: float) -> None:
    """`speed`: of the measured rounds, relative to the expected times."""
    rounds = [plain_round("ar", number) for number in range(WARM_UP_TOKENS)]
    measured = [structs.replace(event, t=step_s(EXPECTED) / speed * (event.round + 1)) for event in rounds]
    begun = structs.replace(run(("ar",)), expected=EXPECTED)
    painters: list[DrawPanel] = [status, cards, work, race]
    scenes = Scene(state_of([begun])), Scene(state_of([begun, *measured]))
    shown = " ".join(" ".join(lines(painter(scene, 200, 12))) for painter in painters for scene in scenes)
    per_second = speed / step_s(EXPECTED)
    figures = {"tokens/s": per_second, "ms": 1000 / per_second}
    assert "estimate" in shown
    for bound, number, unit in LIMIT.findall(shown):
        assert figures[unit] <= float(number) if bound == "most" else figures[unit] >= float(number)


test_golden = golden(
    {
        "at 80 columns every card is still whole": lambda: cards(running(), 80, 3),
        "cards show the figures and what they mean": lambda: cards(running(), 120, 3),
        "on one line the cards are their values": lambda: (cards(running(), 80, 1), cards(Scene(), 40, 1)),
        "the race compares every method with ar": lambda: race(Scene(state_of(story(30)[:-3])), 72, 6),
        "a rate of few tokens is not shown until there is no more to come": lambda: [
            *(raced_so_far(rounds) for rounds in (0, 9, 10)),
            raced_so_far(10, ended=True),
        ],
        "with room to spare the race says how each method comes to its rate": lambda: (
            race(running(), 114, 14),
            race(running(), 74, 14),
        ),
        "the race tells whether the text is the same and why a method broke off": lambda: [
            race(Scene(state), 72, 6)
            for state in (
                *(texts_beside_ar(11), texts_beside_ar(99)),
                texts_beside_ar(11, end=End(method="ar", reason="error", error="out of memory")),
                *(judged(texts_beside_ar(99), [run()], near_tie=near) for near in (True, False)),
            )
        ],
        "below the race stands what limits the watched method and what would help": lambda: [
            *(race(Scene(limited(verify_s)), width, 8) for verify_s in (0.015, 0.018) for width in (120, 150, 50)),
            race(Scene(structs.replace(limited(0.015), chosen="ar")), 120, 8),
        ],
        "what limits a method gives way to the rows above it and waits for enough rounds": lambda: [
            race(Scene(state_of(story(rounds))), 120, height) for rounds, height in ((8, 6), (8, 5), (4, 8))
        ],
        "sliders show value range and keys": lambda: knobs(running(), 120, 4),
        "a turn shows before it is in force": lambda: knobs(seen(pending={"tau_h": 0.75}), 120, 4),
        "a method without knobs says so": lambda: [knobs(AR_ALONE, 80, 2), cards(AR_ALONE, 120, 3)],
        "history gives its reason in one line and says when it waits and when it is off": lambda: [
            *(history_line(running().state.lane, width) for width in (116, 80)),
            knobs(FIRST, 80, 2),
            knobs(Scene(state_of([run(), tree_round(0), HISTORY_OFF])), 80, 2),
        ],
        "the status line names models device and prompt": lambda: [
            *(status(running(), width, 1) for width in (140, 40)),
            status(Scene(state_of([run()])), 40, 1),
        ],
        "the status line says whether the run is exact": lambda: [
            status(Scene(state_of([structs.replace(run(), exact=exact)])), 140, 1) for exact in (False, True)
        ],
        "the key that goes on stays in a narrow terminal": lambda: [
            status(seen(stage=HELD["drafted"], paused=True), width, 1) for width in (60, 40)
        ],
        "the first line says what goes over the wire where there is room": lambda: [
            status(seen(meters=Meters(fps=10.0, ui_share=0.029, bytes_per_s=18_300.0)), width, 1) for width in (200, 80)
        ],
        "the status line says what is going on and why it stands still": lambda: [
            status(scene, 120, 1) for scene in STATES
        ],
        "gpus are told as far as the driver knows them and there is room": lambda: [
            *(gpu_wordings(gpus) for gpus in GPUS),
            *(gpu_wordings(gpus, 1.2345) for gpus in GPUS[:3:2]),
            *(status(seen(gpus=GPUS[place]), width, 1) for place, width in ((0, 200), (2, 200), (2, 120))),
        ],
        "the text is compared with that of ar as far as ar is": lambda: [
            inked(compared(texts_beside_ar(*ar))) for ar in ((11, 13), (11, 13, 100), (11, 99))
        ],
        "the comparison tells a near tie from a fault": lambda: [
            compared(judged(state_of(story()), story()[:-1], near_tie=near, first_difference_gap=gap))
            for near, gap in ((True, 0.002), (True, None), (False, None), (None, None))
        ],
        "the footer keeps help and quit to the last": lambda: (footer(Scene(), 200, 1), footer(Scene(), 16, 1)),
        "the footer names the mode and its keys": lambda: [
            footer(replace(Scene(), mode="inspect"), 80, 1),
            footer(replace(Scene(), mode="knobs"), 80, 1),
            footer(replace(Scene(), maximised=True), 80, 1),
            footer(replace(Scene(), note="saved"), 80, 1),
        ],
        "one line says the essentials": lambda: (essentials(running(), 39, 1), essentials(Scene(), 20, 1)),
        "the tabs say how to see more at once and a narrow line names the chosen one": lambda: [
            tabs(Scene(), 140, 1),
            tabs(replace(Scene(), panel="work"), 30, 1),
        ],
        "the guide shows whole terms and where the others are": lambda: [
            guide(Scene(), 52, height) for height in (18, 150)
        ],
        "small curves of all methods share a scale": lambda: race(Scene(state_of(story(30)[:-3])), 126, 9),
        "the status line names the dtype of the draft where there is room before it drops that of the target": lambda: [
            status(Scene(state_of([structs.replace(run(), draft_dtype="float16")])), width, 1)
            for width in (60, 80, 110, 140, 180)
        ],
        "only a gpu that decodes slower than it might says which way and why": lambda: [
            inked(status(decoded_by(path, "no graphs here", device), width, 1))
            for path, device, width in (
                *((path, "cuda:0", width) for path in ("cuda graphs", "static module", "host") for width in (55, 180)),
                ("host", "cpu", 180),
            )
        ],
        "the status line says that a draft is translated through text": lambda: [
            status(decoded_by("host", f"native CPU kernels; {TRANSLATED}"), width, 1) for width in (180, 90, 60)
        ],
        "speeds are written as fractions": lambda: [speed_text(speed) for speed in (0.25, 0.3, 1.0, 4.0, 0.0)],
        "without ar there is nothing to compare": lambda: [
            compared(state) for state in (texts_beside_ar(methods=("dynatree",)), AR_ALONE.state)
        ],
        "the layout follows the size": lambda: [
            f"{size}: {layout(*size)}"
            for size in (
                *((200, 60), (160, 50), (159, 49), (120, 40), (200, 33), (109, 40), (80, 24), (200, 18), (60, 17)),
                *((59, 24), (40, 10), (39, 40), (200, 9), (1, 1)),
            )
        ],
        "each layout shows what it has room for": lambda: [
            f"{room} {view}: {' '.join(sorted(arranged(room, Scene(**view), view.get('panel', 'race'))))}"
            for view in VIEWS
            for room in LAYOUTS
        ],
        "a panel without a place of its own takes the shared one": lambda: [
            shared_place("log", "race"),
            shared_place("tree", "log"),
        ],
        "all tabs fit and the chosen one is marked without colour too": lambda: [
            inked(tabs(replace(Scene(), panel=panel), width, 1)) for width in (65, 80) for panel in PANELS
        ],
        "it says how fast in how many passes and that the text is the same": lambda: [
            inked(headline(measured(speedup))[:1]) for speedup in (1.326, 1.003, 0.931)
        ],
        "the header tells what fits of the expected times": lambda: [
            status(Scene(estimated()), width, 1) for width in (60, 80, 120, 200)
        ],
        "its wordings get shorter and end with the speed alone": lambda: headline(measured(1.33)),
        "at 80 columns it is whole": lambda: status(Scene(measured(1.33)), 80, 1),
        "before there is text there is no headline": lambda: (headline(state_of([run()])), headline(RunState())),
        "a text that is not that of ar is never called the same": lambda: headline(measured(1.33, same=False)),
        "one token in one pass is said in the singular": lambda: headline(
            state_of([run(("dynatree",)), structs.replace(tree_round(0), accepted=[], committed=[11])])
        ),
        "before both methods are warm it claims no speed": lambda: [
            headline(state_of([run(), *WARM, plain_round("ar", 0)]))[:1],
            headline(state_of([run(), *raced(WARM, (plain_round("ar", place) for place in range(WARM_UP_TOKENS)))]))[
                :1
            ],
        ],
        "plain decoding itself is compared with nothing": lambda: [
            headline(structs.replace(state_of(story()), chosen="ar"))[:1],
            compared(structs.replace(state_of(story()), chosen="ar")),
        ],
        "expected times are told before the first round only and where they are known": lambda: [
            *map(
                expected_words,
                (
                    estimated(),
                    estimated(expected=Expected(target_read_s=4.0)),
                    estimated(tree_round(0)),
                    state_of([run()]),
                    RunState(),
                ),
            ),
            overhead_words(state_of([run(), *WARM])),
        ],
    }
)
