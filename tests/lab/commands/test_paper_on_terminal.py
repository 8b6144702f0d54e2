"""Tests of a report on a terminal: never wider than the terminal, without colour, and complete."""

import re

import pytest

from dynatui.lab.commands.bench_paper import text
from tests.lab.bench.paper.reports import paper_report, request

FEW = request(prompts=2, lengths=(100, 1500), sets=("wikitext",))


@pytest.fixture(scope="module")
def shown() -> dict[int, str]:
    """Texts of one report by width."""
    report = paper_report(FEW)
    return {width: text(report, width) for width in (20, 80, 100, 200)}


def test_no_line_is_wider_than_the_terminal_or_80_columns_and_nothing_steers_it(shown: dict[int, str]) -> None:
    assert all(max(map(len, told.splitlines())) <= width for width, told in shown.items() if width >= 80)
    assert shown[20] == shown[80]
    assert "[a]" in shown[80]
    hostile = request(prompts=2, sets=("wikitext",), target="\x1b[31mred")
    assert "\x1b" not in shown[80] + text(paper_report(hostile), 80)


@pytest.mark.parametrize("width", [80, 200])
def test_every_figure_is_shown_beside_its_lane_at_any_width(width: int, shown: dict[int, str]) -> None:
    verification = shown[width].partition("Verification efficiency")[2].partition("=====")[0]
    for title in ("accepted %", "L-bar", "l-bar", "rounds", "draft passes", "text"):
        assert title in verification.replace("Text:", "text")
    parts = len(re.findall(r"(?m)^lane  ", verification))
    assert len(re.findall(r"(?m)^phase 3  ", verification)) == parts
    assert (parts > 1) is (width == 80)


def test_lanes_whose_text_differs_are_named_even_where_no_column_has_room() -> None:
    shown = text(paper_report(FEW, different={("phase 1", 0)}), 80)
    main = " ".join(shown.partition("Main results")[2].partition("=====")[0].split())
    assert "Text: phase 1: differs on 1 of 2; streaming: may differ by design; others ar's." in main


def test_verdicts_are_words_and_what_must_be_known_of_a_number_of_the_paper_stands_behind_it(
    shown: dict[int, str],
) -> None:
    claims = shown[100].partition("The paper's claims: WikiText-2")[2]
    verdicts = re.findall(r"(?m)^(holds|does not hold|cannot tell)  ", claims)
    assert len(verdicts) == 13
    assert {"holds", "cannot tell"} == set(verdicts)
    reason = "paper 1.175 (the gain at T=1500 divided by the gain at T=100; at T=100, AR reached"
    assert reason in " ".join(claims.split())


def test_of_sampled_texts_it_says_why_there_are_no_claims(shown: dict[int, str]) -> None:
    sampled = text(paper_report(request(prompts=2, sets=("wikitext",), temperature=0.6)), 200)
    assert "are about greedy decoding; here tokens were sampled" in sampled.partition("The paper's claims\n")[2]
    assert "greedy decoding; here" not in shown[200]
