"""A page as one HTML file: inline style and script, data as JSON, and a security policy that allows nothing else.

The policy allows this style and script by their hashes, so a browser runs no other script and loads no other file. The
JSON is escaped, so that no text in the JSON can end the HTML element around it. Knows neither recordings nor
benchmarks.
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
_AS_JSON: Mapping[int, str] = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Page:
    title: str
    body: Markup
    data: object = None
    """For the scripts, encoded by msgspec."""
    scripts: Sequence[str] = ()
    """Files among the assets, in this order."""


def written(page: Page) -> str:
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
    """Content of a file in the folder `assets`."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def as_json(data: object) -> str:
    """Data as JSON, escaped so that it is safe in any HTML element."""
    return msgspec.json.encode(data).decode().translate(_AS_JSON)


def policy(style: str, script: str) -> str:
    """Content security policy: this style, this script, and inline pictures; nothing else."""
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
    inside = "\n".join(asset(name) for name in names)
    return f'"use strict";\n{{\n{inside}}}\n' if names else ""


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
