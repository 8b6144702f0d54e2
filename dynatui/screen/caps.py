"""Keys as the key map writes them: a sign by itself, any other key by its name. Knows no action."""

from textual.events import Key


def cap_of(event: Key) -> str:
    """The key of an event: `?` and not question_mark, `space`, `shift+left`."""
    sign = event.character
    return sign if sign and sign.isprintable() and sign != " " else event.key
