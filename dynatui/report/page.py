"""HTML of a page: escaped markup, style, scripts and data under a strict content policy."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template

import msgspec

from decoder.version import VERSION
from dynatui.clean import clean


class Markup(str):
    __slots__ = ()


def element(name: str, *children: str, **attributes: str | int | None) -> Markup:
    """Escapes children that are not `Markup`. In attribute names, a final `_` is removed, and other `_` become `-`;
    attributes with the value None are omitted.
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{_escaped(str(value))}"' for key, value in given.items())
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


_ASSETS = files("dynatui.report") / "assets"
_AS_JSON: Mapping[int, str] = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class HtmlPage:
    title: str
    body: Markup
    data: object = None
    """Data for the scripts, encoded by msgspec."""
    scripts: Sequence[str] = ()
    """File names of the scripts in the folder of assets, in their order on the page."""


def written(page: HtmlPage) -> str:
    style, inside = asset("page.css"), "\n".join(map(asset, page.scripts))
    script = f'"use strict";\n{{\n{inside}}}\n' if page.scripts else ""
    return Template(asset("page.html")).substitute(
        title=element("title", page.title),
        policy=element("meta", http_equiv="Content-Security-Policy", content=policy(style, script)),
        style=f"<style>{style}</style>",
        body=page.body,
        data=f'<script type="application/json" id="data">{as_json(page.data)}</script>' if script else "",
        script=f"<script>{script}</script>" if script else "",
        version=VERSION,
    )


def asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def as_json(data: object) -> str:
    """Data as JSON, escaped so that it is safe in any HTML element."""
    return msgspec.json.encode(data).decode().translate(_AS_JSON)


def policy(style: str, script: str) -> str:
    """Content security policy that allows only this style, this script, and inline pictures (`data:`)."""
    allowed = {
        "default-src": "'none'",
        "script-src": _hash(script) if script else "'none'",
        "style-src": _hash(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
