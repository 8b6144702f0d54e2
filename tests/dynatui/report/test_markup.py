"""Text never becomes markup, whatever it contains."""

from html.parser import HTMLParser

import pytest

from dynatui.report.page import Markup, details, element, joined, table
from tests.dynatui.report.hostile_markup import ACTS, HOSTILE


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, _attributes: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


@pytest.mark.parametrize("text", ACTS)
def test_text_in_an_element_is_text(text: str) -> None:
    assert Tags(element("p", text)).found == ["p"]


@pytest.mark.parametrize("text", ACTS)
def test_text_in_an_attribute_stays_in_it(text: str) -> None:
    assert Tags(element("p", "plain", title=text)).found == ["p"]


def test_markup_stays_markup_and_text_beside_it_does_not() -> None:
    assert joined((element("b", "x"), "<b>")) == "<b>x</b>&lt;b&gt;"


def test_what_is_joined_is_markup() -> None:
    assert isinstance(joined(("<",)), Markup)


def test_characters_that_steer_are_shown_as_on_a_terminal() -> None:
    assert element("p", "\x1b\u202e\u2028") == "<p>\u241b\ufffd\ufffd</p>"


def test_names_of_attributes_are_written_as_html_has_them() -> None:
    assert element("td", class_="x", aria_label="y", title=None) == '<td class="x" aria-label="y"></td>'


def test_an_element_that_is_always_empty_has_no_end() -> None:
    assert element("meta", content="x") == '<meta content="x">'


def test_a_table_names_its_rows_and_columns() -> None:
    found = table("Speed", ["lane", "tokens/s"], [["ar", "1"]])
    assert '<th scope="col">tokens/s</th>' in found
    assert '<th scope="row">ar</th><td>1</td>' in found


def test_a_table_that_scrolls_can_be_reached_by_the_keyboard_and_has_a_name() -> None:
    assert 'tabindex="0" role="region" aria-label="Speed"' in table("Speed", ["lane"], [])


def test_details_and_tables_hold_text_alone() -> None:
    made = joined((details([(HOSTILE, HOSTILE)]), table(HOSTILE, [HOSTILE], [[HOSTILE, HOSTILE]])))
    ours = {"dl", "div", "dt", "dd", "table", "caption", "span", "thead", "tbody", "tr", "th", "td"}
    assert {*Tags(made).found} == ours
