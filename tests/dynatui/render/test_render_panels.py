"""Tests of cards, race, knobs, status line, tabs, footer and guide."""

import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from rich.console import Console, RenderableType

from decoder.analysis.metrics import FIGURES
from decoder.events import TRANSLATED, End, Knob, Summary
from decoder.session.steering import Stage
from dynatui.gpu import GpuLoad
from dynatui.keymap import KEYMAP, PANELS
from dynatui.record.reader import read_events
from dynatui.render.cards import cards
from dynatui.render.curves import acceptance, depth, trends
from dynatui.render.drawer import drawer
from dynatui.render.guide import GUIDE, explained, guide, led_by
from dynatui.render.headline import compared, gpu_wordings
from dynatui.render.ink import Ink, Row, in_ascii, width_of
from dynatui.render.layout import layout
from dynatui.render.log import log
from dynatui.render.palette import palette
from dynatui.render.prompts import prompts
from dynatui.render.race import lane_at, race
from dynatui.render.sampling import sampling
from dynatui.render.scene import Meters, Scene
from dynatui.render.sliders import history_line, knobs
from dynatui.render.status import essentials, footer, named_at, speed_text, status, tab_at, tabs
from dynatui.render.timeline import timeline
from dynatui.screen.pages.help import help_page
from dynatui.screen.widgets.canvas import DrawPanel
from dynatui.session import Symbols
from dynatui.state.ab_comparison import Pin
from dynatui.state.run_state import Failure, Loading, Prompt, RunState
from dynatui.state.timeline import TimelinePosition
from tests.dynatui.render.extreme_scenes import SCENES
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import lines, plain_round, run, running, state_of, story, text_of, tree_round


def test_cards_show_the_figures_and_what_they_mean() -> None:
    page = "\n".join(lines(cards(running(), 120, 3)))
    expected = (
        *("tokens/s", "150", "warming up", "tokens a pass", "L-bar, run", "guesses kept", "40%", "depth acc. 0.67"),
        *("base depth D0", "6 ", "0.80 / 0.40", "4.0 · 12.0 · 1.0"),
    )
    for words in expected:
        assert words in page, words


def test_a_rate_of_few_tokens_is_not_shown_until_there_is_no_more_to_come() -> None:
    def cells(rounds: int, *, ended: bool) -> list[list[str]]:
        events = story(rounds)
        rows = lines(race(Scene(state_of(events if ended else events[:-3])), 72, 6))[1:3]
        return [row.replace("│", "").split() for row in rows]

    assert cells(0, ended=False)[0] == ["dynatree", "-/s", "0/64"]
    assert cells(9, ended=False)[0] == ["dynatree", "warming", "up", "27/64"]
    assert cells(10, ended=False)[0][-2:] == ["150/s", "30/64"]  # no speedup, because ar still warms up
    assert cells(10, ended=False)[1] == ["ar", "warming", "up", "10/64"]
    assert cells(10, ended=True)[0][-4:] == ["150/s", "3.00x", "30/64", "full"]


@pytest.mark.parametrize("width", [76, 88, 120, 160])
def test_columns_beside_the_bars_leave_them_28_cells(width: int) -> None:
    page = lines(race(Scene(state_of(story(30)[:-3])), width, 12))
    row = next(row for row in page if "dynatree" in row)
    assert sum(sign in "█▏▎▍▌▋▊▉" for sign in row) >= 28


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_race_with_too_few_rows_keeps_the_watched_method_and_ar(rows: int) -> None:
    methods = ("linear", "dynatree", "fixed", "ar")
    rounds = [structs.replace(plain_round("ar", 0), method=name) for name in methods]
    scene = Scene(state_of([run(methods), *rounds]))
    shown = [line.split()[0] for line in lines(race(scene, 40, rows))]
    assert [name for name in shown if name in ("linear", "ar")] == ["linear", "ar"][:rows]
    assert [lane_at(scene, (40, rows), y) for y in range(rows)] == shown


def test_small_curves_of_all_methods_share_a_scale() -> None:
    trees, plain = [tree_round(number) for number in range(30)], [plain_round("ar", number) for number in range(30)]
    page = lines(race(Scene(state_of([run(), *trees, *plain])), 126, 9))
    assert "▁▁▁▁▁▁▁▁▁▁▁▁" in page[3]
    assert "▁" not in page[2]


