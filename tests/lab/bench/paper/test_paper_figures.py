"""Contents of the paper's figures, read from matplotlib's objects."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from msgspec import structs

from dynatui.lab.bench.paper.figures import FIGURES
from dynatui.lab.bench.paper.marks import SETTINGS
from dynatui.lab.bench.paper.report import PaperReport, Row
from tests.lab.bench.paper.reports import TREES, VARIED, interrupted, paper_report, request, row_of

WHOLE = paper_report()
SMALLEST = paper_report(request(prompts=1, lengths=(64,)))
LENGTHS = (100, 200, 500, 1000, 1500)
OF_TREES = {"ablation_progression", "parameter_sensitivity", "fixed_tree_sweep"}


@pytest.fixture(autouse=True)
def _in_style() -> Iterator[None]:
    with style.context([dict(SETTINGS)], after_reset=True):
        yield


@cache
def of_whole(name: str) -> Figure | None:
    return FIGURES[name](WHOLE)


def drawn(name: str, report: PaperReport = WHOLE) -> Any:
    return of_whole(name) if report is WHOLE else FIGURES[name](report)


def points(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())]


def curves(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Points of each curve, by label."""
    found = [each for each in axes.containers if isinstance(each, ErrorbarContainer) and each.lines[0]]
    return {str(each.get_label()): points(each.lines[0]) for each in found}


def heights(axes: Axes) -> list[list[float]]:
    """Heights of the bars of each data set."""
    found = [each for each in axes.containers if isinstance(each, BarContainer)]
    return [[bar.get_height() for bar in each.patches] for each in found]


def cells(axes: Axes) -> list[str]:
    """Values in a heat map, starting with the lowest row."""
    return [text.get_text() for text in sorted(axes.texts, key=lambda text: text.get_position()[::-1])]


def whiskers(axes: Axes) -> list[tuple[float, float]]:
    """Lower and upper end of each drawn whisker."""
    found = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    segments = [segment for each in found for bars in each.lines[2] for segment in bars.get_segments()]
    return [(float(segment[0][1]), float(segment[1][1])) for segment in segments if len(segment)]


def names(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_xticklabels()]


def small_lines(figure: Figure) -> str:
    return figure.get_supxlabel().replace("\n", " ")


def mean(report: PaperReport, key: str, lane: str, experiment: str = "main", **which: Any) -> float:
    return row_of(report, lane, experiment, **which).stats[key].value


def changed(change: Callable[[Row], Row | None]) -> PaperReport:
    return replace(WHOLE, rows=[found for row in WHOLE.rows if (found := change(row))])


def without_nodes(row: Row) -> Row:
    stats = {key: stat for key, stat in row.stats.items() if key != "nodes_per_round"}
    return replace(row, stats=stats) if row.lane.name == "assisted 20/.4" else row


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_what_it_shows_and_of_what(name: str) -> None:
    machine = structs.replace(WHOLE.header.machine, accelerator="NVIDIA H200")
    figure = drawn(name, interrupted(replace(WHOLE, header=structs.replace(WHOLE.header, machine=machine))))
    for axes in figure.axes:
        assert axes.get_ylabel()
        assert axes.get_xlabel() or all(names(axes)) or axes.get_shared_x_axes().get_siblings(axes) != [axes]
    lines = small_lines(figure)
    assert lines.startswith("target target, draft draft · NVIDIA H200, float32 · 2026-01-01 WikiText-2")
    assert "the measurement is not complete" in lines


