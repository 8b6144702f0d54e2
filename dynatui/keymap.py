"""The key map, the source of bindings, footer, help, palette, settings and documents. Independent of widgets.

An action is the name of a command or of a method of the app, with arguments. A key may have one action per mode.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from decoder.errors import ConfigError, quoted
from decoder.methods import METHODS

Mode: TypeAlias = Literal["watch", "inspect", "search", "knobs", "compare", "attach"]
FIRST_MODES: frozenset[Mode] = frozenset(("watch", "compare", "attach"))
"""The mode in which each of the three apps starts."""
LEFT_OUT = 999
"""Rank of a key that the footer never shows."""
_ALWAYS_QUITS = "ctrl+c"
_GLYPHS = {
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "shift+left": "shift ←",
    "shift+right": "shift →",
    "escape": "esc",
}
_MODIFIER = re.compile(r"(?:(?:ctrl|alt|shift|super|meta|hyper)\+)+(?=.)")
_NAMED = frozenset(
    (
        *("left", "right", "up", "down", "home", "end", "pageup", "pagedown", "insert", "delete"),
        *("escape", "enter", "tab", "backspace", "space"),
        *(f"f{number}" for number in range(1, 25)),
    )
)


@dataclass(frozen=True)
class Key:
    """One line of the key map: a key, or several keys of related actions."""

    caps: tuple[str, ...]
    """The keys, by Textual's names or as the characters themselves."""
    actions: tuple[str, ...]
    label: str
    """Name in the footer and in the palette."""
    help: str
    modes: tuple[Mode, ...]
    rank: int = LEFT_OUT
    """If the footer is too narrow for all keys, keys with the highest ranks are left out."""
    words: tuple[str, ...] = ("down", "up")
    """Words that distinguish the actions of a pair in the palette."""
    names: tuple[str, ...] = ()
    """Names of the actions in the settings file; if empty, made from `label` and `words`."""
    does: tuple[str, ...] = ()
    """All actions without repetition; may be empty if every action has a key, since `actions` then lists them."""
    also: str = ""
    """Further search words in the palette."""
    fixed: bool = False
    """Whether the keys cannot be rebound, as is the case for digits, which type values and choose panels."""

    @property
    def different(self) -> tuple[str, ...]:
        return self.does or tuple(dict.fromkeys(self.actions))

    @property
    def titles(self) -> tuple[str, ...]:
        return (self.label,) if len(self.different) == 1 else tuple(f"{self.label}: {word}" for word in self.words)

    @property
    def settings(self) -> dict[str, str]:
        """Name in the settings file -> action; empty for fixed keys."""
        if self.fixed:
            return {}
        names = self.names or tuple(re.sub(r"\W+", "_", title.lower()).strip("_") for title in self.titles)
        return dict(zip(names, self.different, strict=True))

    @property
    def shown(self) -> tuple[str, ...]:
        return tuple(_GLYPHS.get(cap, cap) for cap in self.caps)

    def shown_for(self, action: str) -> str:
        return " ".join(_GLYPHS.get(cap, cap) for cap in self.caps_of(action))

    def caps_of(self, action: str) -> tuple[str, ...]:
        return tuple(cap for cap, does in zip(self.caps, self.actions, strict=True) if does == action)


