"""Tests of the table of prompts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Figures
from dynatui.render.ink import width_of
from dynatui.render.prompts import chosen, listed, prompts
from dynatui.render.scene import Scene
from dynatui.session import Symbols
from dynatui.state.run_state import Failure, Prompt
from dynatui.state.session_log import Result, opening_of
from tests.dynatui.render.extreme_scenes import SIZES
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import HOSTILE, lines, run, running, state_of

FIGURES = Figures(
    rounds=10,
    committed=30,
    tokens_per_round=3.0,
    depth_acceptance=0.5,
    decode_s=0.1,
    tokens_per_second=300.0,
    speedup=2.0,
    identical_to_ar=True,
)


def table(count: int, current: int = 1, changed: Mapping[str, Any] | None = None) -> Scene:
    results = {
        number: Result(f"Prompt number {number}", "dynatree", FIGURES, done=True) for number in range(1, count + 1)
    }
    if changed:
        results[2] = replace(results[2], figures=structs.replace(FIGURES, **changed))
    return Scene(state_of([Prompt(current, count)]), results=results)


def test_the_last_row_adds_up_and_weighs_by_rounds_and_time() -> None:
    counts = {"rounds": 30, "committed": 60}
    changed = {**counts, "depth_acceptance": 0.9, "decode_s": 0.3, "tokens_per_second": 200.0, "speedup": 0.5}
    page = lines(prompts(table(2, changed=changed), 116, 8))
    assert page[4].split()[1:-1] == [
        *("all", "2", "together;", "x", "plain:", "geometric", "mean"),
        *("90", "2.25", "0.80", "225", "1.00", "2", "of", "2"),
    ]


def test_the_rate_of_all_prompts_weighs_by_the_time_of_what_rates_are_of() -> None:
    changed = {"committed": 60, "decode_s": 1.3, "left_out_s": 1.0, "tokens_per_second": 200.0}
    assert lines(prompts(table(2, changed=changed), 116, 8))[4].split()[-6] == "225"


@pytest.mark.parametrize(
    ("same", "near", "words"),
    [(None, None, "-"), (False, True, "near tie"), (False, False, "NO"), (False, None, "differs")],
)
def test_whether_the_text_is_ars_is_said_in_words(*, same: bool | None, near: bool | None, words: str) -> None:
    row = lines(prompts(table(2, changed={"identical_to_ar": same, "near_tie": near}), 116, 8))[3]
    assert row.rstrip("│ ").endswith(words)


@pytest.mark.parametrize("current", [1, 7, 20])
def test_the_table_scrolls_to_the_current_prompt(current: int) -> None:
    page = lines(prompts(table(20, current), 80, 9))
    assert any(f"▸{current} " in row for row in page)
    assert len(page) == 9


def test_before_the_first_figures_it_says_so() -> None:
    assert "the first figures appear with the first round" in lines(prompts(Scene(), 60, 5))[1]


def test_the_prompt_that_is_decoded_now_is_in_the_table() -> None:
    assert lines(prompts(running(), 116, 8))[2].split()[1:5] == ["▸1", "Once", "upon", "18"]
    again = replace(running(), results=table(2).results)
    assert "Once upon" in lines(prompts(again, 116, 8))[2]
    assert "Prompt number 2" in lines(prompts(again, 116, 8))[3]


OPENINGS = ("The door opened", "A ship sailed", "The moon rose", "Rain fell")


def test_a_prompt_without_figures_says_why() -> None:
    scene = Scene(state_of([Prompt(2, 4), run(prompt="A ship sailed")]), openings=OPENINGS)
    assert [row.rstrip("│ ").split()[-1] for row in lines(prompts(scene, 90, 7))[2:6]] == [
        *("waiting", "running", "waiting", "waiting")
    ]
    failed = replace(scene, state=state_of([Prompt(2, 4), Failure("no memory", 3)]))
    assert "failed" in lines(prompts(failed, 90, 7))[3]
    assert "not played" in lines(prompts(replace(scene, replaying=True), 90, 7))[2]


def test_the_cursor_leaves_the_running_prompt_marked() -> None:
    page = lines(prompts(replace(running(), openings=OPENINGS, chosen_prompt=3), 90, 9))
    assert "●1" in page[2]
    assert "▸3" in page[4]


@pytest.mark.parametrize("height", [3, 4, 5, 9])
def test_the_list_scrolls_to_the_cursor(height: int) -> None:
    scene = Scene(state_of([Prompt(1, 40)]), openings=[f"Number {number}" for number in range(1, 41)], chosen_prompt=33)
    page = lines(prompts(scene, 60, height))
    assert any("▸33" in row for row in page) or height == 3


def test_a_filter_lists_the_prompts_that_hold_its_words_and_the_title_says_so() -> None:
    scene = replace(running(), openings=OPENINGS, prompt_filter="THE")
    page = lines(prompts(scene, 90, 9))
    assert '"THE" 1 listed' in page[0]
    assert "esc lists all" in page[0]
    assert listed(scene) == [3]
    assert chosen(scene, [3]) == 3
    nothing = lines(prompts(replace(scene, prompt_filter="sun"), 90, 9))
    assert 'no prompt contains "sun"' in nothing[1]


@pytest.mark.parametrize("symbols", ["braille", "ascii"])
@given(size=SIZES, chosen_prompt=st.none() | st.integers(-5, 10**12), words=st.sampled_from(["", "x", HOSTILE, "世界"]))
@settings(max_examples=60)
def test_any_list_fits_any_size(symbols: Symbols, size: tuple[int, int], chosen_prompt: int | None, words: str) -> None:
    scene = replace(
        running(),
        symbols=symbols,
        openings=tuple(map(opening_of, (HOSTILE, "世界" * 60, "", "x"))),
        chosen_prompt=chosen_prompt,
        prompt_filter=words,
    )
    rows = prompts(scene, *size)
    assert [width_of(row) for row in rows] == [size[0]] * size[1]
    assert not any(sign in row for row in lines(rows) for sign in "\x1b\x07\x9b\u202e\r")


test_golden = golden(
    {
        "a row tells what became of a prompt": lambda: prompts(table(2), 116, 8),
        "in a narrow panel rate and tokens per round stay": lambda: prompts(table(2), 46, 8),
        "all prompts are listed whether they ran or not": lambda: prompts(
            replace(running(), openings=OPENINGS), 116, 9
        ),
        "with height to spare the figures explain themselves": lambda: prompts(table(2), 116, 20),
    }
)