def test_with_still_more_room_the_figures_explain_themselves() -> None:
    page = "\n".join(lines(race(running(), 120, 40)))
    for figure in FIGURES[:20]:
        assert f"= {figure.formula}" in page
    assert "elsewhere: draft acceptance rate (vLLM)" in page
    assert "= committed / decode_s" not in "\n".join(lines(race(running(), 120, 8)))


def test_no_figure_is_explained_by_half() -> None:
    for height in range(12):
        rows = lines(explained(led_by(["tokens_per_round"]), 60, height))
        assert len(rows) <= height
        if rows:
            assert rows[1].endswith("= committed / rounds"), height
            assert any(row.endswith("(Spec-Bench)") for row in rows), height


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


def printed(page: RenderableType, width: int) -> str:
    console = Console(width=width, file=StringIO(), color_system=None)
    console.print(page)
    return console.file.getvalue() if isinstance(console.file, StringIO) else ""


@pytest.mark.parametrize("height", range(8, 60, 4))
def test_the_guide_leaves_few_rows_empty(height: int) -> None:
    page = lines(guide(Scene(), 50, height))
    assert sum(not row.strip("│ ") for row in page[1:-1]) <= 2


def test_the_guide_shows_whole_terms_and_where_the_others_are() -> None:
    page = lines(guide(Scene(), 52, 18))
    assert "? tells more" in page[0]
    assert "Round" in page[1]
    assert "tells more" not in lines(guide(Scene(), 52, 150))[0]


@pytest.mark.parametrize(("verify_s", "growth"), [(0.015, "2.5x"), (0.018, "3x")])
def test_below_the_race_stands_what_limits_the_watched_method_and_what_would_help(verify_s: float, growth: str) -> None:
    trees = map(tree_round, range(8))
    slow = [structs.replace(each, verify_s=verify_s, draft_s=0.0001, accepted=[1, 3, 5]) for each in trees]
    plain = [structs.replace(plain_round("ar", number), verify_s=0.006) for number in range(8)]
    told = state_of([run(), *slow, *plain])
    grows = f"verification grows with rows: 6 rows take {growth} as long as one"
    assert f"{grows}; smaller trees would help" in lines(race(Scene(told), 120, 8))[5]
    assert f"dynatree: {grows} (if they took as long as one: " in lines(race(Scene(told), 150, 8))[5]
    assert f"6 rows cost {growth} one row: smaller trees" in "".join(lines(race(Scene(told), 50, 8))[4:6])
    assert "verification" not in "\n".join(lines(race(Scene(structs.replace(told, chosen="ar")), 120, 8)))


def test_what_limits_a_method_gives_way_to_the_rows_above_it_and_waits_for_enough_rounds() -> None:
    told = state_of(story(8))
    assert "would help" in lines(race(Scene(told), 120, 6))[4]
    assert "would help" not in "\n".join(lines(race(Scene(told), 120, 5)))
    few = state_of(story(4))
    assert "would help" not in "\n".join(lines(race(Scene(few), 120, 8)))


def test_the_race_tells_whether_the_text_is_the_same() -> None:
    same = plain_round("ar", 0)
    state = state_of([run(), tree_round(0), same])
    assert "writes exactly the text of ar" in lines(race(Scene(state), 72, 6))[3]
    other = structs.replace(same, committed=[99])
    state = state_of([run(), tree_round(0), other])
    assert "first difference from ar at token 0" in lines(race(Scene(state), 72, 6))[3]


def test_a_method_that_broke_off_says_why() -> None:
    broken = End(method="ar", reason="error", error="out of memory")
    state = state_of([run(), tree_round(0), plain_round("ar", 0), broken])
    assert "! ar: out of memory" in lines(race(Scene(state), 72, 6))[3]


@pytest.mark.parametrize(("near", "words"), [(True, "0: a near tie"), (False, "0: not a near tie")])
def test_the_summary_tells_a_near_tie_from_a_fault(*, near: bool, words: str) -> None:
    state = state_of([run(), tree_round(0), structs.replace(plain_round("ar", 0), committed=[99])])
    told = {name: structs.replace(entry, near_tie=near) for name, entry in state.figures().items()}
    page = lines(race(Scene(state_of([run(), Summary(methods=told)])), 72, 6))
    assert words in " ".join(page)


def test_history_gives_its_reason_in_one_line() -> None:
    line = "".join(text for text, _ in history_line(running().state.lane, 116))
    assert line == "history: depth acceptance 0.67 < 0.70 over the last 3 rounds: D0 down, τh up"
    assert len("".join(text for text, _ in history_line(running().state.lane, 80))) <= 80