@dataclass(frozen=True)
class KeyGroup:
    title: str
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Keymap:
    groups: tuple[KeyGroup, ...]
    side_by_side: KeyGroup
    attached: KeyGroup

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(key for group in self.groups for key in group.keys)

    @property
    def commands(self) -> Iterator[tuple[str, str, Key]]:
        """Commands of the palette while a run is watched: (title, action, line of the key map)."""
        for key in self.keys:
            if "watch" in key.modes:
                yield from ((title, action, key) for title, action in zip(key.titles, key.different, strict=True))

    @property
    def every(self) -> Iterator[Key]:
        yield from self.keys
        yield from self.attached.keys
        yield from self.side_by_side.keys

    def action_for(self, cap: str, mode: Mode) -> str | None:
        for key in self.every:
            if mode in key.modes and cap in key.caps:
                return key.actions[key.caps.index(cap)]
        return None

    def all_for(self, action: str) -> frozenset[str]:
        return frozenset(cap for key in self.every for cap in key.caps_of(action))

    def cap(self, action: str) -> str:
        """The key that a hint names: the action's first key, or, if it has none, the key of the command palette."""
        cap = next((caps[0] for key in self.keys if (caps := key.caps_of(action))), None)
        palette = "ctrl+p" if action != "command_palette" else "nothing"
        return _GLYPHS.get(cap, cap) if cap else palette

    def settings(self) -> dict[str, tuple[str, ...]]:
        """Name of each rebindable action in the settings file -> keys of the action."""
        named = dict[str, tuple[str, ...]]()
        for key in self.every:
            for name, action in key.settings.items():
                named.setdefault(name, tuple(cap for cap in key.caps_of(action) if cap != _ALWAYS_QUITS))
        return named

    def rebound(self, changes: Mapping[str, Sequence[str]]) -> "Keymap":
        """Applies changes; raises ConfigError for an unknown action, an invalid key, or a key with two actions in a mode."""
        known = self.settings()
        for name, caps in changes.items():
            if name not in known:
                remedy = f"{near(name, known)}dynatui config --print-default lists all names"
                raise ConfigError(f"no action is called {quoted(name)}; {remedy}")
            for cap in caps:
                _check(name, cap)
        groups = tuple(replace(group, keys=_rebound(group.keys, changes)) for group in self.groups)
        others = (replace(group, keys=_rebound(group.keys, changes)) for group in (self.side_by_side, self.attached))
        keymap = Keymap(groups, *others)
        keymap._refuse_double_meaning(changes)
        return keymap

    def _refuse_double_meaning(self, changes: Mapping[str, Sequence[str]]) -> None:
        meanings = dict[tuple[Mode, str], str]()
        for key in self.every:
            names = {action: name for name, action in key.settings.items()}
            for cap, action in zip(key.caps, key.actions, strict=True):
                name = names.get(action, key.label)
                for mode in key.modes:
                    other = meanings.setdefault((mode, cap), name)
                    if other != name:
                        turned, taken = (name, other) if name in changes else (other, name)
                        raise ConfigError(
                            f"{turned} is {quoted(cap)}, but {taken} has that key already; "
                            f"give {turned} or {taken} another key"
                        )


def near(name: str, known: Iterable[str]) -> str:
    return "".join(f"did you mean {each}? " for each in difflib.get_close_matches(name, known, 1))


def _rebound(keys: Sequence[Key], changes: Mapping[str, Sequence[str]]) -> tuple[Key, ...]:
    return tuple(_with(key, changes) if changes.keys() & key.settings.keys() else key for key in keys)


def _with(key: Key, changes: Mapping[str, Sequence[str]]) -> Key:
    names = {action: name for name, action in key.settings.items()}
    pairs = list[tuple[str, str]]()
    for action in key.different:
        before = key.caps_of(action)
        kept = [cap for cap in before if cap == _ALWAYS_QUITS]
        caps = [*changes[names[action]], *kept] if names[action] in changes else before
        pairs += [(cap, action) for cap in dict.fromkeys(caps)]
    caps, actions = tuple(cap for cap, _ in pairs), tuple(action for _, action in pairs)
    return replace(key, caps=caps, actions=actions, does=key.different)


def _check(name: str, cap: str) -> None:
    """Raises ConfigError for a key that no terminal sends, and for ctrl+c, which always quits."""
    base = _MODIFIER.sub("", cap, count=1)
    if not (base in _NAMED or (len(base) == 1 and base.isprintable() and base != " ")):
        raise ConfigError(
            f'{name} is {quoted(cap)}, which is no key; give a character, or a key such as "f5", "ctrl+s" or "pageup"'
        )
    if cap == _ALWAYS_QUITS:
        raise ConfigError(f'{name} is "{cap}", which always quits; give another key')


