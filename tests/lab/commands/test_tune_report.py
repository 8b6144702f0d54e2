"""The report on a tuning, whose words claim no more than was measured, and the display during it."""

import io
import sys
from dataclasses import replace
from typing import Any

import pytest

from decoder.analysis.interval import Interval
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling
from dynatui.lab.commands.tune_report import Lines, comments, how, line, screen, text, times, watching
from dynatui.lab.tuning.outcome import TuneProgress
from dynatui.lab.tuning.search import Leader, MethodSetting
from dynatui.lab.tuning.study import trees
from tests.lab.commands.made_tuning import CURRENT, SHARES, SHIPPED_ONES, TREE_FOUND, WHERE, progress, tuned

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


def test_the_screen_tells_the_best_what_matters_and_the_time_left() -> None:
    assert screen(progress(), 80) == [
        "org/large with org/small on cpu in float32",
        "searching     80 s left, then 90 s to check the result on other texts",
        "trials        37 settings tried, 29 stopped early",
        "",
        "best so far   setting 23, 1.11 times the preset tuned, on the search's texts",
        "              1.22x plain decoding",
        "              --tau-l 0.1 --d0 3 --rho-stop 0.01 --rho-deep 0.2 --n-max 9",
        "linear        --k 4, 1.11x plain decoding",
        "",
        "now           dynatree, 4 of 16 texts: 0.97 (0.93-1.02) times the best",
        "",
        "what matters  n_max       50% ###############",
        "              rho_stop    20% ######",
        "              tau_h       10% ###",
        "              d0           8% ##",
        "              tau_l        5% ##",
        "              d_max        4% #",
        "              rho_deep     3% #",
        "              branching    0% ",
        "              history      0% ",
        "",
        "Ctrl-C: end the search, then check. Twice: quit, nothing is written.",
    ]


@pytest.mark.parametrize("width", [1, 20, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_24_lines_suffice(width: int) -> None:
    many = SHARES | {f"knob{number}": 0.05 for number in range(20)}
    long = replace(progress(importance=many), conditions=replace(WHERE, target="org/" + "x" * 300))
    shown = screen(long, width)
    assert all(len(each) <= width for each in shown)
    assert width < 80 or len(shown) < 24


def test_without_a_terminal_a_line_says_what_is_new(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with watching() as watcher:
            watcher(progress())
        monkeypatch.setattr(sys, "stderr", None)
    assert capsys.readouterr().err == f"dynatui: {line(progress())}\n"
    said, now = list[str](), [0.0]
    watch = Lines(said.append, lambda: now[0])
    watch(progress(leaders=SHIPPED_ONES))
    watch(progress(leaders=SHIPPED_ONES, trials=38))
    assert len(said) == 1
    now[0] = 31.0
    watch(progress(leaders=SHIPPED_ONES))
    watch(progress())
    watch(progress(checking=True))
    assert [each.partition(":")[0] for each in said] == ["searching"] * 3 + ["checking on other texts"]
    assert (
        said[2]
        == line(progress())
        == (
            "searching: 37 settings tried, 29 stopped early; best so far: setting 23, 1.11 times the preset tuned, on "
            "the search's texts; 80 s left, then the check"
        )
    )


def test_on_a_terminal_the_screen_is_drawn_over_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setattr(sys, "stderr", terminal)
    with watching() as watch:
        watch(progress())
        first = terminal.getvalue()
        watch(progress(current=replace(CURRENT, texts=5, ratio=Interval(value=1.5, low=None, high=None))))
    assert "best so far   setting 23" in first
    assert "5 of 16 texts: 1.50 times the best" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K" * 2)


def test_what_is_not_known_is_a_dash_and_how_texts_were_sampled_is_told() -> None:
    assert (times(None), times(Interval(value=1.5, low=None, high=None))) == ("-", "1.50")
    assert how(replace(WHERE, sampling=Sampling(0.6, 40, 0.9))).startswith("T 0.6, top-k 40, top-p 0.9, 64 tokens")
    assert how(replace(WHERE, sampling=Sampling(1.0))).startswith("T 1, 64 tokens")


def test_settings_that_were_left_out_are_counted_with_the_reason() -> None:
    found, setting = tuned(1.2), MethodSetting("dynatree", TREE_FOUND)
    state = replace(found.state, too_large=(setting,), wrong=(setting,), trials=1)
    heading = " ".join(text(replace(found, state=state), "mine").partition("\n\n")[0].split())
    assert "1 setting tried on 16 texts; 29 of the settings stopped early." in heading
    assert "1 setting left out: too large for the device's memory." in heading
    assert "1 setting left out, since the generated text differs from the text of plain decoding. This is" in heading


BEGUN: dict[str, Any] = {"leaders": SHIPPED_ONES, "trials": 0, "pruned": 0, "current": None, "importance": {}}
SAMPLED_ONES = SHIPPED_ONES | {"dynatree": Leader(MethodSetting("dynatree", trees(0.6).shipped))}


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        (
            progress(checking=True, current=None),
            {"checking      80 s left; so far checked on 12 other texts", "now           -"},
        ),
        (
            progress(**BEGUN),
            {
                "best so far   the preset tuned",
                "              ?x plain decoding",
                "linear        as shipped, ?x plain decoding",
                "what matters  not known yet: too few settings were tried",
            },
        ),
        (
            replace(progress(leaders=SAMPLED_ONES), conditions=SAMPLED),
            {"best so far   the preset sampled", "              as shipped"},
        ),
        (
            progress(wrong=(MethodSetting("dynatree", TREE_FOUND),)),
            {"trials        37 settings tried, 29 stopped early, 1 with a wrong text"},
        ),
        (
            replace(progress(), conditions=replace(WHERE, target="\x1b[2Jx\ny")),
            {"␛[2Jx␊y with org/small on cpu in float32"},
        ),
    ],
    ids=["the check", "the beginning", "sampled texts", "wrong texts", "a hostile name"],
)
def test_the_screen_tells_what_is_going_on(shown: TuneProgress, lines: set[str]) -> None:
    assert lines <= {*screen(shown, 80)}