def test_history_says_when_it_waits_and_when_it_is_off() -> None:
    early = Scene(state_of([run(), tree_round(0)]))
    assert lines(knobs(early, 80, 2))[1].strip() == "history waits for the first 3 rounds that draft: 1 so far"
    off = Knob(method="dynatree", round=1, name="history", old=1, new=0, source="user")
    page = lines(knobs(Scene(state_of([run(), tree_round(0), off])), 80, 2))
    assert "history h off" in page[0]
    assert "keep your values" in page[1]


def test_a_method_without_knobs_says_so() -> None:
    state = state_of([run(("ar",)), plain_round("ar", 0)])
    assert "no knobs" in lines(knobs(Scene(state), 80, 2))[0]
    assert "no such knob" in "".join(lines(cards(Scene(state), 120, 3)))


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (Scene(), "loading: starting"),
        (Scene(state_of([Loading("importing torch")])), "loading: importing torch, 0 s"),
        (running(), "decoding"),
        (replace(running(), paused=True), "PAUSED"),
        (replace(running(), preparing="CUDA graphs: 3 of 14 captured"), "decoding  CUDA graphs: 3 of 14 captured"),
        (replace(running(), frozen=True), "FROZEN"),
        (replace(running(), replaying=True), "replaying"),
        (replace(running(), recording=True), "● REC"),
        (replace(running(), state=structs.replace(RunState(), failure=Failure("x", 3))), "ERROR"),
        (Scene(state_of(story())), "done"),
    ],
)
def test_the_status_line_says_what_is_going_on(scene: Scene, words: str) -> None:
    assert words in lines(status(scene, 120, 1))[0]


def test_the_status_line_names_models_device_and_prompt() -> None:
    line = lines(status(running(), 140, 1))[0]
    for expected in ("prompt 1/2", "speed 1x", "books-16m ← drafted by books-1m", "cpu bfloat16", "greedy"):
        assert expected in line, expected
    assert lines(status(running(), 40, 1))[0].startswith("18 in 6 · ~ differs  decoding")
    assert lines(status(Scene(state_of([run()])), 40, 1))[0].split()[:2] == ["dynatui", "decoding"]


def test_the_status_line_says_whether_the_run_is_exact() -> None:
    scenes = [Scene(state_of([structs.replace(run(), exact=exact)])) for exact in (False, True)]
    assert ["cpu bfloat16 exact" in lines(status(scene, 140, 1))[0] for scene in scenes] == [False, True]


def test_the_status_line_names_the_draft_s_dtype_where_there_is_room_before_it_drops_the_target_s() -> None:
    scene = Scene(state_of([structs.replace(run(), draft_dtype="float16")]))
    shown = [lines(status(scene, width, 1))[0] for width in range(60, 180)]
    assert "cpu bfloat16, draft float16" in shown[-1]
    assert any("cpu bfloat16" in line and "draft float16" not in line for line in shown)


def decoded_by(path: str, reason: str = "", device: str = "cpu") -> Scene:
    return Scene(state_of([structs.replace(run(), device=device, path=path, path_reason=reason)]))


@pytest.mark.parametrize(("path", "slow"), [("cuda graphs", False), ("static module", True), ("host", True)])
def test_only_a_gpu_that_decodes_slower_than_it_might_says_which_way_and_why(path: str, *, slow: bool) -> None:
    (row,) = status(decoded_by(path, "no graphs here", device="cuda:0"), 180, 1)
    assert [ink for words, ink in row if words == f"path: {path}, no graphs here"] == (["warn"] if slow else [])
    assert (f"path: {path}" in lines(status(decoded_by(path, device="cuda:0"), 55, 1))[0]) is slow
    assert "path" not in lines(status(decoded_by(path, "no graphs here"), 180, 1))[0]


def test_the_status_line_says_that_a_draft_is_translated_through_text() -> None:
    scene = decoded_by("host", f"native CPU kernels; {TRANSLATED}")
    assert "books-16m ← drafted through text by books-1m" in lines(status(scene, 180, 1))[0]
    assert any("books-16m ← text ← books-1m" in lines(status(scene, width, 1))[0] for width in range(60, 120))


