"""What a key map is: which key does what where, under which name it can be bound anew, and how it is written.

Knows no action and no widget: the map itself is in `dynatui.keymap`.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from decoder.errors import ConfigError, quoted

Mode: TypeAlias = Literal["watch", "inspect", "search", "knobs", "compare"]
"""What the keys act on: the run, a token of the text, a hit of a search, a slider, or two recordings side by side."""
LEFT_OUT = 999
"""The rank of a key that the footer leaves to the help."""
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
"""Keys that have a name instead of a character."""


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
    modes: tuple[Mode, ...]
    """Where the keys mean this."""
    rank: int = LEFT_OUT
    """Place in the footer: the lowest come first, and the highest give way in a narrow terminal."""
    words: tuple[str, ...] = ("down", "up")
    """What tells the actions of a pair from each other in the palette."""
    names: tuple[str, ...] = ()
    """What each action is called in the settings, where label and words make no good name."""
    does: tuple[str, ...] = ()
    """Every action once, those too that no key does any more; empty where each has a key."""
    fixed: bool = False
    """Whether the keys stay where they are: digits, which type values and number the panels."""

    @property
    def different(self) -> tuple[str, ...]:
        """The actions, each once."""
        return self.does or tuple(dict.fromkeys(self.actions))

    @property
    def titles(self) -> tuple[str, ...]:
        """What the palette calls each action."""
        return (self.label,) if len(self.different) == 1 else tuple(f"{self.label}: {word}" for word in self.words)

    @property
    def settings(self) -> dict[str, str]:
        """Each action by its name in the settings."""
        if self.fixed:
            return {}
        names = self.names or tuple(_slug(title) for title in self.titles)
        return dict(zip(names, self.different, strict=True))

    @property
    def shown(self) -> tuple[str, ...]:
        """The keys as the footer, the help and the documents write them."""
        return tuple(_GLYPHS.get(cap, cap) for cap in self.caps)

    def caps_of(self, action: str) -> tuple[str, ...]:
        """The keys that do something."""
        return tuple(cap for cap, does in zip(self.caps, self.actions, strict=True) if does == action)


@dataclass(frozen=True)
class Group:
    """Keys that belong together, under a heading of the help."""

    title: str
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Keymap:
    """Every key of the program."""

    groups: tuple[Group, ...]
    side_by_side: Group
    """The keys where two recordings are compared."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """All but those of the comparison, in the order of the help."""
        return tuple(key for group in self.groups for key in group.keys)

    @property
    def every(self) -> Iterator[Key]:
        """All."""
        yield from self.keys
        yield from self.side_by_side.keys

    def action_for(self, cap: str, mode: Mode) -> str | None:
        """What a key does in a mode; None where it does nothing."""
        for key in self.every:
            if mode in key.modes and cap in key.caps:
                return key.actions[key.caps.index(cap)]
        return None

    def all_for(self, action: str) -> frozenset[str]:
        """Every key that does something, in whatever mode."""
        return frozenset(cap for key in self.every for cap in key.caps_of(action))

    def cap(self, action: str) -> str:
        """The key that hints name for an action; of one that no key does, its place in the palette."""
        found = next((caps[0] for key in self.keys if (caps := key.caps_of(action))), None)
        palette = "ctrl+p" if action != "command_palette" else "nothing"
        return _GLYPHS.get(found, found) if found else palette

    def settings(self) -> dict[str, tuple[str, ...]]:
        """The keys of everything that can be bound anew, by its name."""
        named = dict[str, tuple[str, ...]]()
        for key in self.every:
            for name, action in key.settings.items():
                named.setdefault(name, tuple(cap for cap in key.caps_of(action) if cap != _ALWAYS_QUITS))
        return named

    def rebound(self, changes: Mapping[str, Sequence[str]]) -> "Keymap":
        """The map with other keys for some names; none for an empty list.

        Raises:
            ConfigError: There is no such name or no such key, or a key would mean two things.
        """
        known = self.settings()
        for name, caps in changes.items():
            if name not in known:
                remedy = f"{near(name, known)}dynatui config --print-default lists all names"
                raise ConfigError(f"no key is called {quoted(name)}; {remedy}")
            for cap in caps:
                _check(name, cap)
        groups = tuple(replace(group, keys=_rebound(group.keys, changes)) for group in self.groups)
        found = Keymap(groups, replace(self.side_by_side, keys=_rebound(self.side_by_side.keys, changes)))
        found._refuse_double_meaning(changes)
        return found

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
                            f"{turned} is {quoted(cap)}, which is {taken} already; give one of them another key"
                        )


def near(name: str, known: Iterable[str]) -> str:
    """A question about the nearest of the names that there are; nothing where none is near."""
    return "".join(f"did you mean {each}? " for each in difflib.get_close_matches(name, known, 1))


def _rebound(keys: Sequence[Key], changes: Mapping[str, Sequence[str]]) -> tuple[Key, ...]:
    return tuple(_with(key, changes) if changes.keys() & key.settings.keys() else key for key in keys)


def _with(key: Key, changes: Mapping[str, Sequence[str]]) -> Key:
    """A line of the map with its new keys, action by action."""
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
    """Refuses what no terminal sends, and the one key that always quits."""
    base = _MODIFIER.sub("", cap, count=1)
    if not (base in _NAMED or (len(base) == 1 and base.isprintable() and base != " ")):
        raise ConfigError(f'{name} is {quoted(cap)}; give a character, or a key such as "f5", "ctrl+s" or "pageup"')
    if cap == _ALWAYS_QUITS:
        raise ConfigError(f'{name} is "{cap}", which always quits; give another key')


def _slug(title: str) -> str:
    return re.sub(r"\W+", "_", title.lower()).strip("_")
