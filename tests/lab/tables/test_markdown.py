"""Tables in Markdown escape foreign text."""

from dynatui.lab.tables.data import Column, Table, escaped, section


def test_text_is_escaped_for_tables() -> None:
    assert escaped("a|b\n<i>_c_") == r"a\|b \<i\>\_c\_"


def test_a_section_has_a_heading_a_sentence_a_table_and_notes() -> None:
    found = Table(title="T", what="W", columns=(Column("a"), Column("b", "number", 1)), rows=(("x", 1),), notes=("n",))
    assert list(section(found)) == ["## T", "W", "| a | b |\n| --- | ---: |\n| x | 1.0 |", "- n"]
