"""A page as one HTML file: its style and script inline, its data as JSON, and a policy that allows nothing else.

The policy names style and script by their hashes, so a browser runs these two and no other, and asks no network. Data
is JSON in which no character could end its element. Knows neither recordings nor benchmarks.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from string import Template

import msgspec

from decoder.version import VERSION
from dynatui.report.markup import Markup, element

_ASSETS = files("dynatui.report") / "assets"
_AS_JSON: Mapping[int, str] = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Page:
    """What a page holds."""

    title: str
    body: Markup
    data: object = None
    """Anything that msgspec encodes: what the scripts read; None where there are none."""
    scripts: Sequence[str] = ()
    """Files among the assets, in the order in which they are run as one."""


def written(page: Page) -> str:
    """The page as HTML."""
    style, script = asset("page.css"), _as_one(page.scripts)
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
    """A file that belongs to pages."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def as_json(data: object) -> str:
    """Data as JSON that may stand in any element of a page."""
    return msgspec.json.encode(data).decode().translate(_AS_JSON)


def policy(style: str, script: str) -> str:
    """What a browser may do: this style, this script, pictures that the page holds, nothing else."""
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


def _as_one(names: Sequence[str]) -> str:
    """The scripts in a scope of their own."""
    inside = "\n".join(asset(name) for name in names)
    return f'"use strict";\n{{\n{inside}}}\n' if names else ""


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