@pytest.mark.parametrize("name", FIGURES)
def test_one_prompt_of_one_length_is_enough_but_has_no_whiskers_and_nothing_is_drawn_of_nothing(name: str) -> None:
    figure = drawn(name, SMALLEST)
    figure.draw_without_rendering()
    assert "T = 64 new tokens" in small_lines(figure)
    assert not [ends for axes in figure.axes for ends in whiskers(axes)]
    assert "intervals" not in small_lines(figure)
    assert FIGURES[name](replace(WHOLE, rows=[])) is None
    plain = changed(lambda row: row if row.lane.name == "ar" else None)
    assert (FIGURES[name](plain) is None) == (name in OF_TREES)


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            lambda: paper_report(different=[("phase 3", 0)]),
            "speeds include only prompts on which the text equals the text of ar",
        ),
        (lambda: WHOLE, "a processor, 1 of 2 cores, float32"),
        (
            lambda: paper_report(request(target="/home/用/$x^{$", draft="a\x1b[31m\ud800b")),
            "target /home/?/$x^{$, draft a?[31m?b",
        ),
    ],
    ids=["other texts", "no accelerator", "names from outside"],
)
def test_what_must_be_known_of_lanes_and_device_is_said_below(report: Callable[[], PaperReport], line: str) -> None:
    figure = drawn("main_results_bars", report())
    figure.draw_without_rendering()
    assert line in small_lines(figure)


def test_a_lane_with_an_unknown_number_of_nodes_is_no_point() -> None:
    shown = [text.get_text() for text in drawn("speed_against_nodes", changed(without_nodes)).axes[0].texts]
    assert "DynaTree" in shown
    assert "HF assisted" not in shown


def test_the_fastest_lane_stands_for_all_on_each_data_set() -> None:
    slow = paper_report(slower={"linear K=8": 2.0})
    assert "Linear K5" in names(drawn("main_results_bars", slow).axes[0])
    absent = {"wikitext": "linear K=5", "books": "linear K=8"}
    report = changed(lambda row: None if absent[row.text_set.name] == row.lane.name else row)
    assert "Linear K8\nLinear K5" in names(drawn("main_results_bars", report).axes[0])


def test_bars_are_as_high_as_means_on_both_data_sets_and_whiskers_end_where_intervals_do() -> None:
    main = ("ar", "linear K=8", "fixed D8 B3", "phase 3"), ["AR", "Linear K8", "Fixed D8B3", "DynaTree"]
    steps = ("fixed D5 B2", "phase 1", "phase 2", "phase 3"), ["Fixed D5B2", "Phase 1", "Phase 2", "DynaTree"]
    for figure, (lanes, labels), keys in (
        ("main_results_bars", main, {"tokens_per_second": 1, "speedup": 1}),
        (
            "ablation_progression",
            steps,
            {"tokens_per_second": 1, "tokens_per_round": 1, "rounds": 1, "paper_acceptance": 100},
        ),
    ):
        for axes, (key, scale) in zip(drawn(figure).axes, keys.items(), strict=True):
            assert names(axes) == labels
            for place, data_set in enumerate(("wikitext", "books")):
                shown = [scale * mean(WHOLE, key, lane, data_set=data_set) for lane in lanes]
                assert heights(axes)[place] == pytest.approx(shown)
    stat: Any = row_of(WHOLE, "phase 3").stats["tokens_per_second"]
    assert pytest.approx((stat.low, stat.high)) in whiskers(drawn("main_results_bars").axes[0])


@pytest.mark.parametrize(("missing", "stages"), [("fixed D5 B2", 0), ("phase 1", 0), ("phase 2", 2), ("phase 3", 3)])
def test_ablation_ends_where_a_step_is_missing(missing: str, stages: int) -> None:
    figure = FIGURES["ablation_progression"](changed(lambda row: None if row.lane.name == missing else row))
    assert (len(names(figure.axes[0])) if figure else 0) == stages


def test_four_panels_run_over_all_lengths() -> None:
    keys = {"tokens_per_second": 1, "tokens_per_round": 1, "paper_path_length": 1, "paper_acceptance": 100}
    lanes = ["AR", "Linear K8", "Fixed D8B3", "DynaTree"]
    for place, (axes, (key, scale)) in enumerate(
        zip(drawn("length_scaling_fourpanel").axes, keys.items(), strict=True)
    ):
        expected = [(length, scale * mean(WHOLE, key, "phase 3", length=length)) for length in LENGTHS]
        assert curves(axes)["DynaTree"] == pytest.approx(expected)
        assert axes.get_xlabel() == "T, new tokens"
        assert list(curves(axes)) == lanes[place >= 2 :]


