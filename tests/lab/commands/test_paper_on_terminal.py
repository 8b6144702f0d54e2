"""Tests of main results and claims on a terminal: never wider than the terminal, without colour, and complete."""

import re

import pytest
from msgspec import structs

from dynatui.lab.commands.bench_paper import text
from tests.lab.bench.paper.reports import interrupted, paper_report, request

FEW = request(prompts=2, lengths=(100, 1500), sets=("wikitext",))


@pytest.fixture(scope="module")
def shown() -> dict[int, str]:
    """Texts of one report by width."""
    report = paper_report(structs.replace(FEW, target="\x1b[31mred"), different={("phase 1", 0)})
    return {width: text(report, width) for width in (20, 80, 150)}


def test_no_line_is_wider_than_the_terminal_or_80_columns_and_nothing_steers_it(shown: dict[int, str]) -> None:
    assert all(max(map(len, told.splitlines())) <= width for width, told in shown.items() if width >= 80)
    assert shown[20] == shown[80]
    assert "\x1b" not in shown[80]
    assert re.search(r"phase 3 +\d+\.\d ±\d\.\d, .* 219\.5 ±22\.2", shown[150])
    assert re.search(r"phase 1 .* differs on 1 of 2\n", shown[150])
    assert "[a] from the authors' logs, not in any version of the paper." in shown[80]


def test_verdicts_are_words_and_what_must_be_known_of_a_number_of_the_paper_stands_behind_it(
    shown: dict[int, str],
) -> None:
    claims = shown[150].partition("The paper's claims: WikiText-2")[2]
    verdicts = re.findall(r"(?m)^ • (holds|does not hold|cannot tell): ", claims)
    assert len(verdicts) == 13
    assert {"does not hold", "cannot tell"} == set(verdicts)
    reason = "must be over 1; paper 1.175 (the gain at T=1500 divided by the gain at T=100; at T=100, AR reached"
    assert reason in " ".join(claims.split())


def test_of_sampled_texts_it_says_why_there_are_no_claims_and_without_main_results_it_names_the_noise() -> None:
    sampled = paper_report(structs.replace(FEW, temperature=0.6, experiments=FEW.experiments[1:2]))
    told = text(interrupted(sampled), 200)
    assert "are about greedy decoding; here tokens were sampled" in told
    assert "turns were disturbed" in told
    assert "INTERRUPTED" in told