def test_the_status_line_gives_way_part_by_part() -> None:
    scene = replace(running(), recording=True, meters=Meters(fps=4.0, slow_line=True, ui_share=0.029))
    line_of = {width: lines(status(scene, width, 1))[0] for width in range(1, 201)}
    assert [len(line) for line in line_of.values()] == list(line_of)
    for part, from_width in (("decoding", 34), ("REC", 60), ("4 fps, slow line", 170), ("UI 2.9 %", 170)):
        assert [width for width, line in line_of.items() if width >= from_width and part not in line] == []


def test_looking_back_is_named_with_its_round() -> None:
    back = replace(running(), frozen=True, place=TimelinePosition(round=3, rounds=6, live=False))
    assert "FROZEN round 3 of 6" in lines(status(back, 120, 1))[0]


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (
            replace(running(), stage=Stage("drafted", tree_round(6)), paused=True),
            "HELD round 7: tree drafted . goes on",
        ),
        (replace(running(), stage=Stage("verified", tree_round(6)), paused=True), "HELD round 7: tree verified"),
        (replace(running(), stage=Stage("committed", tree_round(6)), paused=True), "HELD round 7: path committed"),
        (
            replace(running(), broke="nothing accepted, round 8", paused=True),
            "HELD nothing accepted, round 8 . goes on",
        ),
        (
            replace(running(), broke="nothing accepted of 5", stage=Stage("committed", tree_round(6)), paused=True),
            "HELD nothing accepted of 5 . goes on",
        ),
        (replace(running(), paused=True, place=TimelinePosition(2, 6, live=False)), "PAUSED round 2 of 6"),
        (replace(running(), following=True), "following"),
    ],
)
def test_what_stands_still_says_why_and_how_to_go_on(scene: Scene, words: str) -> None:
    assert words in lines(status(scene, 120, 1))[0]


def test_the_key_that_goes_on_stays_in_a_narrow_terminal() -> None:
    held = replace(running(), stage=Stage("drafted", tree_round(6)), paused=True)
    assert ". goes on" in lines(status(held, 60, 1))[0]
    assert "HELD round 7: tree drafted" in lines(status(held, 40, 1))[0]


def test_the_gpu_is_told_as_far_as_the_driver_knows_it() -> None:
    full = GpuLoad(0.87, int(12.3e9), int(139e9), 250.3, 61)
    assert "GPU 87% 12.3/139 GB 250 W 61 C" in lines(status(replace(running(), gpus={0: full}), 200, 1))[0]
    assert gpu_wordings({0: full})[-1] == "GPU 87%"
    assert gpu_wordings({3: GpuLoad(None, 10**9, None, None, None)}) == ("GPU 1.0 GB", "GPU")


def test_of_several_gpus_each_has_its_load_and_memory_where_there_is_room() -> None:
    first = GpuLoad(0.87, int(12.3e9), int(139e9), 250.3, 61)
    gpus = {0: first, 2: replace(first, load=0.634, used_bytes=int(11.9e9))}
    each, loads = gpu_wordings(gpus)
    assert each == "GPU 0: 87% 12.3/139 GB, 2: 63% 11.9/139 GB"
    assert loads == "2 GPUs 63-87%"
    assert each in lines(status(replace(running(), gpus=gpus), 200, 1))[0]
    assert "2 GPUs 63-87%" in lines(status(replace(running(), gpus=gpus), 120, 1))[0]


def test_several_gpus_that_are_alike_or_tell_nothing_are_told_in_fewer_words() -> None:
    alike, silent = GpuLoad(0.5, 2 * 10**9, None, None, None), GpuLoad(None, None, None, 90.0, 40)
    assert gpu_wordings({0: alike, 1: alike}) == ("GPU 0: 50% 2.0 GB, 1: 50% 2.0 GB", "2 GPUs 50%")
    assert gpu_wordings({0: silent, 1: alike})[0] == "GPU 0: -, 1: 50% 2.0 GB"
    assert gpu_wordings({0: silent, 1: silent})[1] == "2 GPUs"


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_a_click_on_a_tab_finds_its_panel(width: int) -> None:
    row = lines(tabs(Scene(), width, 1))[0]
    for number, name in enumerate(PANELS, 1):
        assert tab_at(Scene(), width, row.index(str(number))) == name
    assert tab_at(Scene(), width, width) is None


def test_speeds_are_written_as_fractions() -> None:
    assert [speed_text(speed) for speed in (0.25, 0.3, 1.0, 4.0, 0.0)] == ["1/4x", "0.3x", "1x", "4x", "0x"]


