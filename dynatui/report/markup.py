"""The only module that makes HTML from text; it cleans and escapes all text except tag names.

`dynatui.clean` makes control and bidirectional characters visible, as on a terminal. Knows no page.
"""

from collections.abc import Iterable
from html import escape

from dynatui.clean import clean


class Markup(str):
    __slots__ = ()


def element(name: str, *children: str, **attributes: str | int | None) -> Markup:
    """A child that is not markup is escaped. An attribute's final `_` is dropped, its other `_` become `-`; None omits
    it.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    opening = f"<{name}{written}>"
    return Markup(opening if name in _VOID else f"{opening}{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def table(caption: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> Markup:
    """The first cell of each row is its header."""
    top = element("tr", *(element("th", cell, scope="col") for cell in head))
    body = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in cells))
        for first, *cells in rows
    ]
    title = element("caption", element("span", caption))
    whole = element("table", title, element("thead", top), element("tbody", *body))
    return element("div", whole, class_="scrolls", tabindex=0, role="region", aria_label=caption)


def details(entries: Iterable[tuple[str, str]]) -> Markup:
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in entries)
    return element("dl", *pairs)


_VOID = frozenset(("img", "input", "br", "meta"))


def _escaped(text: str) -> str:
    return escape(clean(text))