PanelName: TypeAlias = Literal["text", "tree", "curves", "race", "work", "whatif", "prompts", "log", "sampling"]
PANELS: tuple[PanelName, ...] = get_args(PanelName)
ALWAYS: tuple[PanelName, ...] = ("text", "tree", "curves")
"""Panels that a large terminal always shows; of all other panels, it shows one at a time, in the same area."""

_EVERYWHERE: tuple[Mode, ...] = ("watch", "inspect", "search", "knobs")
_VIEWING: tuple[Mode, ...] = ("watch", "inspect", "search")
CURSOR: tuple[Mode, ...] = ("inspect", "search")
_NOT_SEARCHING: tuple[Mode, ...] = ("watch", "inspect", "knobs")
_COMPARE: tuple[Mode, ...] = ("compare",)
_ATTACH: tuple[Mode, ...] = ("attach",)
_DIGITS = tuple("0123456789")
_BACK_ON, _FIRST_LAST, _ABOVE_BELOW = ("back", "on"), ("first", "last"), ("above", "below")


def _pair(back: str, on: str) -> tuple[str, str, str, str]:
    """The actions of four keys: two named keys, such as up and down, and two letters with the same actions."""
    return back, on, back, on


def _turned_by(keys: str) -> str:
    """Help on all knobs that a pair of keys can turn; the watched method determines which of them the keys turn."""
    knobs = [knob for method in METHODS.values() for knob in method.knobs if knob.keys == keys]
    first, *others = dict.fromkeys(knob.key_help for knob in knobs if knob.key_help)
    return "; ".join(filter(None, (first, ", ".join(others))))


