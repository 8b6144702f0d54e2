"""Rows and columns of tables that show a lane's measured figures next to the paper's numbers.

All functions are pure.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from decoder.analysis.interval import Interval
from dynatui.lab.bench.data_sets.text_set import TextSet
from dynatui.lab.bench.paper import published
from dynatui.lab.bench.paper.printed import marked
from dynatui.lab.bench.paper.published import PublishedNumber
from dynatui.lab.bench.paper.report import Cell as Measured
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.request import Lane, PaperExperiment
from dynatui.lab.tables.data import Cell, Column, Table

AR = "ar"


class Row(NamedTuple):
    """Row of a table: a lane in one experiment at one text length."""

    lane: Lane
    experiment: PaperExperiment
    text_set: TextSet
    cell: Measured

    def usual(self, figure: str) -> PublishedNumber | None:
        """The paper's number for this lane at the setting of the paper's main results; None if there is none."""
        return published.usual(self.lane.paper_name, self.text_set.stands_for, figure)

    def exact(self, figure: str) -> PublishedNumber | None:
        """The paper's number for this lane at exactly the row's T and L_max; None if there is none."""
        if self.experiment.unit != "characters":
            return None
        return published.at(
            self.lane.paper_name, self.text_set.stands_for, figure, self.cell.length, self.experiment.most
        )

    def of(self, setting: str, figure: str) -> PublishedNumber | None:
        """The paper's number at the named setting of one of the paper's sweeps; None if there is none."""
        return published.at(
            setting,
            self.text_set.stands_for,
            figure,
            published.LENGTH,
            published.MOST.get(self.text_set.stands_for or "", 0),
        )


Taken: TypeAlias = Callable[[Row], Cell | PublishedNumber]
Spec: TypeAlias = tuple[Column, Taken]
"""Column of a table, and the function that returns its cell for a row."""


def rows(report: PaperReport, name: str, data_set: str | None = None) -> Iterator[Row]:
    """Rows of all experiments with this name, ordered by prompt length, then by text length, then by lane."""
    request = report.header.request
    for experiment in sorted(request.experiments, key=lambda experiment: experiment.most):
        if experiment.name != name or data_set not in (None, experiment.data_set):
            continue
        for length in experiment.lengths:
            for lane in experiment.lanes:
                cell = report.cell(name, experiment.data_set, lane, length=length, most=experiment.most)
                if cell:
                    yield Row(request.lane(lane), experiment, request.text_set(experiment.data_set), cell)


def longest(shown: Sequence[Row]) -> list[Row]:
    """Rows with the greatest text length."""
    most = max((row.cell.length for row in shown), default=0)
    return [row for row in shown if row.cell.length == most]


def beside_the_paper(shown: Sequence[Row]) -> list[Row]:
    """Rows of lanes that the paper also has, and rows of `auto`, which has no parameters to choose."""
    return [row for row in shown if row.lane.paper_name or row.lane.family == "auto"]


def lane_name() -> Spec:
    """Column with the name of the lane."""
    return Column("lane"), lambda row: row.lane.name


def words(title: str, take: Callable[[Row], str]) -> Spec:
    """Column with text."""
    return Column(title), take


def number(title: str, take: Callable[[Row], float | None], digits: int = 0) -> Spec:
    """Column with a number that has no confidence interval."""
    return Column(title, "number", digits), take


def parameter(title: str, name: str, digits: int = 0, part: int | None = None) -> Spec:
    """Column with a parameter of the lane; `part` is an index into a parameter with several values."""

    def take(row: Row) -> float | None:
        value: Any = row.lane.parameters.get(name)
        parameter_value: float | None = value if value is None or part is None else value[part]
        return parameter_value

    return number(title, take, digits)


def measured(figure: str, title: str, digits: int, scale: float = 1) -> Spec:
    """Column with a measured figure and its confidence interval, multiplied by `scale`."""
    return Column(title, "measured", digits), lambda row: _scaled(row.cell.stats.get(figure), scale)


def printed(take: Callable[[Row], PublishedNumber | None], digits: int, scale: float = 1, title: str = "paper") -> Spec:
    """Column with the paper's number, multiplied by `scale`."""
    return Column(title, "paper", digits), lambda row: _scaled_number(take(row), scale)


def status(row: Row) -> str:
    """Result of the comparison of the lane's texts with the texts of `ar`, in words."""
    if row.lane.own_text:
        return "may differ by design"
    different = row.cell.prompts - row.cell.same
    return f"differs on {different} of {row.cell.prompts}" if different else f"{AR}'s"


def same_text() -> Spec:
    """Column with the result of the comparison of the lane's texts with the texts of `ar`."""
    return Column("text"), status


def usual(figure: str) -> Callable[[Row], PublishedNumber | None]:
    """Function that returns the paper's number for a row at the setting of the paper's main results."""
    return lambda row: row.usual(figure)


def exact(figure: str) -> Callable[[Row], PublishedNumber | None]:
    """Function that returns the paper's number for a row at exactly the row's T and L_max."""
    return lambda row: row.exact(figure)


SPEED: tuple[Spec, Spec] = (measured("tokens_per_second", "tokens/s", 1), measured("speedup", f"x {AR}", 2))
"""Columns tokens/s and speed-up, which most tables have."""


def table(
    name: str,
    title: str,
    what: str,
    table_rows: Sequence[Row],
    specs: Sequence[Spec],
    *,
    notes: Sequence[str],
    usual_length: int | None = None,
) -> Iterator[Table]:
    """Yields the table, or nothing if all its cells are empty.

    Args:
        name: Name of the table's file.
        title: Heading of the table.
        what: Sentence that describes the content.
        table_rows: Rows of the table.
        specs: Columns of the table; columns that are empty in all rows are left out.
        notes: Notes under the table; they follow the notes on the paper's numbers.
        usual_length: Usual text length T. A number of the paper that was measured with another T gets a note with that
            T. None if every number was measured with the T of its row; the notes then do not mention T.
    """
    cells = [[take(row) for _, take in specs] for row in table_rows]
    kept = [place for place in range(len(specs)) if any(row[place] is not None for row in cells)]
    if not kept:
        return
    shown, remarks = marked([[row[place] for place in kept] for row in cells], usual_length)
    columns = tuple(specs[place][0] for place in kept)
    yield Table(name=name, title=title, what=what, columns=columns, rows=shown, notes=(*remarks, *notes))


def _scaled(interval: Interval | None, factor: float) -> Interval | None:
    return interval if interval is None or factor == 1 else interval.times(factor)


def _scaled_number(published_number: PublishedNumber | None, factor: float) -> PublishedNumber | None:
    if published_number is None or factor == 1:
        return published_number
    spread, again = (None if one is None else one * factor for one in (published_number.std, published_number.again))
    return PublishedNumber(
        value=published_number.value * factor,
        std=spread,
        again=again,
        length=published_number.length,
        most=published_number.most,
        source=published_number.source,
        doubt=published_number.doubt,
    )
