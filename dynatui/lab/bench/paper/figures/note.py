"""Caption under a figure, in small type: models, device, date, data sets, and lanes without a speed."""

import textwrap
from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from decoder.errors import shortened
from dynatui.lab.bench.paper.figures.cells import SPEED, label, lanes_of, without
from dynatui.lab.bench.paper.figures.style import DARK, printable
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.request import Lane
from dynatui.lab.bench.paper.rows import Row
from dynatui.lab.bench.paper.setup_table import device

SIZE = 7
LETTERS_PER_INCH = 17
"""Average number of characters per inch at font size `SIZE`."""
MOST_NAMES = 5


def sign(figure: Figure, report: PaperReport, these: Sequence[Row], *remarks: str) -> Figure:
    """Writes the caption under a figure that is complete except for it, and returns the figure.

    Args:
        figure: The figure.
        report: Report that contains the rows.
        these: All rows of the figure, including those without a speed.
        remarks: Remarks of the figure, without a full stop at the end.
    """
    width = int(figure.get_figwidth() * LETTERS_PER_INCH)
    lines = [_machine(report), _texts(these), "; ".join([*_missing(report, these), *remarks])]
    wrapped = [part for line in lines for part in textwrap.wrap(printable(line), width)]
    figure.supxlabel("\n".join(wrapped), x=0.01, ha="left", fontsize=SIZE, color=DARK)
    return figure


def _machine(report: PaperReport) -> str:
    request = report.header.request
    dtypes = " + ".join(dict.fromkeys((request.dtype, request.draft_dtype)))
    day = report.header.started_at.partition("T")[0]
    return f"target {shortened(request.target)}, draft {shortened(request.draft)} · {device(report)}, {dtypes} · {day}"


def _texts(these: Sequence[Row]) -> str:
    titles = ", ".join(dict.fromkeys(row.text_set.title for row in these))
    lengths, prompts = (_span([getattr(row.cell, name) for row in these]) for name in ("length", "prompts"))
    whiskers = "whiskers: 95 % intervals of the mean over prompts"
    intervals = any(stat.low is not None for row in these for stat in row.cell.stats.values())
    return " · ".join([titles, f"T = {lengths} new tokens", f"prompts: {prompts}", *[whiskers] * intervals])


def _missing(report: PaperReport, these: Sequence[Row]) -> Iterator[str]:
    """Remarks on lanes that have no speed on some or all prompts, and on an incomplete measurement."""
    absent = without(these, SPEED)
    differing = {row.lane.name for row in these if row.cell.same < row.cell.prompts}
    partly = [lane for lane in lanes_of(these) if lane.name in differing and lane not in absent]
    if absent:
        yield f"no speed is shown for {listed(absent)}: the text differs from the text of ar"
    if partly:
        yield f"the speed of {listed(partly)} includes only prompts on which the text equals the text of ar"
    if not report.complete:
        yield "the measurement is not complete"


def listed(lanes: Sequence[Lane]) -> str:
    """Labels separated by commas, or only their number if there are more than `MOST_NAMES`."""
    return ", ".join(map(label, lanes)) if len(lanes) <= MOST_NAMES else f"{len(lanes)} lanes"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