def test_prompt_length_runs_over_the_longest_prompts_in_their_unit() -> None:
    left, right = drawn("prompt_length_sensitivity").axes
    expected = [(most, mean(WHOLE, "speedup", "phase 3", "prompt_length", most=most)) for most in (100, 300, 800)]
    assert curves(right)["DynaTree"] == pytest.approx(expected)
    assert left.get_xlabel() == "longest prompt (characters)"
    tokens = changed(lambda row: replace(row, experiment=structs.replace(row.experiment, unit="tokens")))
    assert drawn("prompt_length_sensitivity", tokens).axes[0].get_xlabel() == "longest prompt (tokens)"


def test_sensitivity_has_a_cell_for_each_setting_of_a_pair_and_names_other_speeds_below() -> None:
    figure = drawn("parameter_sensitivity")
    thresholds, breadth, depth = figure.axes
    shown = [f"{mean(WHOLE, 'tokens_per_second', lane.name, 'sensitivity'):.0f}" for lane in VARIED]
    by_lane = dict(zip([lane.name for lane in VARIED], shown, strict=True))
    order = [f"tau_h={sure} tau_l={unsure}" for sure, unsure in ((0.8, 0.3), (0.9, 0.3), (0.8, 0.4), (0.9, 0.5))]
    assert cells(thresholds) == [by_lane[name] for name in order]
    assert (names(breadth), len(cells(breadth))) == (["2", "3", "4"], 3)
    assert cells(depth) == [by_lane[name] for name in ("d0=4 d_max=6", "d0=6 d_max=8", "d0=8 d_max=12")]
    assert f"for comparison, tokens/s: AR {mean(WHOLE, 'tokens_per_second', 'ar'):.0f}" in small_lines(figure)


def test_a_cell_is_the_fastest_setting_with_its_two_values() -> None:
    def fastest(key: str, **where: float) -> float:
        trees = [
            row_of(WHOLE, lane.name, "fixed_trees").stats for lane in TREES if lane.parameters.items() >= where.items()
        ]
        return max(trees, key=lambda stats: stats["speedup"].value)[key].value

    by_breadth, by_threshold, path = drawn("fixed_tree_sweep").axes
    shapes = [{"depth": depth, "branching": breadth} for depth in (3, 5, 8) for breadth in (2, 3)]
    assert cells(by_breadth) == [f"{fastest('speedup', **shape):.2f}" for shape in shapes]
    assert cells(path) == [f"{fastest('paper_path_length', **shape):.2f}" for shape in shapes]
    cuts = [{"depth": depth, "tau": tau} for depth in (3, 5, 8) for tau in (0.02, 0.05, 0.1)]
    assert cells(by_threshold) == [f"{fastest('speedup', **cut):.2f}" for cut in cuts]
    assert (by_breadth.get_ylabel(), by_breadth.get_xlabel()) == ("depth D (levels)", "branching B (children)")
    (frame,) = by_breadth.patches
    assert frame.get_xy() == pytest.approx((-0.46, 1.54)), "the tree of depth 8 and branching 2 is the fastest"


def test_every_lane_is_a_point_over_its_nodes_and_the_root_and_no_name_covers_another() -> None:
    figure = drawn("speed_against_nodes")
    speed, cost = figure.axes
    found = [point for line in speed.lines for point in points(line)]
    for lane in ("ar", "linear K=8", "phase 3", "no pruning"):
        assert (mean(WHOLE, "nodes_per_round", lane) + 1, mean(WHOLE, "speedup", lane)) in found
    assert (WHOLE.header.costs.rows, "ms" in cost.get_ylabel()) == ((1, 8, 64), True)
    assert curves(cost)["cost (right axis)"] == pytest.approx([(1, 7), (8, 8), (64, 12)])
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in speed.texts]  # excludes the line to the point
    assert len(boxes) == 15
    assert not [one for place, one in enumerate(boxes) if one.count_overlaps(boxes[place + 1 :])]
