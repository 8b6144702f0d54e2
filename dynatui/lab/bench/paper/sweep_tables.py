"""Tables of the experiments that vary prompt lengths, fixed trees and DynaTree's parameters. All functions are pure."""

from collections.abc import Iterator, Sequence

from dynatui.lab.bench.paper import published
from dynatui.lab.bench.paper.published import PublishedNumber
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.rows import (
    SPEED,
    Row,
    exact,
    lane_name,
    longest,
    measured,
    number,
    parameter,
    printed,
    rows,
    same_text,
    table,
)
from dynatui.lab.tables.data import Table


def prompt_length(report: PaperReport, notes: Sequence[str]) -> Iterator[Table]:
    """Table of speed by maximum prompt length."""
    shown = longest(list(rows(report, "prompt_length")))
    units = {row.experiment.unit for row in shown}
    yield from table(
        "prompt_length",
        _titled("Prompt length", shown),
        f"Speed by maximum prompt length, in {' or '.join(sorted(units))}.",
        shown,
        [
            number("longest", lambda row: row.cell.most),
            lane_name(),
            SPEED[0],
            printed(exact("tokens_per_second"), 1),
            SPEED[1],
            printed(exact("speedup"), 2),
            same_text(),
        ],
        notes=notes,
    )


def fixed_trees(report: PaperReport, notes: Sequence[str]) -> Iterator[Table]:
    """Table of the speed of fixed trees by depth, branching and threshold."""

    def there(row: Row) -> PublishedNumber | None:
        given = row.lane.parameters
        return row.of(published.fixed_row(given["depth"], given["branching"], given["tau"]), "tokens_per_second")

    shown = [row for row in longest(list(rows(report, "fixed_trees"))) if row.lane.method == "fixed"]
    yield from table(
        "fixed_trees",
        _titled("Sweep of fixed trees", shown),
        "Speed of fixed trees with different depths D, branchings B and thresholds tau.",
        shown,
        [
            parameter("D", "depth"),
            parameter("B", "branching"),
            parameter("tau", "tau", 2),
            SPEED[0],
            printed(there, 0),
            SPEED[1],
            measured("paper_path_length", "l-bar", 2),
            measured("nodes_per_round", "nodes a round", 1),
            same_text(),
        ],
        notes=notes,
        usual_length=max((row.cell.length for row in shown), default=None),
    )


def sensitivity(report: PaperReport, notes: Sequence[str]) -> Iterator[Table]:
    """Table of DynaTree's speed with other thresholds, breadths and depths."""
    shown = [row for row in longest(list(rows(report, "sensitivity"))) if row.lane.method == "dynatree"]
    yield from table(
        "sensitivity",
        _titled("Sensitivity of DynaTree to its thresholds, breadth and depth", shown),
        "One pair of parameters is varied at a time.",
        shown,
        [
            parameter("tau_h", "tau_h", 2),
            parameter("tau_l", "tau_l", 2),
            parameter("B_min", "branching", part=0),
            parameter("B_max", "branching", part=2),
            parameter("D0", "d0"),
            parameter("D_max", "d_max"),
            SPEED[0],
            printed(lambda row: row.of(_varied(row), "tokens_per_second"), 1),
            SPEED[1],
            measured("tokens_per_round", "L-bar", 2),
            measured("nodes_per_round", "nodes a round", 1),
            same_text(),
        ],
        notes=notes,
        usual_length=max((row.cell.length for row in shown), default=None),
    )


def _titled(title: str, shown: Sequence[Row]) -> str:
    """Heading, followed by the data set and the text length."""
    return title + "".join(dict.fromkeys(f": {row.text_set.title}, T={row.cell.length}" for row in shown))


def _varied(row: Row) -> str:
    """Name of the row's setting in one of the paper's sweeps; some settings are in several sweeps, so the lane's name
    decides which sweep is meant.
    """
    given = row.lane.parameters
    if row.lane.name.startswith("branching"):
        b_min, _, b_max = given["branching"]
        return published.breadth_row(b_min, b_max)
    if row.lane.name.startswith("d0"):
        return published.depth_row(given["d0"], given["d_max"])
    return published.thresholds_row(given["tau_h"], given["tau_l"])