@pytest.mark.parametrize(
    ("ar", "words", "ink"),
    [
        ((11, 13), "same text so far", "good"),
        ((11, 13, 100), "same text", "good"),
        ((11, 99), "~ differs from token 1", "warn"),
    ],
)
def test_the_text_is_compared_with_that_of_ar_as_far_as_ar_is(ar: tuple[int, ...], words: str, ink: str) -> None:
    rounds = [structs.replace(plain_round("ar", place), committed=[token]) for place, token in enumerate(ar)]
    row = compared(state_of([run(), tree_round(0), *rounds]))[-2 if "token" in words else -1]
    assert (row[0][0], row[0][1]) == (words, ink)


@pytest.mark.parametrize(
    ("near", "gap", "words"),
    [
        (True, 0.002, "~ text differs from token 3 (near tie, gap 0.002)"),
        (True, None, "~ text differs from token 3 (near tie)"),
        (False, None, "! text differs from token 3"),
        (None, None, "~ text differs from token 3"),
    ],
)
def test_the_comparison_tells_a_near_tie_from_a_fault(*, near: bool | None, gap: float | None, words: str) -> None:
    state = state_of(story())
    told = {
        name: structs.replace(entry, near_tie=near, first_difference_gap=gap) for name, entry in state.figures().items()
    }
    assert text_of(compared(state_of([*story()[:-1], Summary(methods=told)]))[0]) == words


def test_without_ar_there_is_no_compared() -> None:
    assert compared(state_of([run(("dynatree",)), tree_round(0)])) == ()
    assert compared(state_of([run(("ar",)), plain_round("ar", 0)])) == ()


def test_the_footer_names_the_mode_and_its_keys() -> None:
    assert lines(footer(replace(Scene(), mode="inspect"), 80, 1))[0].startswith(" INSPECT ")
    assert "← → token" in lines(footer(replace(Scene(), mode="inspect"), 80, 1))[0]
    assert "↑ ↓ choose  ← → turn" in lines(footer(replace(Scene(), mode="knobs"), 80, 1))[0]
    assert lines(footer(replace(Scene(), maximised=True), 80, 1))[0].startswith(" EXPANDED  esc back ")
    assert "saved" in lines(footer(replace(Scene(), note="saved"), 80, 1))[0]


@pytest.mark.parametrize("width", [65, 80])
def test_all_tabs_fit_and_the_chosen_one_is_marked_without_colour_too(width: int) -> None:
    for panel in PANELS:
        row = tabs(replace(Scene(), panel=panel), width, 1)[0]
        assert all(f"{number}" in text_of(row) for number in range(1, 10))
        assert text_of(row).rstrip().endswith("Sampling"), panel
        assert [ink for _, ink in row].count("tab") == 1, panel


def test_a_narrow_line_of_tabs_names_the_chosen_one() -> None:
    assert lines(tabs(replace(Scene(), panel="work"), 30, 1))[0].split() == ["1", "2", "3", "4", "5Work", *"6789"]


def test_the_tabs_say_how_to_see_more_at_once() -> None:
    assert "press 1-9 for other panels; side by side at 110x34" in lines(tabs(Scene(), 140, 1))[0]


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ((200, 60), "roomy"),
        ((120, 40), "full"),
        ((159, 49), "full"),
        ((80, 24), "tabbed"),
        ((200, 20), "tabbed"),
        ((59, 24), "small"),
        ((40, 10), "small"),
        ((39, 40), "line"),
        ((200, 9), "line"),
        ((1, 1), "line"),
    ],
)
def test_the_layout_follows_the_size(size: tuple[int, int], name: str) -> None:
    assert layout(*size) == name


PAINTERS: dict[str, DrawPanel] = {
    "acceptance": acceptance,
    "cards": cards,
    "depth": depth,
    "drawer": drawer,
    "essentials": essentials,
    "footer": footer,
    "guide": guide,
    "knobs": knobs,
    "log": log,
    "sampling": sampling,
    "prompts": prompts,
    "race": race,
    "status": status,
    "tabs": tabs,
    "timeline": timeline,
    "trends": trends,
}


@pytest.mark.parametrize("painter", PAINTERS)
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(SCENES)),
    st.integers(1, 200),
    st.integers(1, 60),
    st.sampled_from(["braille", "block", "ascii"]),
)
def test_every_panel_fits_every_size_whatever_it_shows(
    painter: str, stage: str, width: int, height: int, symbols: Symbols
) -> None:
    scene = replace(SCENES[stage], symbols=symbols)
    rows = PAINTERS[painter](scene, width, height)
    assert {width_of(row) for row in rows} == {width}
    assert len(rows) in (1, 3, height)
    assert not any(ord(character) < 32 for row in rows for character in text_of(row))


