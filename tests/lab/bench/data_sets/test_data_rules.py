"""Rows become prompts by the rules of the DynaTree authors."""

from collections.abc import Iterator

import pytest

from dynatui.lab.bench.data_sets.catalogue import OPENING, SHORTEST, openings, paragraphs

LONG = "x" * SHORTEST


def test_rows_between_blank_rows_are_joined_by_a_space() -> None:
    assert list(paragraphs([" \n", f" {LONG} \n", " b \n", " \n"])) == [f"{LONG} \n  b"]


def test_a_heading_ends_a_paragraph() -> None:
    assert list(paragraphs([f" {LONG} \n", " = = Part = = \n", f" {LONG}y \n"])) == [LONG, f"{LONG}y"]


def test_a_short_paragraph_waits_for_the_next() -> None:
    assert list(paragraphs([" a \n", " \n", " = B = \n", f" {LONG} \n", "\n", " rest \n"])) == [f"a \n  {LONG}"]


def test_what_ends_without_a_blank_row_is_a_prompt_too() -> None:
    assert list(paragraphs([LONG])) == [LONG]


def test_no_more_rows_are_read_than_prompts_need() -> None:
    def rows() -> Iterator[str]:
        yield from (LONG, "")
        pytest.fail("a further row was read")

    assert next(paragraphs(rows())) == LONG


def test_a_book_s_prompt_is_how_it_begins_without_the_blanks_before() -> None:
    assert list(openings([f"\n\n {'y' * OPENING}z"])) == ["y" * OPENING]


def test_books_that_are_too_short_are_left_out() -> None:
    assert list(openings(["x" * (SHORTEST - 1), " " * OPENING, LONG])) == [LONG]
