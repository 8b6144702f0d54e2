"""The panels of a server at every size, with gaps, unknown figures and hostile names; speed-up by load; advice."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from rich.cells import cell_len

from dynatui.cli.advise import named_device
from dynatui.render import server as panels
from dynatui.render.advice import advice_lines
from dynatui.render.ink import Rows
from dynatui.render.server import ServerView, answer, series, summary, time_text
from dynatui.render.server_load import load_curve, loads
from dynatui.servers.advice import Advice, advised
from dynatui.servers.attach.events import Drafting, Event, Figures, Gap, Reading, Wasted
from dynatui.servers.attach.servers import KINDS
from dynatui.servers.costs import LoadCurve, source
from dynatui.servers.engines import ENGINES
from dynatui.servers.profile_file import Profile, Trees
from dynatui.session import SYMBOLS, Symbols
from dynatui.state.server_state import ServerState, fold
from tests.dynatui.hostile_text import ACTS, hostile
from tests.dynatui.render.golden import golden, inked
from tests.dynatui.scripted_runs import HOSTILE, lines
from tests.dynatui.servers.attach.scripted_session import (
    ANSWER,
    ASKED,
    DRAFTING,
    FIRST,
    GAP,
    OPENING,
    SERVER,
    figures,
    reading,
    session,
    wasting,
)
from tests.dynatui.servers.attach.stand_in import OTHER, StandIn, promise, steady, vllm, watched
from tests.dynatui.servers.profiles import CODE, WRITING, acceptance, constant, draft, profile

LOOK = ServerView()
HUGE = Figures(
    seconds=1e15,
    drafts=2**53,
    drafted=2**53,
    accepted=2**53,
    generated=2**53,
    tokens_per_round=1e15,
    acceptance_rate=1.0,
    acceptance_by_position=[None, *[1.0] * 255],
    drafted_per_second=1e15,
    accepted_per_second=1e15,
    tokens_per_second=1e15,
)
MOST_WASTED = Wasted(since=0.0, drafts=2**53, drafted=2**53, accepted=2**53, tokens_per_round=1e15, acceptance_rate=1.0)
LARGEST_DRAFTS = Drafting(steps=2**53, draft_tokens=2**53, cap_length=1e15, block_accept_length=1e15)
HOSTILE_SERVER = structs.replace(
    SERVER, url=hostile("URL")[:1000], models=[hostile("MODEL")[:1000]] * 32, kind="x\x1b[2J"
)


def served(server: StandIn, draft: str = "mine") -> list[Event]:
    return watched(server, steady(server), promise(((1, 64, 3),), draft=draft) if draft else None)


STORIES: dict[str, list[Event]] = {
    "nothing": [],
    "opened": [OPENING],
    "unreachable": [OPENING, GAP],
    "first page": [OPENING, SERVER, FIRST],
    "an hour": session(3600),
    "a gap now": [*session(60), GAP, Gap(t=75.0, reason="x" * 5000)],
    "a gap before": [*session(60), GAP, reading(80.0)],
    "restarted": [*session(60), reading(61.0, restarted=True)],
    "huge": [OPENING, SERVER, FIRST, Reading(t=1e9, interval=HUGE, session=HUGE)],
    "asked": [OPENING, structs.replace(ASKED, prompt=hostile("PROMPT") * 99)],
    "answered": [OPENING, SERVER, FIRST, ANSWER],
    "answered at length": [
        OPENING,
        structs.replace(ANSWER, drafted_by_round=(9,) * 5000, accepted_by_round=(4,) * 5000, text="x" * 5000),
    ],
    "not answered": [OPENING, structs.replace(ANSWER, error=hostile("ERROR"))],
    "wasted": wasting(),
    "wasted for long": [
        OPENING,
        SERVER,
        Reading(t=1e9, interval=HUGE, session=HUGE, wasted=MOST_WASTED, drafting=LARGEST_DRAFTS),
    ],
    "promise kept": watched(vllm(), steady(vllm()), promise()),
    "promise not kept": served(vllm(OTHER)),
    "sglang promise not kept": served(StandIn(KINDS["sglang"], OTHER)),
    "hostile": [OPENING, HOSTILE_SERVER, Gap(t=1.0, reason=hostile("REASON"))],
}


def drafting(drafts: Drafting, size: tuple[int, int]) -> Rows:
    return panels.positions(fold([OPENING, SERVER, structs.replace(FIRST, drafting=drafts)]), size)


def drawn(state: ServerState, look: ServerView, width: int, height: int) -> dict[str, Rows]:
    return {
        "status": [panels.status(state, look, width)],
        "note": panels.note(state, look, (width, height)),
        "cards": panels.cards(state, width, height),
        "lengths": panels.lengths(state, look, (width, height)),
        "speeds": panels.speeds(state, look, (width, height)),
        "positions": panels.positions(state, (width, height)),
        "totals": panels.totals(state, (width, height)),
        "answer": answer(state, (width, height)),
        "drafting": drafting(LARGEST_DRAFTS, (width, height)),
        "loads": loads(state, (width, height)),
    }


def shown(events: Sequence[Event], panel: str, width: int = 80, height: int = 9, look: ServerView = LOOK) -> Rows:
    return drawn(fold(events), look, width, height)[panel]


@pytest.mark.parametrize("name", STORIES)
def test_every_panel_fits_every_size(name: str) -> None:
    state = fold(STORIES[name])
    for width, height in ((1, 1), (3, 2), (20, 5), (40, 9), (80, 24), (200, 60)):
        for look in (LOOK, ServerView(paused=True, recording=True, replaying=True, ended=True, symbols="ascii")):
            for panel, rows in drawn(state, look, width, height).items():
                told = lines(rows)
                assert all(cell_len(line) <= width for line in told), panel
                assert len(told) <= max(height, 3 if panel == "cards" else 1), panel


@pytest.mark.parametrize(
    ("name", "words"), [("hostile", "URL"), ("hostile", "REASON"), ("asked", "PROMPT"), ("not answered", "ERROR")]
)
def test_foreign_text_steers_nothing(name: str, words: str) -> None:
    told = "".join(line for rows in drawn(fold(STORIES[name]), LOOK, 300, 9).values() for line in lines(rows))
    assert words in told
    assert not set("".join(ACTS)) & set(told) & set("\x1b\x07\x08\x9b\x9d\x90\u202e\u2066\r\x7f\x0b\x0c\u2028\ufeff")


def test_a_curve_has_a_gap_where_nothing_is_known() -> None:
    points = series(fold([*session(3), GAP, reading(62.0)]), lambda found: found.tokens_per_round).points
    assert [math.isnan(point) for point in points] == [True, False, False, False, True, False]


def test_the_window_moves_in_steps_and_always_holds_the_newest_reading() -> None:
    ends = {seconds: panels._axis(fold(session(seconds))) for seconds in (10, 60, 61, 121, 300, 301, 330, 331, 3600)}
    assert [axis.span for axis in ends.values()] == [60, 60, 120, *[300] * 6]
    assert [axis.first for axis in ends.values()] == [0, 0, 0, 0, 0, 30, 30, 60, 3300]
    assert all(axis.first <= seconds <= axis.first + axis.span for seconds, axis in ends.items())


@pytest.mark.parametrize(("interval_s", "span"), [(0.1, 30), (0.5, 150), (1.0, 300), (60.0, 18_000)])
def test_the_window_is_as_long_as_its_readings_last(interval_s: float, span: int) -> None:
    state = fold([structs.replace(OPENING, interval_s=interval_s), SERVER, FIRST, reading(1e6)])
    assert panels._axis(state).span == span


def test_readings_within_a_second_are_one_point() -> None:
    quick = [reading(1.0 + tenth / 10, 100 + 10 * tenth) for tenth in range(-4, 5)]
    found = series(fold([OPENING, SERVER, *quick, reading(2.0, 200)]), lambda figures: figures.tokens_per_round)
    assert list(found.ends) == [1, 2]
    assert list(found.points) == pytest.approx([2.0, 3.0])


@given(st.floats(0, 1e15), st.floats(1, 1e3))
def test_scales_reach_what_they_show(most: float, least: float) -> None:
    assert panels._top([most], least) >= max(most, least)


BEGUN: list[Event] = [OPENING, SERVER, FIRST]
SILENT = structs.replace(ANSWER, drafted_by_round=(), accepted_by_round=(), rounds=None, tokens_per_round=None)


STREAMS = tuple(range(1, 65))
FALLING = LoadCurve(
    STREAMS,
    {1: tuple(1.5 - 0.004 * b for b in STREAMS), 5: tuple(3 - 0.05 * b for b in STREAMS)},
    tuple(max(1.0, 1.5 - 0.004 * b, 3 - 0.05 * b) for b in STREAMS),
)


@pytest.mark.parametrize(("symbols", "size"), product(SYMBOLS, [(80, 12), (40, 6), (9, 4), (3, 2), (1, 1), (0, 0)]))
def test_the_curve_has_any_size(symbols: Symbols, size: tuple[int, int]) -> None:
    rows = lines(load_curve(FALLING, size, symbols, running=12.5))
    assert [len(row) for row in rows] == [size[0]] * size[1]


def advice(given: Profile, server: str = "vllm", streams: tuple[int, int] = (1, 64)) -> Advice:
    return advised(given, source(given, on=named_device("H100")), ENGINES[server], streams)


FULL = profile(
    {
        "org/Head": draft(CODE, around=0.1, by_context={"<1k": acceptance(CODE), ">=16k": acceptance(WRITING)}),
        "lookup": draft(constant(0.3), kind="lookup", size=None),
    },
    draft_errors={"org/Broken": "its weights cannot be read"},
)
WITH_TREE = profile({"org/Head": draft(WRITING, trees=Trees(mismatches=9, siblings=(0.4,), continuation=(0.5,)))})
USELESS = profile({"org/Head": draft(constant(0.02))})


@pytest.mark.parametrize(("given", "width"), product((FULL, WITH_TREE, USELESS), (60, 80, 120)))
def test_lines_of_advice_keep_the_width(given: Profile, width: int) -> None:
    assert max(cell_len(line) for line in advice_lines(advice(given, "sglang"), width)) <= width


def test_names_from_files_are_cleaned() -> None:
    given = profile({HOSTILE: draft(CODE)}, target=HOSTILE, draft_errors={HOSTILE: HOSTILE})
    assert "\x1b" not in "".join(advice_lines(advice(given), 80))


test_golden = golden(
    {
        "the first line says what is watched and whether it answers": lambda: [
            shown(session(), "status", 120),
            shown(STORIES["a gap now"], "status"),
            shown([OPENING], "status"),
            shown(wasting(), "status"),
            *(
                shown(session(), "status", look=look)
                for look in (
                    ServerView(paused=True),
                    ServerView(recording=True),
                    ServerView(replaying=True, ended=True),
                )
            ),
        ],
        "a gap is shown with its reason and comes before wasted drafts": lambda: [
            shown([OPENING, GAP], "note"),
            shown([*wasting(), GAP], "note"),
            shown([*wasting(), GAP], "status"),
        ],
        "wasted drafts are told with their share and their time and in fewer words where there is less room": lambda: [
            shown(wasting(), "note", *size) for size in ((120, 2), (80, 3), (80, 1), (40, 1))
        ],
        "how a server drafts is told with what its numbers count": lambda: [
            drafting(drafts, (60, 9)) for drafts in (DRAFTING, Drafting(steps=3))
        ],
        "the summary after the end says that drafts are wasted": lambda: [
            summary(fold(events)) for events in (wasting(), session())
        ],
        "cards hold the last interval over the session and none in a gap": lambda: [
            shown([*BEGUN, structs.replace(reading(1.0), session=figures(1.0, 100, 100))], "cards", 120, 3),
            shown([*session(60), GAP], "cards", 120, 3),
        ],
        "positions are bars of the session with the share of now": lambda: shown(session(), "positions"),
        "positions that are not there are explained": lambda: [
            shown(events, "positions") for events in (STORIES["unreachable"], BEGUN)
        ],
        "more positions than rows are counted": lambda: shown(
            [*BEGUN, Reading(t=1.0, interval=HUGE, session=HUGE)], "positions"
        ),
        "totals tell what was counted and what was missed": lambda: shown([*session(60), GAP, reading(63.0)], "totals"),
        "the rounds of a request are columns under what they come to": lambda: shown([*BEGUN, ANSWER], "answer"),
        "a request that is not answered yet is shown with its time": lambda: shown(
            [*BEGUN, ASKED, reading(4.0)], "answer"
        ),
        "a server that does not tell rounds is said not to and what it tells is shown": lambda: [
            shown([OPENING, server, FIRST, SILENT], "answer", 100)
            for server in (SERVER, structs.replace(SERVER, kind="sglang"))
        ],
        "names that the first line has no room for follow in the next": lambda: [
            shown(session(), "note", width, 2) for width in (80, 200)
        ],
        "a promise that is not kept is told with all findings as far as there is room": lambda: [
            shown(STORIES["promise not kept"], "status"),
            *(shown(STORIES["promise not kept"], "note", *size) for size in ((120, 4), (80, 4), (80, 2), (40, 1))),
        ],
        "a promise that is kept is told with its figures": lambda: [
            shown(STORIES["promise kept"], panel) for panel in ("status", "note")
        ],
        "a finding without a promise is told by its cause": lambda: [
            shown(served(vllm((0.73, 0.02, 0.0)), ""), panel) for panel in ("status", "note")
        ],
        "positions are compared with the promise": lambda: shown(STORIES["promise not kept"], "positions"),
        "figures by load are rows with a bar of their acceptance": lambda: [
            shown(STORIES["promise kept"], "loads", width) for width in (80, 40, 24)
        ],
        "totals tell requests and latency where the server does": lambda: [
            shown(STORIES["promise kept"], "totals", width, 10) for width in (60, 40, 30)
        ],
        "a load that is not told is said not to be": lambda: shown(session(), "loads"),
        "times have their two largest units": lambda: [
            time_text(seconds) for seconds in (0.0, 59.9, 61.0, 3725.0, 1e300)
        ],
        "curve": lambda: load_curve(FALLING, (72, 12), running=20),
        "advice": lambda: "\n".join(advice_lines(advice(FULL), 80)),
        "advice with a tree": lambda: "\n".join(advice_lines(advice(WITH_TREE, "sglang"), 80)),
        "no draft pays": lambda: "\n".join(advice_lines(advice(USELESS), 80)),
        "the axis doubles and marks the present load": lambda: load_curve(FALLING, (100, 12), running=8),
        "one load alone is drawn": lambda: load_curve(LoadCurve((4,), {1: (1.2,)}, (1.2,)), (60, 8)),
        "an interval that contains the break-even is told": lambda: "\n".join(
            advice_lines(advice(profile({"org/Head": draft(constant(0.1), around=0.2)})), 120)
        ),
        "a gap leaves its columns empty": lambda: shown(
            [
                *(*BEGUN, *(reading(float(t)) for t in range(1, 101))),
                *(Gap(t=float(t), reason="x") for t in range(101, 201)),
                *(reading(float(t)) for t in range(201, 301)),
            ],
            *("lengths", 110, 12),
        ),
        "wasted drafts leave when drafts are accepted": lambda: [
            shown([*wasting(), reading(61.0)], panel) for panel in ("note", "status")
        ],
        "break-even is a level line and numbers of tokens cross it": lambda: inked(
            load_curve(replace(FALLING, advised=(2.99,) * len(STREAMS)), (80, 14))
        ),
    }
)
