"""Keys as the key map writes them, a sign by itself and any other key by its name, and as Textual binds them."""

from textual.events import Key

_NAMED = {",": "comma"}
"""Signs that mean something else in Textual's bindings."""


def cap_of(event: Key) -> str:
    """The key of an event: `?` and not question_mark, `space`, `shift+left`."""
    sign = event.character
    return sign if sign and sign.isprintable() and sign != " " else event.key


def bound(cap: str) -> str:
    """The key as Textual's bindings want it."""
    return _NAMED.get(cap, cap)
