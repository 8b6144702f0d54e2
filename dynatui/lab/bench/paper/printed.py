"""The paper's numbers as table cells, with marks that refer to notes under the table."""

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase

from dynatui.lab.bench.paper.published import LOGS, PublishedNumber
from dynatui.lab.tables.data import Cell, Printed

FROM_LOGS = "from the authors' logs, not in any version of the paper"
AGAIN = "After a slash: the same number from another run of the authors."


def marks(remarks: Iterable[str]) -> dict[str, str]:
    """Marks of distinct remarks: letters first, then numbers; the empty remark has an empty mark."""
    distinct = list(dict.fromkeys(filter(None, remarks)))
    return dict(zip(distinct, (*ascii_lowercase, *map(str, range(len(distinct)))), strict=False)) | {"": ""}


def explained(known: Mapping[str, str]) -> tuple[str, ...]:
    """Notes that give the remark for each mark."""
    return tuple(f"[{mark}] {remark}." for remark, mark in known.items() if mark)


def marked(
    rows: Sequence[Sequence[Cell | PublishedNumber]], usual_length: int | None
) -> tuple[tuple[tuple[Cell, ...], ...], tuple[str, ...]]:
    """Rows whose published numbers have marks, and the notes that explain the marks.

    Args:
        rows: Rows of cells, some of which are published numbers.
        usual_length: Usual text length T; published numbers with another T get a note. None if each number has the T of
            its row; notes then leave T out.
    """
    shown = [cell for row in rows for cell in row if isinstance(cell, PublishedNumber)]
    known = marks(_remark(number, usual_length) for number in shown)
    cells = tuple(
        tuple(
            _printed(cell, known[_remark(cell, usual_length)]) if isinstance(cell, PublishedNumber) else cell
            for cell in row
        )
        for row in rows
    )
    sources = sorted({number.source for number in shown})
    notes = [f"Paper: {', '.join(sources)}."] * bool(sources) + [AGAIN] * any(number.again for number in shown)
    return cells, (*notes, *explained(known))


def _printed(number: PublishedNumber, mark: str) -> Printed:
    return Printed(value=number.value, std=number.std, again=number.again, source=number.source, mark=mark)


def _remark(number: PublishedNumber, usual_length: int | None) -> str:
    """Remark on a published number: an unusual T, the logs as its source, and doubts; empty if there is no remark."""
    length = f"at T={number.length}" if usual_length not in (None, number.length) else None
    return "; ".join(filter(None, (length, FROM_LOGS if number.source == LOGS else None, number.doubt)))
