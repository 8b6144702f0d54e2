"""Messages that are longer than their row keep the remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dynatui.render.words import note_within

NOTE = "dynatree has no verifier, which is a knob of delayed, khisti and others; w watches another method"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, NOTE),
        (60, "dynatree has no verifier, which i…; w watches another method"),
        (26, "w watches another method"),
        (10, "w watches…"),
    ],
)
def test_the_reason_is_cut_before_the_remedy(width: int, shown: str) -> None:
    assert note_within(NOTE, width).rstrip() == shown


@given(st.text(max_size=60), st.text(max_size=60), st.integers(1, 130))
def test_a_message_is_never_wider_than_its_row(reason: str, remedy: str, width: int) -> None:
    for note in (f"{reason}; {remedy}", reason):
        assert cell_len(note_within(note, width)) <= width


def test_a_message_without_a_remedy_is_cut_at_its_end() -> None:
    assert note_within("all knobs of dynatree have their start values", 20) == "all knobs of dynatr…"
