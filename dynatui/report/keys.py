"""The keys of a replay page. The page's script, the page's list of keys and `docs/sharing.md` follow this table."""

import msgspec


class Key(msgspec.Struct, frozen=True):
    caps: str
    names: tuple[str, ...]
    """The keys' names in browsers. For a key pressed with Shift, `Shift+` precedes the name, unless the name is one
    character."""
    action: str
    """Name of the action in the script; empty if the browser handles the key."""
    help: str


KEYS = (
    Key("←", ("ArrowLeft",), "back", "one round back"),
    Key("→", ("ArrowRight",), "on", "one round on"),
    Key("Shift ←, Page Up", ("Shift+ArrowLeft", "PageUp"), "back_ten", "ten rounds back"),
    Key("Shift →, Page Down", ("Shift+ArrowRight", "PageDown"), "on_ten", "ten rounds on"),
    Key("Home", ("Home",), "first", "the first round"),
    Key("End", ("End",), "last", "the last round"),
    Key("Space", (" ",), "play", "play or pause; after the last round, play again"),
    Key("<", ("<", ","), "slower", "play slower"),
    Key(">", (">", "."), "faster", "play faster"),
    Key("1 to 9", tuple("123456789"), "method", "show the method with this number"),
    Key("w", ("w",), "next_method", "show the next method"),
    Key("n", ("n",), "next_run", "the next prompt"),
    Key("N", ("N",), "previous_run", "the prompt before"),
    Key("Tab, Enter", (), "", "move to a control, press it"),
    Key("?", ("?",), "help", "show or hide these keys"),
)