GROUPS = (
    KeyGroup(
        "Knobs",
        (
            Key(("[", "]"), ("turn('[')", "turn(']')"), "τh", _turned_by("[]"), _EVERYWHERE, 30, names=("tau_h_down", "tau_h_up"), also="threshold"),
            Key(("{", "}"), ("turn('{')", "turn('}')"), "τl", _turned_by("{}"), _EVERYWHERE, 40, names=("tau_l_down", "tau_l_up"), also="threshold"),
            Key(("-", "="), ("turn('-')", "turn('=')"), "D0", _turned_by("-="), _EVERYWHERE, 50, also="base depth"),
            Key(("(", ")"), ("turn('(')", "turn(')')"), "T", "turn the sampling temperature of all methods down or up: 0 is greedy, higher is more random", _EVERYWHERE, 55, names=("temperature_down", "temperature_up"), also="greedy random"),
            Key((",", ";"), ("turn(',')", "turn(';')"), "top-p", "turn top-p of all methods down or up: only the likeliest tokens with this total probability are sampled", _EVERYWHERE, 75, names=("top_p_down", "top_p_up"), also="nucleus"),
            Key(("V",), ("cycle('verifier')",), "verifier", "switch method delayed to its next verifier, the rule that accepts drafted tokens in sampling", _EVERYWHERE, 165),
            Key(("D",), ("cycle('drafting')",), "drafting", "switch method delayed to its next way of drafting: trees that branch at the root or after a path", _EVERYWHERE, 166),
            Key(("h",), ("history",), "history", "switch the history rule on, off: the rule adapts D0 and τh to recent rounds", _EVERYWHERE, 80, also="adapt automatic"),
            Key(("H",), ("hold",), "hold", "restore your value of the knob that the history rule has changed, and switch the rule off", _EVERYWHERE),
            Key(("w", "W"), ("watch(1)", "watch(-1)"), "watch", "watch the next, the previous method: its text, tree, curves and knobs", _EVERYWHERE, 65, ("next", "previous"), also="method lane"),
            Key(("d",), ("drawer",), "all knobs", "show every knob of the watched method as a slider, or go back to the panels", _EVERYWHERE, 70, also="sliders settings parameters"),
            Key(("up", "down", "k", "j"), _pair("slider(-1)", "slider(1)"), "choose", "choose a slider", ("knobs",), 11, _ABOVE_BELOW, ("slider_above", "slider_below")),
            Key(("home", "end", "g", "G"), _pair("slider_to(0)", "slider_to(-1)"), "ends", "the first, the last slider", ("knobs",), words=_FIRST_LAST, names=("slider_first", "slider_last")),
            Key(("left", "right"), ("nudge(-1)", "nudge(1)"), "turn", "turn the slider", ("knobs",), 12),
            Key(("shift+left", "shift+right"), ("nudge_far(-1)", "nudge_far(1)"), "coarse", "turn the slider in large steps", ("knobs",), 15),
            Key((*_DIGITS, "."), (*(f"type_digit('{d}')" for d in _DIGITS), "type_digit('.')"), "value", "type a value", ("knobs",), 13, fixed=True),
            Key(("enter",), ("set_typed",), "set", "set the typed value", ("knobs",), 14),
            Key(("backspace",), ("rub_out",), "rub out", "delete the last digit", ("knobs",)),
            Key(("u",), ("undo",), "undo", "undo the last turn: one knob, or all knobs of a preset", _EVERYWHERE, 140, also="back revert"),
            Key(("0",), ("defaults",), "defaults", "reset all knobs of the watched method to their values at the start", _VIEWING, also="reset"),
            Key(("s",), ("preset",), "preset", "set DynaTree's knobs to the next preset: tuned, paper, sampled", _EVERYWHERE, also="parameters"),
            Key(("b",), ("compare",), "A/B", "compare two settings of the watched method: decode this prompt and the next ones with both, in turns, A with the settings before your turns, B with the present ones; again: end it", _VIEWING, 150, names=("compare",), also="pair paired baseline faster"),
            Key(("S",), ("settings",), "settings tried", "list the settings of the watched method that were tried, with the measured ratio of those that were compared", _EVERYWHERE, also="table A/B results best"),
        ),
    ),
    KeyGroup(
        "Time",
        (
            Key(("space",), ("freeze",), "freeze", "freeze the view while decoding goes on; again: back to now", _EVERYWHERE, 20, also="hold stop"),
            Key(("P",), ("pause",), "pause", "pause decoding, or the playback of a recording", _EVERYWHERE, 21, also="stop hold resume continue"),
            Key((".",), ("step",), "step", "advance by one stage (tree drafted, verified, committed), in a recording by one round", _VIEWING, 110, also="single next stage"),
            Key(("B",), ("breaks",), "break on", "choose conditions for an automatic pause: nothing accepted, tree full, first difference from ar, …", _EVERYWHERE, also="breakpoint stop when"),
            Key(("<", ">"), ("speed(-1)", "speed(1)"), "speed", "halve, double the playback speed", _EVERYWHERE, 160, ("half", "double"), also="slow fast motion"),
            Key(("left", "right"), ("scrub(-1)", "scrub(1)"), "scrub", "one round back, forward; every panel follows", ("watch",), 120, _BACK_ON),
            Key(("shift+left", "shift+right"), ("scrub(-10)", "scrub(10)"), "scrub 10", "ten rounds back, forward", ("watch",), words=_BACK_ON),
            Key(("up", "down", "k", "j"), _pair("scroll(-1)", "scroll(1)"), "scroll", "one round back, forward; in the log one line up, down; in the list of prompts one prompt, in what if one estimate up, down", ("watch",), words=_BACK_ON),
            Key(("home", "end", "g", "G"), _pair("first", "last"), "first, now", "the first round, the newest; in the log and in the list of prompts the first, the last line", ("watch",), words=("first round", "now"), names=("first_round", "now")),
        ),
    ),
    KeyGroup(
        "Text and panels",
        (
            Key(("i",), ("inspect",), "inspect", "put a cursor in the text: show facts about the token there, and the tree of the token's round", _EVERYWHERE, 60, also="token why"),
            Key(("/",), ("search",), "search", "find words in the watched method's text, also in the part of a recording not yet played; in prompts and help, list the lines that contain them", _VIEWING, 62, also="find grep filter"),
            Key(("n", "N"), ("hit(1)", "hit(-1)"), "hit", "the next, the previous match", ("search",), 10, ("next", "previous"), ("next_hit", "previous_hit")),
            Key(("left", "right"), ("cursor(-1)", "cursor(1)"), "token", "the token before, after", CURSOR, 11, ("before", "after")),
            Key(("up", "down", "k", "j"), _pair("cursor_line(-1)", "cursor_line(1)"), "line", "the line above, below", CURSOR, 12, _ABOVE_BELOW),
            Key(("shift+left", "shift+right"), ("cursor_round(-1)", "cursor_round(1)"), "round", "the round before, after", CURSOR, 13, ("before", "after")),
            Key(("home", "end", "g", "G"), _pair("cursor_to(0)", "cursor_to(-1)"), "ends", "the first, the last token", CURSOR, words=_FIRST_LAST, names=("token_first", "token_last")),
            Key(("f",), ("difference",), "difference", "go to the first token that differs from the text of ar", _EVERYWHERE),
            Key(("o",), ("heat",), "colours", "colour the text by origin, draft probability, round or time", _EVERYWHERE, 180, also="colors heat legend"),
            Key(("t",), ("mask",), "mask", "show the tree as its attention mask, or as a tree again", _EVERYWHERE, 170, also="attention matrix"),
            Key(("a",), ("beside",), "beside", "show the text of the watched method beside the text of plain decoding, or alone", _EVERYWHERE, 185, also="ar plain compare side"),
            Key(tuple("123456789"), tuple(f"panel('{name}')" for name in PANELS), "panel", "text, tree, curves, race, work by depth, what if, prompts, log, sampling", _VIEWING, 5, PANELS, fixed=True),
            Key(("tab", "shift+tab"), ("next_panel(1)", "next_panel(-1)"), "next", "the next panel, the previous panel", _EVERYWHERE, words=("panel", "panel before"), names=("next_panel", "previous_panel")),
            Key(("e",), ("maximise",), "expand", "show the chosen panel alone on the screen, or all panels again", _VIEWING, 190, also="zoom maximise maximize full screen"),
            Key(("enter",), ("enter",), "open", "in the list of prompts, go to the chosen prompt; in what if, turn the knobs to the chosen estimate; elsewhere expand the panel", _VIEWING),
            Key(("escape",), ("back",), "back", "back, in steps, to all panels and the newest round", _EVERYWHERE, 200),
        ),
    ),
    KeyGroup(
        "Prompts",
        (
            Key(("n", "N"), ("prompt(1)", "prompt(-1)"), "prompt", "next, previous prompt; asks before it leaves a run that is not recorded", _NOT_SEARCHING, 210, ("next", "previous"), ("next_prompt", "previous_prompt")),
            Key(("R",), ("prompt(0)",), "restart", "restart this prompt; asks before it ends a run that is not recorded; after an error: try again", _EVERYWHERE, 220, also="again retry rerun"),
            Key(("E",), ("edit",), "edit", "edit this prompt and run it", _EVERYWHERE, also="change text"),
        ),
    ),
    KeyGroup(
        "Keep",
        (
            Key(("r",), ("record",), "record", "start or stop recording to a file; the recording includes the run's beginning", _EVERYWHERE, 230, also="save file"),
            Key(("x",), ("export",), "export", "export to a folder: picture, tables, JSON, HTML page, asciicast", _EVERYWHERE, 240, also="save screenshot svg csv files film"),
            Key(("A",), ("server",), "server", "show advice for a server: acceptance by position in this run, speed-up by load, and the options of an engine, to copy", _EVERYWHERE, 245, also="advice vllm sglang llama.cpp deploy flags"),
            Key(("y",), ("command",), "command", "show and copy the command line of these settings", _EVERYWHERE, 250, also="reproduce arguments options"),
            Key(("c",), ("copy_text",), "copy", "copy the text", _EVERYWHERE, also="clipboard"),
        ),
    ),
    KeyGroup(
        "Screen",
        (
            Key(("v",), ("symbols",), "symbols", "braille, blocks or ASCII", _EVERYWHERE, also="ascii unicode characters font"),
            Key(("T",), ("theme",), "theme", "choose a theme from a list, with a preview", _EVERYWHERE, also="dark light colors"),
            Key(("?",), ("help",), "help", "this page, with the definition of every figure", _EVERYWHERE, 0, also="keys manual"),
            Key(("ctrl+p",), ("command_palette",), "palette", "find a command by its name or its effect; shows the command's key", _EVERYWHERE),
            Key(("ctrl+l",), ("redraw",), "redraw", "redraw the whole screen, if something has garbled it", _EVERYWHERE, also="refresh repaint"),
            Key(("ctrl+z",), ("suspend_process",), "suspend", "back to the shell; fg returns", _EVERYWHERE),
            Key(("q", "ctrl+c"), ("leave", "leave"), "quit", "quit", _EVERYWHERE, 0, also="exit close"),
        ),
    ),
)  # fmt: skip

