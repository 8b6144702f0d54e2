"""The one place where text becomes HTML: every text is cleaned and escaped, only names of tags are taken as they are.

Control characters and those that turn text around are shown as on a terminal, by `dynatui.clean`. Knows no page.
"""

from collections.abc import Iterable
from html import escape

from dynatui.clean import clean


class Markup(str):
    """HTML that this module made."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | int | None) -> Markup:
    """An element with its children; those that are no markup are text.

    Args:
        name: Of the tag.
        children: Text, or markup.
        attributes: By their names, with `_` for `-`, and at the end where the name is a word of Python. One that is
            None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    opening = f"<{name}{written}>"
    return Markup(opening if name in _VOID else f"{opening}{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Texts and markup, one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else _escaped(part) for part in parts))


def table(caption: str, head: Iterable[str], rows: Iterable[Iterable[str]], *, label: str | None = None) -> Markup:
    """A table that scrolls by itself where the page is narrow; the first cell of a row heads it.

    Args:
        caption: Says what it holds.
        head: Of the columns.
        rows: Cells.
        label: What a reader is told who comes to the scrolling region by the keyboard; the caption, unless given.
    """
    top = element("tr", *(element("th", cell, scope="col") for cell in head))
    body = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest))
        for first, *rest in rows
    ]
    said = element("caption", element("span", caption))
    whole = element("table", said, element("thead", top), element("tbody", *body))
    return element("div", whole, class_="scrolls", tabindex=0, role="region", aria_label=label or caption)


def details(entries: Iterable[tuple[str, str]]) -> Markup:
    """Names with what each stands for."""
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in entries)
    return element("dl", *pairs)


_VOID = frozenset(("img", "input", "br", "meta"))


def _escaped(text: str) -> str:
    return escape(clean(text))