@pytest.mark.parametrize("painter", PAINTERS)
def test_in_ascii_every_panel_is_ascii(painter: str) -> None:
    for scene in (SCENES["running"], SCENES["done"], SCENES["no knobs yet"], SCENES["drawn"]):
        held = replace(
            scene,
            symbols="ascii",
            place=TimelinePosition(2, 6, 0.1, live=False),
            pinned=Pin.of(scene.state, scene.state.watched),
        )
        for size in ((30, 3), (76, 11), (120, 40)):
            for row in in_ascii(PAINTERS[painter](held, *size)):
                assert text_of(row).isascii(), text_of(row)


@pytest.mark.parametrize("painter", PAINTERS)
def test_every_panel_is_cheap(painter: str) -> None:
    events = list(read_events(Path("tests/traces/demo.jsonl")))
    scene = Scene(state_of([Prompt(1, 5), *events[:400]]))
    took = []
    for _ in range(5):
        # CPU time of this thread, so that other programs do not count.
        began = time.thread_time()
        PAINTERS[painter](scene, 120, 11)
        took.append(time.thread_time() - began)
    assert min(took) < 0.010, "a tenth of a frame's time"


def test_every_ink_has_a_style_and_what_carries_meaning_an_attribute() -> None:
    styles = palette({"foreground": "ansi_default"}, color=False)
    assert set(styles) == set(get_args(Ink))
    assert styles["cursor"].bold


def test_the_first_line_says_what_goes_over_the_wire_where_there_is_room() -> None:
    scene = replace(running(), meters=Meters(fps=10.0, ui_share=0.029, bytes_per_s=18_300.0))
    assert "10 fps  UI 2.9 %  18 KB/s" in lines(status(scene, 200, 1))[0]
    assert "KB/s" not in lines(status(scene, 80, 1))[0]


@pytest.mark.parametrize("size", [(1, 1), (7, 2), (9, 3), (40, 4), (60, 5), (120, 20)])
def test_a_click_on_a_lane_finds_the_method_that_is_drawn_there(size: tuple[int, int]) -> None:
    scene = running()
    rows = [row.lstrip("│ ") for row in lines(race(scene, *size))]
    found = {y: method for y in range(-1, size[1] + 1) if (method := lane_at(scene, size, y))}
    assert list(found.values()) == ["dynatree", "ar"][: len(found)]
    assert all(rows[y].startswith(method[: max(1, size[0] - 4)]) for y, method in found.items())
    assert len(found) == min(2, size[1] if size[1] < 4 else size[1] - 2)


def test_a_name_in_a_title_is_met_by_the_cells_that_show_it() -> None:
    row: Row = (("╭─ 世界 ─ 5 work 6 what if 7 prompts ─╮", "plain"),)
    found = [named_at(row, x) for x in range(-1, 50)]
    assert (found.count("work"), found.count("whatif"), found.count("prompts")) == (6, 9, 9)
    assert found.count(None) == len(found) - 24
    assert found.index("work") == 1 + width_of((("╭─ 世界 ─ ", "plain"),))
    assert named_at((), 0) is None


test_golden = golden(
    {
        "at 80 columns every card is still whole": lambda: cards(running(), 80, 3),
        "on one line the cards are their values": lambda: (cards(running(), 80, 1), cards(Scene(), 40, 1)),
        "the race compares every method with ar": lambda: race(Scene(state_of(story(30)[:-3])), 72, 6),
        "with room to spare the race says how each method comes to its rate": lambda: (
            race(running(), 114, 14),
            race(running(), 74, 14),
        ),
        "with a row for their heads passes and tokens a round stand beside the bars": lambda: (
            race(running(), 92, 6),
            race(running(), 92, 7),
            race(running(), 126, 7),
        ),
        "sliders show value range and keys": lambda: knobs(running(), 120, 4),
        "a turn shows before it is in force": lambda: knobs(replace(running(), pending={"tau_h": 0.75}), 120, 4),
        "the footer keeps help and quit to the last": lambda: (footer(Scene(), 200, 1), footer(Scene(), 16, 1)),
        "one line says the essentials": lambda: (essentials(running(), 39, 1), essentials(Scene(), 20, 1)),
    }
)
