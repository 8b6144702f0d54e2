"""Every key, once: the bindings, the footer and the help screen are made from this table.

Knows nothing of widgets; an action is the name of a method of the app.
"""

from dataclasses import dataclass

from decoder.config import KnobName


@dataclass(frozen=True)
class Key:
    """One line of the help, which may stand for two keys that belong together."""

    caps: tuple[str, ...]
    """The keys as a user types them."""
    actions: tuple[str, ...]
    """What each of them does."""
    label: str
    """One or two words for the footer."""
    help: str
    rank: int
    """Place in the footer: the lowest come first, and the highest give way in a narrow terminal."""

    @property
    def shown(self) -> str:
        """How the footer and the help write the keys."""
        return " ".join(self.caps)


KNOB_STEPS: dict[KnobName, float] = {"tau_h": 0.05, "tau_l": 0.05, "d0": 1.0}
"""How far one press turns a knob."""

TABS = ("text", "tree", "curves", "race")
"""Panels that share one place in a small terminal; keys 1 to 4."""

KEYMAP = (
    Key(
        ("[", "]"),
        ("turn('tau_h',-1)", "turn('tau_h',1)"),
        "τh",
        "τh down, up: the draft is sure from here: 1 child",
        3,
    ),
    Key(("{", "}"), ("turn('tau_l',-1)", "turn('tau_l',1)"), "τl", "τl down, up: unsure below: 3 children", 4),
    Key(("-", "="), ("turn('d0',-1)", "turn('d0',1)"), "D0", "D0 down, up: how deep every branch may grow", 5),
    Key(("h",), ("history",), "history", "history on, off: recent rounds move D0 and τh", 6),
    Key(("space",), ("freeze",), "freeze", "freeze the view; decoding goes on", 7),
    Key(("P",), ("pause",), "pause", "pause decoding", 8),
    Key(("<", ">"), ("speed(-1)", "speed(1)"), "speed", "half, double the speed of the show", 9),
    Key(("n",), ("next_prompt",), "next", "next prompt", 10),
    Key(("R",), ("restart",), "restart", "restart this prompt; after an error: try again", 11),
    Key(("1", "2", "3", "4"), tuple(f"tab('{tab}')" for tab in TABS), "panel", "text, tree, curves, race", 12),
    Key(("?",), ("help",), "help", "this page", 1),
    Key(("q", "ctrl+c"), ("leave", "leave"), "quit", "quit", 2),
)
