"""Caption under a figure, in small type: models, device, date, data sets, and lanes without a speed."""

import textwrap
from collections.abc import Sequence

from matplotlib.figure import Figure

from decoder.errors import shortened
from dynatui.lab.bench.paper.figures.cells import SPEED, label, lanes_of, without
from dynatui.lab.bench.paper.figures.style import DARK, printable
from dynatui.lab.bench.paper.report import Cell, PaperReport
from dynatui.lab.bench.paper.setup_table import device

SIZE = 7
LETTERS_PER_INCH = 17
"""Average number of characters per inch at font size `SIZE`."""

MOST_NAMES = 5


def sign(figure: Figure, report: PaperReport, cells: Sequence[Cell], *remarks: str) -> Figure:
    """Writes the caption with the figure's own remarks under a figure, and returns the figure.

    Args:
        figure: Figure that is complete except for the caption.
        report: Report that contains the cells.
        cells: All cells of the figure, including those without a speed.
        remarks: Remarks of the figure, without a full stop at the end.
    """
    width = int(figure.get_figwidth() * LETTERS_PER_INCH)
    lines = [_machine(report), _texts(report, cells), "; ".join([*_missing(report, cells), *remarks])]
    wrapped = [part for line in lines for part in textwrap.wrap(printable(line), width)]
    figure.supxlabel("\n".join(wrapped), x=0.01, ha="left", fontsize=SIZE, color=DARK)
    return figure


def _machine(report: PaperReport) -> str:
    """Line of the caption with models, device, dtypes and date."""
    request = report.header.request
    dtypes = " + ".join(dict.fromkeys((request.dtype, request.draft_dtype)))
    day = report.header.started_at.partition("T")[0]
    return f"target {shortened(request.target)}, draft {shortened(request.draft)} · {device(report)}, {dtypes} · {day}"


def _texts(report: PaperReport, cells: Sequence[Cell]) -> str:
    """Line of the caption with data sets, text lengths, number of prompts and the meaning of whiskers."""
    request = report.header.request
    titles = ", ".join(request.text_set(name).title for name in dict.fromkeys(cell.data_set for cell in cells))
    lengths = _span([cell.length for cell in cells])
    prompts = _span([cell.prompts for cell in cells])
    whiskers = "whiskers: 95 % intervals of the mean over prompts"
    intervals = any(stat.low is not None for cell in cells for stat in cell.stats.values())
    return " · ".join([titles, f"T = {lengths} new tokens", f"prompts: {prompts}", *([whiskers] if intervals else [])])


def _missing(report: PaperReport, cells: Sequence[Cell]) -> list[str]:
    """Remarks on lanes that have no speed on some or all prompts, and on an incomplete measurement."""
    names = {lane.name: label(lane) for lane in lanes_of(report, cells)}
    absent = without(cells, SPEED)
    partly = {cell.lane for cell in cells if cell.same < cell.prompts}.difference(absent)
    remarks = []
    if absent:
        remarks.append(
            f"no speed is shown for {listed([names[name] for name in absent])}: the text differs from the text of ar"
        )
    if partly:
        remarks.append(
            f"the speed of {listed([names[name] for name in names if name in partly])} includes only prompts on which "
            "the text equals the text of ar"
        )
    if not report.complete:
        remarks.append("the measurement is not complete")
    return remarks


def listed(names: Sequence[str]) -> str:
    """Names separated by commas, or only their number if there are more than `MOST_NAMES`."""
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} lanes"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
