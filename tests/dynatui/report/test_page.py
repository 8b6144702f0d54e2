"""A page is a single file that allows only its own style and scripts, is legible, and takes no text for markup."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from itertools import product

import msgspec
import pytest

from dynatui.report.page import HtmlPage, Markup, as_json, asset, details, element, joined, table, written
from dynatui.report.replay import SCRIPTS
from tests.dynatui.report.hostile_markup import ACTS, HOSTILE

TEXT_CONTRAST, GRAPHIC_CONTRAST = 4.5, 3.0
BACKGROUNDS = ("paper", "panel")
TEXTS = ("ink", "muted", "link", "good", "bad", "open", "accepted", "bonus")
GRAPHICS = ("control", "rejected", *(f"s{number}" for number in range(8)))
PAIRS = [(one, other, TEXT_CONTRAST) for one, other in product(TEXTS, BACKGROUNDS)]
PAIRS += [("accepted", "accepted-paper", TEXT_CONTRAST), ("bonus", "bonus-paper", TEXT_CONTRAST)]
PAIRS += [(one, other, GRAPHIC_CONTRAST) for one, other in product(GRAPHICS, BACKGROUNDS)]


def page(scripts: tuple[str, ...] = SCRIPTS) -> str:
    return written(HtmlPage(title="title", body=element("main", "body"), scripts=scripts))


def hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def policy_of(text: str) -> str:
    (found,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    return str(found).replace("&#x27;", "'")


def test_the_policy_names_the_hash_of_style_and_script_before_them_and_allows_nothing_else() -> None:
    text = page()
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    policy = policy_of(text)
    assert policy.startswith("default-src 'none';")
    assert f"script-src {hashed(script)};" in policy
    assert f"style-src {hashed(style)};" in policy
    assert not re.search(r"unsafe|https?:|\*|'self'", policy)
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")
    assert "<script" not in page(scripts=())
    assert "script-src 'none'" in policy_of(page(scripts=()))


@pytest.mark.parametrize("text", ACTS)
def test_data_cannot_end_its_element(text: str) -> None:
    written_down = as_json({text: [text]})
    assert not set(written_down) & set("<>&\u2028\u2029")
    assert msgspec.json.decode(written_down) == {text: [text]}


def test_a_page_names_no_other_place_and_nothing_in_it_is_one_of_the_template() -> None:
    text = written(HtmlPage(title=HOSTILE, body=element("p", HOSTILE), data=HOSTILE, scripts=SCRIPTS))
    assert text.count("$title") == 3
    names = set(re.findall(r"https?://[^\s\"'`]*", page()))
    assert names == {"http://www.w3.org/2000/svg"}  # the name of a namespace, not an address


def colours(scheme: str) -> dict[str, str]:
    style = asset("page.css")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark)) if scheme == "dark" else {})


def luminance(colour: str) -> float:
    parts = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_colours_stand_in_both_schemes_with_the_contrast_of_level_aa() -> None:
    for scheme in ("light", "dark"):
        for one, other, least in PAIRS:
            low, high = sorted(luminance(colours(scheme)[name]) for name in (one, other))
            assert (high + 0.05) / (low + 0.05) >= least, (scheme, one, other)
    light, dark = re.findall(r":root \{(.*?)\}", asset("page.css"), re.DOTALL)
    names = [set(re.findall(r"--([\w-]+):", part)) for part in (light, dark)]
    assert names[0] == names[1] == set(re.findall(r"var\(--([\w-]+)\)", asset("page.css")))


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_never_make_markup_of_text(name: str) -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\(|import", asset(name))


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, _attributes: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


@pytest.mark.parametrize("text", ACTS)
def test_text_in_an_element_or_an_attribute_stays_text(text: str) -> None:
    assert Tags(element("p", text)).found == Tags(element("p", "plain", title=text)).found == ["p"]


def test_markup_stays_markup_in_tables_too_and_text_beside_it_does_not() -> None:
    assert joined((element("b", "x"), "<b>")) == "<b>x</b>&lt;b&gt;"
    assert isinstance(joined(("<",)), Markup)
    made = joined((details([(HOSTILE, HOSTILE)]), table(HOSTILE, [HOSTILE], [[HOSTILE, HOSTILE]])))
    ours = {"dl", "div", "dt", "dd", "table", "caption", "span", "thead", "tbody", "tr", "th", "td"}
    assert {*Tags(made).found} == ours


@pytest.mark.parametrize(
    ("made", "html"),
    [
        (element("p", "\x1b\u202e\u2028"), "<p>\u241b\ufffd\ufffd</p>"),
        (element("td", class_="x", aria_label="y", title=None), '<td class="x" aria-label="y"></td>'),
        (element("meta", content="x"), '<meta content="x">'),
    ],
    ids=["characters that steer", "names of attributes", "always empty"],
)
def test_elements_are_written_as_html_has_them(made: Markup, html: str) -> None:
    assert made == html


def test_a_table_names_its_rows_and_columns_and_can_be_reached_by_the_keyboard() -> None:
    found = table("Speed", ["lane", "tokens/s"], [["ar", "1"]])
    assert '<th scope="col">tokens/s</th>' in found
    assert '<th scope="row">ar</th><td>1</td>' in found
    assert 'tabindex="0" role="region" aria-label="Speed"' in found
