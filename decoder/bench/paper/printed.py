"""The paper's numbers as table cells, each with the mark of a note on it."""

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase

from decoder.bench.paper.published import LOGS, PublishedNumber
from decoder.tables.data import Cell, Printed

FROM_LOGS = "from the authors' logs, in no version of the paper"
AGAIN = "Behind a stroke: the same in another run of the authors'."


def marks(remarks: Iterable[str]) -> dict[str, str]:
    """Mark of each remark: letters, then numbers; none for the empty remark."""
    distinct = list(dict.fromkeys(filter(None, remarks)))
    return dict(zip(distinct, (*ascii_lowercase, *map(str, range(len(distinct)))), strict=False)) | {"": ""}


def explained(known: Mapping[str, str]) -> tuple[str, ...]:
    """Notes that explain the marks."""
    return tuple(f"[{mark}] {remark}." for remark, mark in known.items() if mark)


def marked(
    rows: Sequence[Sequence[Cell | PublishedNumber]], usual_length: int | None
) -> tuple[tuple[tuple[Cell, ...], ...], tuple[str, ...]]:
    """Rows with the paper's numbers marked, and the notes on them.

    Args:
        rows: Cells, among them published numbers.
        usual_length: T that needs no note; None: each number has the T of its row.
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
    """Remark on a number of the paper; empty for most."""
    length = f"at T={number.length}" if usual_length not in (None, number.length) else None
    return "; ".join(filter(None, (length, FROM_LOGS if number.source == LOGS else None, number.doubt)))
