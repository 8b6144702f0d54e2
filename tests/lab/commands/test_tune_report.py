"""The report on a tuning, whose words claim no more than was measured."""

from dataclasses import replace
from typing import Any

import pytest

from decoder.analysis.interval import Interval
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling
from dynatui.lab.commands.tune_report import comments, how, text, times
from dynatui.lab.tuning.search import Trials
from tests.lab.commands.made_tuning import WHERE, tuned

SAMPLED = replace(WHERE, sampling=Sampling(0.6))
NOT_FASTER = "The result of the search is not faster than the preset tuned on other texts: "
NOT_FOUND = "The search found nothing faster than the preset tuned; nothing was written."
BEST = "the fastest by more than noise."
PLAIN = "Nothing is faster than plain decoding by more than noise; use --methods ar."
WRONG = (
    "mine wrote a text that differs from that of plain decoding. This is a bug; please report it. The result of the "
)
WRONG += "search cannot be used; nothing was written."


@pytest.mark.parametrize(
    ("given", "verdict", "advice"),
    [
        (
            {"gain": 1.2},
            "mine is faster than the preset tuned: 1.20 (1.19-1.25) times as fast.",
            f"Use --methods dynatree --preset mine, {BEST}",
        ),
        ({"gain": 1.02, "sure": False}, f"{NOT_FASTER}1.02 (0.72-1.07) times as fast; nothing was written.", PLAIN),
        (
            {"gain": 0.9, "shipped": 1.5},
            f"{NOT_FASTER}0.90 (0.89-0.95) times as fast; nothing was written.",
            f"Use --methods dynatree --preset tuned, {BEST}",
        ),
        ({"gain": None, "linear": 1.5}, NOT_FOUND, f"Use --methods linear --k 4, {BEST}"),
        ({"gain": None, "shipped_chain": 1.5}, NOT_FOUND, f"Use --methods linear --k 5, {BEST}"),
        (
            {"gain": 1.1, "auto": 1.5},
            "mine is faster than the preset tuned: 1.10 (1.09-1.15) times as fast.",
            "Nothing is faster than auto by more than noise; use --methods auto.",
        ),
        ({"gain": 1.2, "wrong": frozenset({"found"})}, WRONG, PLAIN),
        ({"gain": 1.005}, "mine is as fast as the preset tuned, within noise: 1.00 (0.99-1.05) times as fast.", PLAIN),
    ],
)
def test_the_verdict_claims_no_more_than_was_measured(given: dict[str, Any], verdict: str, advice: str) -> None:
    paragraph = text(tuned(**given), "mine").rstrip().split("\n\n")[-1]
    assert " ".join(paragraph.split()) == f"{verdict} {advice}"


@pytest.mark.parametrize("name", ["mine", "x" * 64])
def test_the_table_has_a_row_for_everyone_and_fits_80_columns(name: str) -> None:
    shown = text(tuned(1.2, auto=1.5), name)
    assert max(map(len, shown.split("\n\n")[1].splitlines())) <= 80
    rows = {row.split()[0] for row in shown.split("\n\n")[1].splitlines()[1:]}
    assert rows == {name if len(name) < 14 else f"{name[:12]}…", "tuned", "auto", "linear", "ar"}
    assert "1.20 (1.19-1.25)" in shown


def test_the_options_of_what_was_found_are_told_but_not_those_of_a_chain_that_may_be_slower() -> None:
    assert "mine: --tau-l 0.1 --d0 3 --rho-stop 0.01 --rho-deep 0.2 --n-max 9 --k 4" in text(tuned(1.2), "mine")
    assert "mine: " not in text(tuned(None), "mine")
    found = tuned(1.2, shipped_chain=1.1)
    assert "--k" not in next(each for each in text(found, "mine").splitlines() if each.startswith("mine: "))
    rows = [row.split()[:2] for row in text(found, "mine").split("\n\n")[1].splitlines()]
    assert ["linear", "4"] in rows
    assert ["linear", "5"] in rows
    assert found.run.of(Linear) == Linear()


def test_the_file_says_where_it_comes_from_and_what_it_is_worth() -> None:
    first, second, third = comments(tuned(1.2))
    assert first.startswith("Found by dynatui tune ")
    assert first.endswith(", 2030-01-02T03:04:05Z.")
    assert second == "org/large with org/small on cpu in float32, greedy, 64 tokens per text, seed 0."
    assert third == "On 20 texts that the search had not used: 1.20 (1.19-1.25) times as fast as the preset tuned."
    assert comments(tuned(1.02, sure=False))[2].endswith("preset tuned, which is within noise.")
    sampled = replace(tuned(gain=1.2), conditions=SAMPLED)
    assert "mine is faster than the preset sampled: 1.20 (1.19-1.25) times as fast." in text(sampled, "mine")
    assert "x sampled" in text(sampled, "mine")
    assert any("times as fast as the preset sampled" in comment for comment in comments(sampled))


def test_what_is_not_known_is_a_dash_and_how_texts_were_sampled_is_told() -> None:
    assert (times(None), times(Interval(value=1.5, low=None, high=None))) == ("-", "1.50")
    assert how(replace(WHERE, sampling=Sampling(0.6, 40, 0.9))).startswith("T 0.6, top-k 40, top-p 0.9, 64 tokens")
    assert how(replace(WHERE, sampling=Sampling(1.0))).startswith("T 1, 64 tokens")


def test_trials_are_counted_with_the_reason_and_the_knobs_that_matter_are_named() -> None:
    found = replace(tuned(1.2), trials=Trials(finished=1, pruned=29, too_large=1, wrong=1))
    heading = " ".join(text(found, "mine").partition("\n\n")[0].split())
    assert "1 setting tried on 16 texts; 29 of the settings stopped early." in heading
    assert "as shares of the variance of the speed: n_max 50%, rho_stop 20%, tau_h 10%, d0 8%." in heading
    assert "1 setting left out: too large for the device's memory." in heading
    assert "1 setting left out, since the generated text differs from the text of plain decoding. This is" in heading
    assert "variance" not in text(replace(found, importance={}), "mine")


def test_a_hostile_name_is_shown_harmlessly() -> None:
    assert "␛[2Jx␊y with org/small" in text(
        replace(tuned(1.2), conditions=replace(WHERE, target="\x1b[2Jx\ny")), "mine"
    )
