"""Contents of the paper's figures, read from matplotlib's objects."""

from collections.abc import Callable, Iterator, Sequence
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
from msgspec import to_builtins
from msgspec.structs import replace

from decoder.analysis.interval import Interval
from decoder.methods.dynatree import DynaTree
from dynatui.lab.bench.paper.figures.catalogue import FIGURES
from dynatui.lab.bench.paper.figures.marks import SETTINGS
from dynatui.lab.bench.paper.records import PaperLane
from dynatui.lab.bench.paper.report import LaneSummary, PaperReport
from tests.lab.bench.paper.reports import cell_of, paper_report, request

WHOLE = paper_report()
SMALLEST = paper_report(request(prompts=1, lengths=(64,)))
LENGTHS = (100, 200, 500, 1000, 1500)


@pytest.fixture(autouse=True)
def _in_style() -> Iterator[None]:
    with style.context([dict(SETTINGS)], after_reset=True):
        yield


@cache
def of_whole(name: str) -> Figure | None:
    return FIGURES[name](WHOLE)


def drawn(name: str, report: PaperReport = WHOLE) -> Any:
    return of_whole(name) if report is WHOLE else FIGURES[name](report)


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def points(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())]


def curves(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Points of each curve, by label."""
    found = [each for each in axes.containers if isinstance(each, ErrorbarContainer)]
    return {str(each.get_label()): points(each.lines[0]) for each in found}


def curve(axes: Axes) -> list[tuple[float, float]]:
    """Points of the only curve."""
    (found,) = curves(axes).values()
    return found


def heights(axes: Axes) -> list[list[float]]:
    """Heights of the bars of each data set."""
    found = [each for each in axes.containers if isinstance(each, BarContainer)]
    return [[bar.get_height() for bar in each.patches] for each in found]


def image(axes: Axes) -> list[list[float]]:
    """Values of a heat map, starting with the lowest row."""
    found: list[list[float]] = np.asarray(axes.images[0].get_array()).tolist()
    return found


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
    return cell_of(report, lane, experiment, **which).stats[key].value


def changed(report: PaperReport, change: Callable[[LaneSummary], LaneSummary | None]) -> PaperReport:
    return replace(report, cells=[found for cell in report.cells if (found := change(cell))])


def with_stat(cell: LaneSummary, **means: float) -> LaneSummary:
    given = {key: Interval(value=value, std=0, low=None, high=None) for key, value in means.items()}
    return replace(cell, stats=cell.stats | given)


def with_lanes(lanes: Sequence[PaperLane], speeds: Sequence[float], experiment: str) -> PaperReport:
    """A copy of `WHOLE` in which an experiment has only these lanes, with these speeds."""
    pattern = cell_of(WHOLE, "ar", experiment)
    cells = [
        with_stat(replace(pattern, lane=lane.name), tokens_per_second=100 * speed, speedup=speed)
        for lane, speed in zip(lanes, speeds, strict=True)
    ]
    request = WHOLE.header.request
    experiments = tuple(replace(each, lanes=tuple(lane.name for lane in lanes)) for each in request.experiments)
    header = replace(WHOLE.header, request=replace(request, lanes=tuple(lanes), experiments=experiments))
    return replace(WHOLE, header=header, cells=cells)


def adaptive(name: str, **changes: Any) -> PaperLane:
    parameters = to_builtins(DynaTree()) | changes
    return PaperLane(name=name, method="dynatree", family="dynatree", parameters=parameters)


def fixed(depth: int, branching: int, tau: float, n_max: int = 128) -> PaperLane:
    parameters = {"depth": depth, "branching": branching, "tau": tau, "n_max": n_max}
    return PaperLane(
        name=f"tree {depth} {branching} {tau} {n_max}", method="fixed", family="fixed", parameters=parameters
    )


OF_TREES = {"ablation_progression", "parameter_sensitivity", "fixed_tree_sweep"}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_what_it_shows_and_of_what(name: str) -> None:
    machine = replace(WHOLE.header.machine, accelerator="NVIDIA H200")
    figure = drawn(name, replace(WHOLE, header=replace(WHOLE.header, machine=machine), complete=False))
    for axes in panels(figure):
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
    assert not [ends for axes in panels(figure) for ends in whiskers(axes)]
    assert "intervals" not in small_lines(figure)
    assert FIGURES[name](replace(WHOLE, cells=[])) is None
    plain = changed(WHOLE, lambda cell: cell if cell.lane == "ar" else None)
    assert (FIGURES[name](plain) is None) == (name in OF_TREES)


def without_nodes(cell: LaneSummary) -> LaneSummary:
    stats = {key: stat for key, stat in cell.stats.items() if key != "nodes_per_round"}
    return replace(cell, stats=stats) if cell.lane == "assisted 20/.4" else cell


@pytest.mark.parametrize(
    ("name", "report", "line"),
    [
        (
            "speed_against_nodes",
            lambda: paper_report(different=[("phase 1", prompt) for prompt in range(5)]),
            "no speed is shown for Phase 1: the text differs from the text of ar",
        ),
        (
            "main_results_bars",
            lambda: paper_report(different=[("phase 3", 0)]),
            "the speed of DynaTree includes only prompts on which the text equals the text of ar",
        ),
        ("main_results_bars", lambda: WHOLE, "a processor, 1 of 2 cores, float32"),
        (
            "speed_against_nodes",
            lambda: changed(WHOLE, without_nodes),
            "number of verified nodes is unknown for: HF assisted",
        ),
    ],
    ids=["no speed", "other texts", "no accelerator", "unknown nodes"],
)
def test_what_must_be_known_of_lanes_and_device_is_said_below(
    name: str, report: Callable[[], PaperReport], line: str
) -> None:
    figure = drawn(name, report())
    assert line in small_lines(figure)
    if "unknown" in line:
        assert "HF assisted" not in [text.get_text() for text in figure.axes[0].texts]


def test_the_fastest_lane_stands_for_all_on_each_data_set() -> None:
    slow = paper_report(slower={"linear K=8": 2.0})
    assert "Linear K5" in names(panels(drawn("main_results_bars", slow))[0])
    absent = {"wikitext": "linear K=5", "books": "linear K=8"}
    report = changed(WHOLE, lambda cell: None if absent[cell.data_set] == cell.lane else cell)
    assert "Linear K8\nLinear K5" in names(panels(drawn("main_results_bars", report))[0])


def test_bars_are_as_high_as_speeds_on_both_data_sets_and_whiskers_end_where_intervals_do() -> None:
    left, right = panels(drawn("main_results_bars"))
    assert names(left) == ["AR", "Linear K8", "Fixed D8B3", "DynaTree"]
    lanes = ("ar", "linear K=8", "fixed D8 B3", "phase 3")
    for place, data_set in enumerate(("wikitext", "books")):
        assert heights(left)[place] == [mean(WHOLE, "tokens_per_second", lane, data_set=data_set) for lane in lanes]
        assert heights(right)[place] == [mean(WHOLE, "speedup", lane, data_set=data_set) for lane in lanes]
    assert (left.get_ylabel(), right.get_ylabel()) == ("speed (tokens/s)", "speed (x ar)")
    stat: Any = cell_of(WHOLE, "phase 3").stats["tokens_per_second"]
    assert pytest.approx((stat.low, stat.high)) in whiskers(left)


def test_names_from_outside_are_written_as_they_are_or_not_at_all() -> None:
    foreign = request(target="/home/用/$x^{$", draft="a\x1b[31m\ud800b")
    figure = drawn("main_results_bars", paper_report(foreign))
    figure.draw_without_rendering()
    assert "target /home/?/$x^{$, draft a?[31m?b" in small_lines(figure)


def test_ablation_goes_from_the_fixed_tree_to_the_whole_method() -> None:
    left, right, rounds, acceptance = panels(drawn("ablation_progression"))
    lanes = ("fixed D5 B2", "phase 1", "phase 2", "phase 3")
    assert [name.split("\n")[0] for name in names(left)] == ["Fixed D5B2", "Phase 1", "Phase 2", "DynaTree"]
    assert heights(left) == [[mean(WHOLE, "tokens_per_second", lane) for lane in lanes]]
    shown = ((rounds, "rounds", 1), (right, "tokens_per_round", 1), (acceptance, "paper_acceptance", 100))
    for axes, key, scale in shown:
        assert [y for _, y in curve(axes)] == pytest.approx([scale * mean(WHOLE, key, lane) for lane in lanes])
    assert min(rounds.get_yticks()) > 0
    assert "%" in acceptance.get_ylabel()


def test_four_panels_run_over_all_lengths() -> None:
    speed, tokens, path, acceptance = panels(drawn("length_scaling_fourpanel"))
    measured = ((speed, "tokens_per_second", 1), (tokens, "tokens_per_round", 1), (path, "paper_path_length", 1),
                (acceptance, "paper_acceptance", 100))  # fmt: skip
    for axes, key, scale in measured:
        expected = [(length, scale * mean(WHOLE, key, "phase 3", length=length)) for length in LENGTHS]
        assert curves(axes)["DynaTree"] == pytest.approx(expected)
        assert axes.get_xlabel() == "T, new tokens"
    assert list(curves(tokens)) == ["AR", "Linear K8", "Fixed D8B3", "DynaTree"]
    assert list(curves(path)) == list(curves(acceptance)) == ["Linear K8", "Fixed D8B3", "DynaTree"]


def test_prompt_length_runs_over_the_longest_prompts_in_their_unit() -> None:
    left, right = panels(drawn("prompt_length_sensitivity"))
    expected = [(most, mean(WHOLE, "speedup", "phase 3", "prompt_length", most=most)) for most in (100, 300, 800)]
    assert curves(right)["DynaTree"] == pytest.approx(expected)
    assert left.get_xlabel() == "longest prompt (characters)"
    experiments = tuple(replace(each, unit="tokens") for each in WHOLE.header.request.experiments)
    header = replace(WHOLE.header, request=replace(WHOLE.header.request, experiments=experiments))
    left, _ = panels(drawn("prompt_length_sensitivity", replace(WHOLE, header=header)))
    assert left.get_xlabel() == "longest prompt (tokens)"


def test_sensitivity_varies_one_pair_while_all_else_stays() -> None:
    usual = {"tau_h": 0.8, "tau_l": 0.4}
    lanes = (
        adaptive("a", tau_h=0.9, tau_l=0.4),
        adaptive("b", tau_h=0.7, tau_l=0.3),
        adaptive("c", tau_h=0.7, tau_l=0.5),
        adaptive("d", branching=(1, 2, 4), **usual),
        adaptive("e", branching=[2, 2, 3], **usual),
        adaptive("f", d0=4.0, d_max=6, **usual),
        adaptive("g", d0=8.0, d_max=12, **usual),
        adaptive("h", tau_h=0.6, tau_l=0.2, history=False),
        PaperLane(name="ar", method="ar", family="ar", parameters={}),
        fixed(5, 2, 0.05),
    )
    speeds = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 9.0, 1.0, 1.05)
    thresholds, breadth, depth = panels(drawn("parameter_sensitivity", with_lanes(lanes, speeds, "sensitivity")))
    (scatter,) = thresholds.collections
    assert np.asarray(scatter.get_offsets()).tolist() == [[0.7, 0.3], [0.7, 0.5], [0.9, 0.4]]
    assert np.asarray(scatter.get_array()).tolist() == pytest.approx([120, 130, 110])
    assert names(breadth) == ["(1, 4)", "(2, 3)"]
    assert curves(breadth)["DynaTree"] == pytest.approx([(0, 140), (1, 150)])
    assert names(depth) == ["(4, 6)", "(8, 12)"]
    assert curves(depth)["DynaTree"] == pytest.approx([(0, 160), (1, 170)])
    levels = {str(line.get_label()): points(line)[0][1] for line in depth.lines}
    assert [levels["ar"], levels["tree 5 2 0.05 128"]] == pytest.approx([100, 105])
    assert [line.get_linestyle() for line in depth.lines if line.get_label() in ("ar", "tree 5 2 0.05 128")] == [
        "--",
        ":",
    ]


GRID = (fixed(3, 2, 0.05), fixed(3, 3, 0.05), fixed(5, 2, 0.05), fixed(5, 2, 0.1), fixed(5, 3, 0.05), fixed(5, 3, 0.1),
        fixed(8, 2, 0.05, n_max=256))  # fmt: skip
GRID_REPORT = with_lanes(GRID, (1.0, 1.1, 1.2, 1.3, 1.4, 1.35, 9.0), "fixed_trees")


def test_cuts_go_through_the_fastest_tree_and_a_heat_map_has_each_shape_at_its_fastest_threshold() -> None:
    depth, branching, tau, speedup, *_ = panels(drawn("fixed_tree_sweep", GRID_REPORT))
    assert curve(depth) == pytest.approx([(3, 1.1), (5, 1.4)])
    assert curve(branching) == pytest.approx([(2, 1.2), (3, 1.4)])
    assert curve(tau) == pytest.approx([(0.05, 1.4), (0.1, 1.35)])
    assert tau.get_xscale() == "log"
    (star,) = (points(line) for line in depth.lines if line.get_marker() == "*")
    assert star == pytest.approx([(5, 1.4)])
    assert image(speedup) == [[1.0, 1.1], [1.3, 1.4]]
    assert [text.get_text() for text in speedup.texts] == ["1.00", "1.10", "1.30", "1.40"]
    assert (speedup.get_ylabel(), speedup.get_xlabel()) == ("depth D (levels)", "branching B (children)")


def test_every_lane_is_a_point_over_its_nodes_and_the_root_and_no_name_covers_another() -> None:
    figure = drawn("speed_against_nodes")
    speed, cost = panels(figure)
    found = [point for line in speed.lines for point in points(line)]
    for lane in ("ar", "linear K=8", "phase 3", "no pruning"):
        assert (mean(WHOLE, "nodes_per_round", lane) + 1, mean(WHOLE, "speedup", lane)) in found
    assert (WHOLE.header.costs.rows, "ms" in cost.get_ylabel()) == ((1, 8, 64), True)
    assert curves(cost)["cost (right axis)"] == pytest.approx([(1, 7), (8, 8), (64, 12)])
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in speed.texts]  # excludes the line to the point
    assert not [one for place, one in enumerate(boxes) if one.count_overlaps(boxes[place + 1 :])]


@pytest.mark.parametrize(("missing", "stages"), [("fixed D5 B2", 0), ("phase 1", 0), ("phase 2", 2), ("phase 3", 3)])
def test_ablation_ends_where_a_step_is_missing(missing: str, stages: int) -> None:
    report = changed(WHOLE, lambda cell: None if cell.lane == missing else cell)
    figure = FIGURES["ablation_progression"](report)
    assert (len(names(panels(figure)[0])) if figure else 0) == stages
