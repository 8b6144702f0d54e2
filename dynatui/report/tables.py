"""A table of `decoder.tables` as HTML, with coloured verdicts."""

from collections.abc import Mapping

from decoder.tables.data import Cell, Column, Table, lines
from dynatui.report.markup import Markup, element, joined, table

_CLASSES: Mapping[object, str] = {
    "holds": "holds",
    "faster": "holds",
    "does not hold": "fails",
    "slower": "fails",
    "cannot tell": "open",
}
"""CSS class for each verdict."""


def grid(content: Table) -> Markup:
    """The table as HTML; the caption is the sentence `content.what`, or the table's title if that sentence is empty."""
    head = (column.title for column in content.columns)
    rows = (map(_cell, row, content.columns) for row in content.rows)
    return table(content.what or content.title, head, rows, label=content.title)


def _cell(cell: Cell, column: Column) -> Markup:
    first, *more = lines(cell, column.digits)
    if column.title == "verdict":
        return element("span", first, class_=f"verdict {_CLASSES[cell]}")
    whole = first if column.kind == "words" else element("span", first, class_="whole")
    return joined((whole, *(element("small", line) for line in more)))
