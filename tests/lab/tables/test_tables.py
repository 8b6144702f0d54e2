"""Tables as text lines with fixed columns, and in Markdown, where foreign text is escaped."""

import msgspec

from decoder.analysis.interval import Interval
from dynatui.lab.tables import Column, Table, cut, escaped, interval, of_rows, section, short, text, wrapped

COLUMNS = (Column("name", width=6), Column("rate", "number", 1, 7), Column("x", width=12))


def test_the_first_column_stands_on_the_left_and_what_is_not_known_is_a_dash() -> None:
    found = Table(title="Title", columns=COLUMNS, rows=(("a", 2.25, "1.00"), ("b", None, "")), notes=("a note",))
    assert text(found).splitlines() == [
        "Title",
        "name     rate           x",
        "a         2.2        1.00",
        "b           -",
        "a note",
    ]


def test_the_last_line_of_a_first_cell_stands_beside_the_others() -> None:
    found = Table(columns=COLUMNS[:2], rows=(("above\nlast", 1),))
    assert text(found).splitlines()[1:] == ["above", "last      1.0"]


def test_cells_are_taken_from_each_row() -> None:
    assert of_rows([(COLUMNS[0], str), (COLUMNS[1], float)], (1, 2)).rows == (("1", 1.0), ("2", 2.0))


def test_files_leave_out_the_width_of_a_column_that_has_none() -> None:
    assert msgspec.json.encode(Column("a")) == b'{"title":"a","kind":"words","digits":0}'


def test_an_interval_shows_its_ends_where_it_has_them() -> None:
    assert interval(Interval(value=1.234, low=1.1, high=12.34), short) == "1.23 1.10-12.3"
    assert interval(Interval(value=1.234, low=None, high=None), short) == "1.23"
    assert interval(None, short) == "-"


def test_a_sentence_is_wrapped_and_a_line_is_cut() -> None:
    assert list(wrapped("  one two three", 9)) == ["one two", "three"]
    assert (cut("a" * 9, 9), cut("a" * 10, 9)) == ("a" * 9, "aaaaaa...")


def test_text_is_escaped_for_tables() -> None:
    assert escaped("a|b\n<i>_c_") == r"a\|b \<i\>\_c\_"


def test_a_section_has_a_heading_a_sentence_a_table_and_notes() -> None:
    found = Table(title="T", what="W", columns=(Column("a"), Column("b", "number", 1)), rows=(("x", 1),), notes=("n",))
    assert list(section(found)) == ["## T", "W", "| a | b |\n| --- | ---: |\n| x | 1.0 |", "- n"]
