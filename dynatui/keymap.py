"""Every key, once: bindings, dispatch, footer, help, command palette and README are made from this table.

A key may mean one thing while the run is watched and another while the text is inspected or a slider is moved. Knows
nothing of widgets; an action is the name of a method of the app, with its arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Mode: TypeAlias = Literal["watch", "inspect", "knobs"]
"""What the keys act on: the run, a token of the text, or a slider."""
PanelName: TypeAlias = Literal["text", "tree", "curves", "race", "work", "whatif", "prompts", "log"]
"""A panel that a key chooses."""
PANELS: tuple[PanelName, ...] = get_args(PanelName)
ALWAYS: tuple[PanelName, ...] = ("text", "tree", "curves")
"""Panels that any layout but the smallest shows; the others take turns in one place."""

_EVERYWHERE: tuple[Mode, ...] = ("watch", "inspect", "knobs")
_VIEWING: tuple[Mode, ...] = ("watch", "inspect")
LEFT_OUT = 999
"""The rank of a key that the footer leaves to the help."""
_GLYPHS = {
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "shift+left": "shift ←",
    "shift+right": "shift →",
    "escape": "esc",
}


@dataclass(frozen=True)
class Key:
    """One line of the help, which may stand for several keys that belong together."""

    caps: tuple[str, ...]
    """The keys as Textual names them, or as they are typed."""
    actions: tuple[str, ...]
    """What each of them does."""
    label: str
    """One or two words for the footer and the palette."""
    help: str
    modes: tuple[Mode, ...] = _EVERYWHERE
    """Where the keys mean this."""
    rank: int = LEFT_OUT
    """Place in the footer: the lowest come first, and the highest give way in a narrow terminal."""

    words: tuple[str, ...] = ("less", "more")
    """What tells the actions of a pair from each other in the palette."""

    @property
    def titles(self) -> tuple[str, ...]:
        """What the palette calls each action."""
        if len(set(self.actions)) == 1:
            return (self.label,)
        return tuple(f"{self.label}: {word}" for word in self.words)

    @property
    def shown(self) -> tuple[str, ...]:
        """The keys as the footer, the help and the README write them."""
        return tuple(_GLYPHS.get(cap, cap) for cap in self.caps)


@dataclass(frozen=True)
class Group:
    """Keys that belong together, under a heading of the help."""

    title: str
    keys: tuple[Key, ...]


_DIGITS = tuple("0123456789")

GROUPS = (
    Group(
        "Knobs",
        (
            Key(("[", "]"), ("turn('[')", "turn(']')"), "τh", "τh down, up: where the draft is as sure as this, fewest guesses; of the fixed tree, guesses a node", rank=30),
            Key(("{", "}"), ("turn('{')", "turn('}')"), "τl", "τl down, up: where it is less sure than this, most guesses; of the fixed tree, its threshold", rank=40),
            Key(("-", "="), ("turn('-')", "turn('=')"), "D0", "D0 down, up: how deep likely paths may grow; of linear the chain's length, of the fixed tree its depth", rank=50),
            Key(("h",), ("history",), "history", "history on, off: recent rounds move D0 and τh", rank=80),
            Key(("H",), ("hold",), "hold", "hold the knob that history has moved back from where you set it"),
            Key(("w", "W"), ("watch(1)", "watch(-1)"), "watch", "watch the next, the previous method: text, tree, curves and knobs are its", rank=65, words=("next", "previous")),
            Key(("d",), ("drawer",), "all knobs", "every knob of the watched method as a slider, and back to the panels", rank=70),
            Key(("up", "down"), ("slider(-1)", "slider(1)"), "choose", "choose a slider", ("knobs",), 11),
            Key(("left", "right"), ("nudge(-1)", "nudge(1)"), "turn", "turn it", ("knobs",), 12),
            Key(("shift+left", "shift+right"), ("nudge_far(-1)", "nudge_far(1)"), "coarse", "turn it in large steps", ("knobs",), 15),
            Key((*_DIGITS, "."), (*(f"type_digit('{d}')" for d in _DIGITS), "type_digit('.')"), "value", "type a value", ("knobs",), 13),
            Key(("enter",), ("set_typed",), "set", "set the typed value", ("knobs",), 14),
            Key(("backspace",), ("rub_out",), "rub out", "rub out the last digit", ("knobs",)),
            Key(("u",), ("undo",), "undo", "undo what the last key turned: one knob, or all that a preset did", rank=140),
            Key(("0",), ("defaults",), "defaults", "all knobs of the watched method as the program was started", _VIEWING),
            Key(("s",), ("preset",), "preset", "DynaTree's knobs as in the next preset: tuned, paper"),
            Key(("b",), ("pin",), "A/B", "pin what was measured so far as A until you give it up; each turn of a knob does so too", _VIEWING, 150),
        ),
    ),
    Group(
        "Time",
        (
            Key(("space",), ("freeze",), "freeze", "freeze the view, decoding goes on; again: back to now", rank=20),
            Key(("P",), ("pause",), "pause", "pause decoding, or the show of a recording", rank=21),
            Key((".",), ("step",), "step", "one stage on: tree drafted, verified, committed; in a recording one round", _VIEWING, 110),
            Key(("B",), ("breaks",), "break on", "pause by itself: nothing accepted, tree full, first difference from ar, …"),
            Key(("<", ">"), ("speed(-1)", "speed(1)"), "speed", "half, double the speed of the show", rank=160, words=("half", "double")),
            Key(("left", "right"), ("scrub(-1)", "scrub(1)"), "scrub", "a round back, on; every panel follows", ("watch",), 120, words=("back", "on")),
            Key(("shift+left", "shift+right"), ("scrub(-10)", "scrub(10)"), "scrub 10", "ten rounds back, on", ("watch",), words=("back", "on")),
            Key(("home", "end"), ("scrub_to(0)", "live"), "first, now", "the first round; back to now", ("watch",), words=("first round", "now")),
        ),
    ),
    Group(
        "Text and panels",
        (
            Key(("i",), ("inspect",), "inspect", "a cursor in the text: why is this token here? The tree shows its round", rank=60),
            Key(("left", "right"), ("cursor(-1)", "cursor(1)"), "token", "the token before, after", ("inspect",), 11),
            Key(("up", "down"), ("cursor_line(-1)", "cursor_line(1)"), "line", "the line above, below", ("inspect",), 12),
            Key(("shift+left", "shift+right"), ("cursor_round(-1)", "cursor_round(1)"), "round", "the round before, after", ("inspect",), 13),
            Key(("home", "end"), ("cursor_to(0)", "cursor_to(-1)"), "ends", "the first, the last token", ("inspect",)),
            Key(("f",), ("difference",), "difference", "go to the first token that differs from ar"),
            Key(("o",), ("heat",), "colours", "what the text's colours mean: origin, draft probability, round, time", rank=180),
            Key(("t",), ("mask",), "mask", "the tree as the matrix of who sees whom, and back", rank=170),
            Key(tuple("12345678"), tuple(f"panel('{name}')" for name in PANELS), "panel", "text, tree, curves, race, work by depth, what if, prompts, log", _VIEWING, 130, words=PANELS),
            Key(("tab", "shift+tab"), ("next_panel(1)", "next_panel(-1)"), "next", "the next panel, the one before", words=("panel", "panel before")),
            Key(("e", "enter"), ("maximise", "maximise"), "expand", "the chosen panel alone on the screen, and back", _VIEWING, 190),
            Key(("escape",), ("back",), "back", "back to the whole screen, live", rank=200),
        ),
    ),
    Group(
        "Prompts",
        (
            Key(("n", "N"), ("prompt(1)", "prompt(-1)"), "prompt", "next, previous prompt", rank=210, words=("next", "previous")),
            Key(("R",), ("prompt(0)",), "restart", "restart this prompt; after an error: try again", rank=220),
            Key(("E",), ("edit",), "edit", "edit this prompt and run it"),
        ),
    ),
    Group(
        "Keep",
        (
            Key(("r",), ("record",), "record", "record from here on to a file, or stop; the run's beginning is in it", rank=230),
            Key(("x",), ("export",), "export", "write screen, figures, text and command line into a folder", rank=240),
            Key(("y",), ("command",), "command", "show and copy the command line of these settings", rank=250),
            Key(("c",), ("copy_text",), "copy", "copy the text"),
        ),
    ),
    Group(
        "Screen",
        (
            Key(("v",), ("symbols",), "symbols", "braille, blocks or ASCII"),
            Key(("T",), ("theme",), "theme", "the next theme"),
            Key(("?",), ("help",), "help", "this page, with what every figure means", rank=0),
            Key(("ctrl+p",), ("command_palette",), "palette", "find a command by its name"),
            Key(("ctrl+l",), ("redraw",), "redraw", "draw the whole screen anew, should something have garbled it"),
            Key(("ctrl+z",), ("suspend_process",), "suspend", "back to the shell; fg returns"),
            Key(("q", "ctrl+c"), ("leave", "leave"), "quit", "quit", rank=0),
        ),
    ),
)  # fmt: skip

SIDE_BY_SIDE = Group(
    "Two recordings side by side",
    (
        Key(("space", "P"), ("pause", "pause"), "play", "play, pause", rank=3),
        Key(("<", ">"), ("speed(-1)", "speed(1)"), "speed", "half, double the speed of the show", rank=5),
        Key(("left", "right"), ("step(-1)", "step(1)"), "step", "to the round before, after, of either", rank=4),
        Key(("shift+left", "shift+right"), ("step(-10)", "step(10)"), "step 10", "ten rounds back, on", rank=9),
        Key(("home", "end"), ("seek(0)", "seek(1)"), "ends", "the beginning, the end of the run", rank=8),
        Key(("n", "N"), ("go(1)", "go(-1)"), "run", "the next, the previous run of both", rank=6),
        Key(("1", "2", "3"), tuple(f"panel('{name}')" for name in ALWAYS), "panel", "text, tree, curves", rank=7),
        Key(("v",), ("symbols",), "symbols", "braille, blocks or ASCII", rank=10),
        Key(("?",), ("help",), "help", "this page", rank=1),
        Key(("q", "ctrl+c"), ("leave", "leave"), "quit", "quit", rank=2),
    ),
)
"""The keys where two recordings are compared: an app of its own."""

KEYMAP: tuple[Key, ...] = tuple(key for group in GROUPS for key in group.keys)


def action_for(cap: str, mode: Mode, keys: Sequence[Key] = KEYMAP) -> str | None:
    """What a key does in a mode; None where it does nothing."""
    for key in keys:
        if mode in key.modes and cap in key.caps:
            return key.actions[key.caps.index(cap)]
    return None


def table() -> list[str]:
    """The key map as rows of a Markdown table, for the README."""
    where: dict[tuple[Mode, ...], str] = {("inspect",): "inspecting", ("knobs",): "all knobs", ("watch",): "watching"}
    rows = ["| Keys | Where | What they do |", "|---|---|---|"]
    for group in (*GROUPS, SIDE_BY_SIDE):
        rows.append(f"| **{group.title}** | | |")
        for key in group.keys:
            caps = " ".join(f"`{cap}`" for cap in key.shown)
            rows.append(f"| {caps} | {where.get(key.modes, '')} | {key.help} |")
    return rows
