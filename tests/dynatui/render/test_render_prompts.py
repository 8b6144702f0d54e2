"""The table of prompts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from decoder.events import Figures
from dynatui.render.prompts import prompts
from dynatui.render.scene import Scene
from dynatui.state.run_state import Prompt
from dynatui.state.session_log import Result
from tests.dynatui.scripted_runs import lines, running, state_of

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
    """A scene with results of several prompts; `changed` is what the second one has otherwise."""
    results = {
        number: Result(f"Prompt number {number}", "dynatree", FIGURES, done=True) for number in range(1, count + 1)
    }
    if changed:
        results[2] = replace(results[2], figures=structs.replace(FIGURES, **changed))
    return Scene(state_of([Prompt(current, count)]), results=results)


def test_a_row_tells_what_became_of_a_prompt() -> None:
    page = lines(prompts(table(2), 116, 8))
    assert page[1].split()[1:-1] == [
        "prompt",
        "tokens",
        "L-bar",
        "depth",
        "acc.",
        "tokens/s",
        "x",
        "ar",
        "same",
        "as",
        "ar",
    ]
    assert page[2].split()[1:-1] == ["▸1", "Prompt", "number", "1", "30", "3.00", ".50", "300", "2.00", "yes"]


def test_the_last_row_adds_up_and_weighs_by_rounds_and_time() -> None:
    counts = {"rounds": 30, "committed": 60}
    changed = {**counts, "depth_acceptance": 0.9, "decode_s": 0.3, "tokens_per_second": 200.0, "speedup": 0.5}
    page = lines(prompts(table(2, changed=changed), 116, 8))
    assert page[4].split()[1:-1] == [
        *("all", "2", "together;", "x", "ar:", "geometric", "mean"),
        *("90", "2.25", ".80", "225", "1.00", "2", "of", "2"),
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


def test_in_a_narrow_panel_rate_and_tokens_per_round_stay() -> None:
    head = lines(prompts(table(2), 46, 8))[1]
    assert "tokens/s" in head
    assert "L-bar" in head
    assert "same" not in head


def test_before_the_first_figures_it_says_so() -> None:
    assert "the first figures come with the first round" in lines(prompts(Scene(), 60, 5))[1]


def test_the_prompt_that_is_decoded_now_is_in_the_table() -> None:
    assert lines(prompts(running(), 116, 8))[2].split()[1:5] == ["▸1", "Once", "upon", "18"]
    again = replace(running(), results=table(2).results)
    assert "Once upon" in lines(prompts(again, 116, 8))[2]
    assert "Prompt number 2" in lines(prompts(again, 116, 8))[3]


def test_with_height_to_spare_the_figures_explain_themselves() -> None:
    page = "\n".join(lines(prompts(table(2), 116, 20)))
    assert "= committed / rounds" in page
    assert "(Spec-Bench)" in page
