"""A page is a single file; its security policy allows only its own style and scripts; its colours are legible."""

import re
from base64 import b64encode
from hashlib import sha256
from itertools import product

import msgspec
import pytest

from dynatui.report.page import HtmlPage, as_json, asset, element, written
from dynatui.report.replay import SCRIPTS
from tests.dynatui.report.hostile_markup import ACTS, HOSTILE

TEXT_CONTRAST, GRAPHIC_CONTRAST = 4.5, 3.0
BACKGROUNDS = ("paper", "panel")
TEXTS = ("ink", "muted", "link", "good", "bad", "open", "accepted", "bonus")
GRAPHICS = ("control", "rejected", *(f"s{number}" for number in range(8)))
PAIRS = [(one, other, TEXT_CONTRAST) for one, other in product(TEXTS, BACKGROUNDS)]
PAIRS += [("accepted", "accepted-paper", TEXT_CONTRAST), ("bonus", "bonus-paper", TEXT_CONTRAST)]
PAIRS += [(one, other, GRAPHIC_CONTRAST) for one, other in product(GRAPHICS, BACKGROUNDS)]


def page(data: object = None, scripts: tuple[str, ...] = SCRIPTS) -> str:
    return written(HtmlPage(title="title", body=element("main", "body"), data=data, scripts=scripts))


def hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def policy_of(text: str) -> str:
    (found,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    return str(found).replace("&#x27;", "'")


def test_the_policy_names_the_hash_of_the_style_and_of_the_script() -> None:
    text = page()
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert f"script-src {hashed(script)};" in policy_of(text)
    assert f"style-src {hashed(style)};" in policy_of(text)


def test_the_policy_allows_nothing_else() -> None:
    text = policy_of(page())
    assert text.startswith("default-src 'none';")
    assert not re.search(r"unsafe|https?:|\*|'self'", text)


def test_a_page_without_scripts_allows_none() -> None:
    text = page(scripts=())
    assert "<script" not in text
    assert "script-src 'none'" in policy_of(text)


def test_the_policy_comes_before_all_that_it_governs() -> None:
    text = page()
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script")


@pytest.mark.parametrize("text", ACTS)
def test_data_cannot_end_its_element(text: str) -> None:
    written_down = as_json({text: [text]})
    assert not set(written_down) & set("<>&\u2028\u2029")
    assert msgspec.json.decode(written_down) == {text: [text]}


def test_nothing_within_a_page_is_taken_for_a_place_of_the_template() -> None:
    text = written(HtmlPage(title=HOSTILE, body=element("p", HOSTILE), data=HOSTILE, scripts=SCRIPTS))
    assert text.count("$title") == 3


def test_a_page_names_no_other_place() -> None:
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


def test_colours_have_the_contrast_of_level_aa() -> None:
    for scheme in ("light", "dark"):
        for one, other, least in PAIRS:
            low, high = sorted(luminance(colours(scheme)[name]) for name in (one, other))
            assert (high + 0.05) / (low + 0.05) >= least, (scheme, one, other)


def test_every_colour_stands_in_both_schemes() -> None:
    light, dark = re.findall(r":root \{(.*?)\}", asset("page.css"), re.DOTALL)
    names = [set(re.findall(r"--([\w-]+):", part)) for part in (light, dark)]
    assert names[0] == names[1] == set(re.findall(r"var\(--([\w-]+)\)", asset("page.css")))


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_never_make_markup_of_text(name: str) -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\(|import", asset(name))