SIDE_BY_SIDE = KeyGroup(
    "Two recordings side by side",
    (
        Key(("space", "P"), ("pause", "pause"), "play", "play, pause", _COMPARE, 3, names=("pause",)),
        Key(("<", ">"), ("speed(-1)", "speed(1)"), "speed", "halve, double the playback speed", _COMPARE, 5, ("half", "double")),
        Key(("left", "right", "k", "j"), _pair("step(-1)", "step(1)"), "step", "the previous, the next round of either recording", _COMPARE, 4, names=("scrub_back", "scrub_on")),
        Key(("shift+left", "shift+right"), ("step(-10)", "step(10)"), "step 10", "ten rounds back, forward", _COMPARE, 9, names=("scrub_10_back", "scrub_10_on")),
        Key(("home", "end", "g", "G"), _pair("seek(0)", "seek(1)"), "ends", "the beginning, the end of the run", _COMPARE, 8, names=("first_round", "now")),
        Key(("n", "N"), ("go(1)", "go(-1)"), "run", "the next, the previous run of both recordings", _COMPARE, 6, names=("next_prompt", "previous_prompt")),
        Key(("1", "2", "3"), tuple(f"panel('{name}')" for name in ALWAYS), "panel", "text, tree, curves", _COMPARE, 7, ALWAYS, fixed=True),
        Key(("v",), ("symbols",), "symbols", "braille, blocks or ASCII", _COMPARE, 10),
        Key(("?",), ("help",), "help", "this page", _COMPARE, 1),
        Key(("ctrl+l",), ("redraw",), "redraw", "redraw the whole screen", _COMPARE),
        Key(("ctrl+z",), ("suspend_process",), "suspend", "back to the shell; fg returns", _COMPARE),
        Key(("q", "ctrl+c"), ("leave", "leave"), "quit", "quit", _COMPARE, 2),
    ),
)  # fmt: skip

ATTACHED = KeyGroup(
    "A server that is watched",
    (
        Key(("space", "p", "P"), ("pause", "pause", "pause"), "pause", "freeze the view; watching and recording go on", _ATTACH, 3, names=("pause",)),
        Key(("l",), ("loads",), "load", "figures by running requests, speed-up over them, totals", _ATTACH, 5),
        Key(("v",), ("symbols",), "symbols", "braille, blocks or ASCII", _ATTACH, 4),
        Key(("?",), ("help",), "help", "this page", _ATTACH, 1),
        Key(("ctrl+l",), ("redraw",), "redraw", "redraw the whole screen", _ATTACH),
        Key(("ctrl+z",), ("suspend_process",), "suspend", "back to the shell; fg returns", _ATTACH),
        Key(("q", "ctrl+c"), ("leave", "leave"), "quit", "quit", _ATTACH, 2),
    ),
)  # fmt: skip

KEYMAP = Keymap(GROUPS, SIDE_BY_SIDE, ATTACHED)
