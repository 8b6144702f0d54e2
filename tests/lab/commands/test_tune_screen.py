"""Tests of the display during tuning."""

import io
import sys
from dataclasses import replace

import pytest

from decoder.analysis.interval import Interval
from decoder.sampling.settings import Sampling
from dynatui.lab.commands.tune_report import Lines, line, screen, watching
from dynatui.lab.tuning.search import Leader, Setting
from dynatui.lab.tuning.study import trees
from tests.lab.commands.made_tuning import CURRENT, SHARES, SHIPPED_ONES, TREE_FOUND, WHERE, progress


def test_the_screen_tells_the_best_what_matters_and_the_time_left() -> None:
    assert screen(progress(), 80) == [
        "org/large with org/small on cpu in float32",
        "searching     80 s left, then 90 s to check the result on other texts",
        "trials        37 settings tried, 29 stopped early",
        "",
        "best so far   setting 23, 1.11 times the preset tuned, on the search's texts",
        "              1.22x plain decoding",
        "              --tau-l 0.1 --d0 3 --rho-stop 0.01 --rho-deep 0.2 --n-max 6",
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


def test_the_check_says_how_far_it_has_come() -> None:
    shown = screen(progress(checking=True, current=None), 80)
    assert shown[1] == "checking      80 s left; so far checked on 12 other texts"
    assert "now           -" in shown


def test_the_beginning_is_shown_too() -> None:
    shown = screen(progress(leaders=SHIPPED_ONES, trials=0, pruned=0, current=None, importance={}), 80)
    assert "best so far   the preset tuned" in shown
    assert "              ?x plain decoding" in shown
    assert "linear        as shipped, ?x plain decoding" in shown
    assert "what matters  not known yet: too few settings were tried" in shown


def test_a_sampled_search_begins_with_the_default_preset_for_sampled_tokens() -> None:
    conditions = replace(WHERE, sampling=Sampling(0.6))
    leaders = SHIPPED_ONES | {"dynatree": Leader(Setting("dynatree", trees(0.6).shipped))}
    shown = screen(replace(progress(leaders=leaders), conditions=conditions), 80)
    assert "best so far   the preset sampled" in shown
    assert "              as shipped" in shown


def test_settings_that_wrote_another_text_are_counted() -> None:
    assert (
        "37 settings tried, 29 stopped early, 1 with a wrong text"
        in screen(progress(wrong=(Setting("dynatree", TREE_FOUND),)), 80)[2]
    )


@pytest.mark.parametrize("width", [1, 20, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_24_lines_suffice(width: int) -> None:
    long = replace(progress(), conditions=replace(progress().conditions, target="org/" + "x" * 300))
    shown = screen(long, width)
    assert all(len(each) <= width for each in shown)
    assert width < 80 or len(shown) < 24


def test_names_of_models_cannot_steer_the_terminal() -> None:
    hostile = replace(progress(), conditions=replace(progress().conditions, target="\x1b[2Jx\ny"))
    assert screen(hostile, 80)[0].startswith("␛[2Jx␊y with")


def test_without_a_terminal_a_line_says_what_is_new() -> None:
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


def test_where_standard_error_is_no_terminal_lines_are_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with watching() as watch:
        watch(progress())
    assert capsys.readouterr().err == f"dynatui: {line(progress())}\n"
    monkeypatch.setattr(sys, "stderr", None)
    with watching() as watch:
        watch(progress())


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


def test_only_a_few_knobs_fit() -> None:
    many = {f"knob{number}": 0.05 for number in range(20)}
    assert len(screen(progress(importance=SHARES | many), 80)) < 24
