"""The curve of speed-up over running requests, and advice as lines of text."""

from dataclasses import replace
from itertools import product

import pytest
from rich.cells import cell_len

from dynatui.render.advice import advice_lines
from dynatui.render.ink import Rows
from dynatui.render.load import load_curve
from dynatui.servers.advice import Advice, advised
from dynatui.servers.costs import LoadCurve, named_device, source
from dynatui.servers.engines.table import ENGINES
from dynatui.servers.profile_file import Profile, Trees
from dynatui.session import SYMBOLS, Symbols
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import HOSTILE, lines, text_of
from tests.dynatui.servers.profiles import CODE, WRITING, acceptance, constant, draft, profile

STREAMS = tuple(range(1, 65))
FALLING = LoadCurve(
    STREAMS,
    {1: tuple(1.5 - 0.004 * b for b in STREAMS), 5: tuple(3 - 0.05 * b for b in STREAMS)},
    tuple(max(1.0, 1.5 - 0.004 * b, 3 - 0.05 * b) for b in STREAMS),
)


def place_of(ink: str, rows: Rows) -> set[int]:
    return {y for y, row in enumerate(rows) for text, found in row if found == ink and text.strip(" .0123456789")}


@pytest.mark.parametrize(("symbols", "size"), product(SYMBOLS, [(80, 12), (40, 6), (9, 4), (3, 2), (1, 1), (0, 0)]))
def test_the_curve_has_any_size(symbols: Symbols, size: tuple[int, int]) -> None:
    rows = lines(load_curve(FALLING, size, symbols, running=12.5))
    assert [len(row) for row in rows] == [size[0]] * size[1]


def test_break_even_is_a_level_line_and_numbers_of_tokens_cross_it() -> None:
    rows = load_curve(replace(FALLING, advised=(2.99,) * len(STREAMS)), (80, 14))
    body = rows[1:-2]
    (even,) = place_of("ghost", body)
    fives = place_of("third", body)
    assert min(fives) < even < max(fives)
    assert max(place_of("second", body)) < even


def test_the_axis_doubles_and_marks_the_present_load() -> None:
    rows = lines(load_curve(FALLING, (80, 12), running=8))
    bottom = rows[-2]
    assert bottom.split()[1] == "1"
    assert "requests 64" in bottom
    plot = 80 - 4 - 2 * 5
    assert bottom.index("▲now") == pytest.approx(2 + 5 + plot / 2, abs=1)


def test_one_load_alone_is_drawn() -> None:
    one = LoadCurve((4,), {1: (1.2,)}, (1.2,))
    assert len(load_curve(one, (60, 8))) == 8


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


def test_an_interval_that_contains_the_break_even_is_told() -> None:
    unsure = profile({"org/Head": draft(constant(0.1), around=0.2)})
    told = "\n".join(advice_lines(advice(unsure), 120))
    assert "uncertain at 1, 4, 16, 64 running requests" in told
    assert "uncertain" not in "\n".join(advice_lines(advice(FULL), 120))


test_panels_show_what_they_showed = golden(
    {
        "curve": lambda: load_curve(FALLING, (72, 12), running=20),
        "advice": lambda: "\n".join(advice_lines(advice(FULL), 80)),
        "advice with a tree": lambda: "\n".join(advice_lines(advice(WITH_TREE, "sglang"), 80)),
        "no draft pays": lambda: "\n".join(advice_lines(advice(USELESS), 80)),
    }
)


def test_the_legend_names_the_lines() -> None:
    title = text_of(load_curve(FALLING, (100, 8))[0])
    assert [word in title for word in ("advised", "K 1", "K 5", "break-even")] == [True] * 4
