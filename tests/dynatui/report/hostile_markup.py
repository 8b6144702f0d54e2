"""Hostile text that would run or become an element if it were treated as markup."""

from msgspec import structs

from decoder.events import End, Event, Round, Run, Summary

ACTS = (
    *("</script><script>window.pwned=1</script>", "<img src=x onerror=window.pwned=1>", "<svg onload=window.pwned=1>"),
    *("--><!--<script>", "]]>"),
    "\"'><iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    *("${window.pwned=1}`", "{{constructor.constructor('window.pwned=1')()}}", "javascript:window.pwned=1"),
    "&lt;script&gt;&#60;",
    *("\\u003cscript\\u003e", "\u2028window.pwned=1\u2029", "\u202egnorw\u202c\u2066\u2069\u200f"),
    "\x00\x07\x1b]52;c;UFdORUQ=\x07\r\x7f\x9b31m",
    "$title $body ${script}",
    "</title></style></noscript></textarea><base href=//evil.example>",
)
HOSTILE = " ".join(ACTS)
ELEMENTS = ("img", "iframe", "base", "object", "embed", "form", "link", "a")


def hostile(event: Event) -> Event:
    match event:
        case Run(methods=methods):
            texts = dict.fromkeys(("target", "draft", "device", "dtype", "path", "version", "started_at"), HOSTILE)
            own = {_named(name): {HOSTILE: HOSTILE, **parameters} for name, parameters in methods.items()}
            return structs.replace(event, prompt=HOSTILE, path_reason=HOSTILE, methods=own, **texts)
        case Round(pieces=pieces):
            text = "".join(pieces[node] for node in event.accepted) + HOSTILE
            return structs.replace(_renamed(event), text=text, pieces=[HOSTILE for _ in pieces])
        case End():
            return structs.replace(_renamed(event), reason="error", error=HOSTILE)
        case Summary(methods=figures):
            return structs.replace(event, methods={_named(name): found for name, found in figures.items()})
        case _:
            return _renamed(event)


def _named(method: str) -> str:
    return f"{method}{HOSTILE}"


def _renamed(event: Event) -> Event:
    assert not isinstance(event, Run | Summary)
    return structs.replace(event, method=_named(event.method))
