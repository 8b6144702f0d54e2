"""Ratios are taken within blocks, between turns with the same text."""

import numpy as np
import pytest
from msgspec import structs

from dynatui.lab.bench.paper.paired import Course, courses, mean, mean_and_std, speed, spread_quotient
from dynatui.lab.bench.paper.records import Turn
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.sampling.request import Place
from tests.lab.bench.paper.reports import paper_report, request

CASES = 120


def course(report: PaperReport) -> Course:
    return next(courses(report, "main"))


def test_a_quotient_is_of_turns_in_the_same_block() -> None:
    report = paper_report(request(prompts=3))
    blocks = list(report.blocks)
    turns = tuple(
        structs.replace(turn, at=tuple(structs.replace(each, tokens_per_second=1.0) for each in turn.at))
        for turn in blocks[0].turns
    )
    blocks[0] = structs.replace(blocks[0], turns=turns)
    found = course(structs.replace(report, blocks=blocks)).quotients("phase 3", "ar", speed)
    assert found[Place(0, "wikitext", 0)] == 1.0
    assert found[Place(0, "wikitext", 1)] > 1.4


def test_texts_that_differ_are_not_compared() -> None:
    found = course(paper_report(request(prompts=3), different={("phase 3", 1)})).quotients("phase 3", "ar", speed)
    assert [place.prompt for place in found] == [0, 2]


def test_repeats_of_a_prompt_are_averaged_before_prompts_are() -> None:
    those = request(prompts=2)
    experiments = tuple(structs.replace(each, repeats=3) for each in those.experiments)
    report = paper_report(structs.replace(those, experiments=experiments))
    assert len(course(report).blocks) == 6
    assert len(course(report).values("ar", speed)) == 2


def test_experiments_that_have_not_begun_have_no_course() -> None:
    report = paper_report(request(prompts=2))
    assert [each.experiment.data_set for each in courses(report, "main")] == ["wikitext", "books"]
    first = [block for block in report.blocks if block.experiment == 0]
    assert [each.experiment.data_set for each in courses(structs.replace(report, blocks=first), "main")] == ["wikitext"]


def test_nothing_has_no_mean() -> None:
    assert mean({}, 0) is None
    assert mean_and_std({}, 0) is None


def test_a_spread_is_a_standard_deviation_on_common_prompts() -> None:
    one = {Place(0, "x", number): float(number % 4) for number in range(20)}
    twice = {place: 2 * value + 7 for place, value in one.items()} | {Place(0, "x", 99): 1000.0}
    found = spread_quotient(twice, one, 0)
    assert found is not None
    assert found.value == pytest.approx(2)


def test_texts_without_any_spread_have_no_quotient_of_spreads() -> None:
    flat = {Place(0, "x", number): 1.0 for number in range(5)}
    assert spread_quotient(flat, flat, 0) is None
    assert spread_quotient({}, flat, 0) is None


def test_a_text_of_another_length_is_another_text() -> None:
    report = paper_report(request(prompts=2))

    def shorter(turn: Turn) -> Turn:
        return structs.replace(turn, at=tuple(structs.replace(each, committed=each.committed - 1) for each in turn.at))

    first, *rest = report.blocks
    turns = tuple(shorter(turn) if turn.lane == "phase 3" else turn for turn in first.turns)
    found = course(structs.replace(report, blocks=[structs.replace(first, turns=turns), *rest]))
    assert [place.prompt for place in found.quotients("phase 3", "ar", speed)] == [1]


def test_a_spread_is_taken_anew_in_every_sample() -> None:
    """With one prompt far from all others, the spread depends on that prompt; samples without it have almost none."""
    far = {Place(0, "x", number): 100.0 if number == 0 else number % 3 for number in range(30)}
    near = {Place(0, "x", number): float((number * 7) % 5) for number in range(30)}
    found = spread_quotient(far, near, 0)
    assert found is not None
    assert found.low is not None
    assert found.low < 1 < found.value


@pytest.mark.parametrize("prompts", [5, 20])
def test_the_interval_of_a_spread_holds_the_truth_in_95_of_100_cases(prompts: int) -> None:
    """An interval that holds the truth in 85 of 100 cases fails with a probability of more than 99 %."""
    draw = np.random.default_rng(1)
    held = 0
    for _ in range(CASES):
        over, under = (
            {Place(0, "x", n): float(value) for n, value in enumerate(draw.normal(size=prompts))} for _ in "ab"
        )
        found = spread_quotient(over, under, 0)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1 <= found.high
    assert held >= 0.94 * CASES
