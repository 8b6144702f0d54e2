"""A table in Markdown."""

from collections.abc import Iterator

from dynatui.lab.tables.data import Table, lines


def section(table: Table) -> Iterator[str]:
    """Paragraphs: heading, description, table, notes."""
    yield f"## {escaped(table.title)}"
    yield escaped(table.what)
    heads = [escaped(column.title) for column in table.columns]
    rules = ["---" if column.kind == "words" else "---:" for column in table.columns]
    rows = [
        [escaped(", ".join(lines(cell, column.digits))) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    if rows:
        yield "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))
    if table.notes:
        yield "\n".join(f"- {escaped(note)}" for note in table.notes)


def escaped(text: str) -> str:
    """Text on one line. Markdown's special characters are escaped, including those that separate table cells."""
    shown = "".join(f"\\{letter}" if letter in "\\`*_[]<>|#~" else letter for letter in text)
    return " ".join(shown.split())
