"""The command line that gives the present settings again, as it can be pasted into a shell.

Only what differs from the defaults is written. A line is one line and shows every character that it holds: what could
steer a terminal stands in it as an escape of the shell's. Where the run is recorded and how the screen looks is no part
of it. Knows option names, and nothing of the screen.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from decoder.config import PRESETS, Auto, DynaTree, Fixed, RunConfig
from decoder.knobs import KnobName
from dynatui.clean import clean_line
from dynatui.knobs import TABLE
from dynatui.prompts import load
from dynatui.session import Models, Session

LONGEST_ARGUMENT = 100_000
"""Bytes of a prompt that still is written into the line; Linux takes 128 KiB an argument."""
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "!": "\\x21"}
"""The exclamation mark: an interactive shell would take it for a reference to its history."""
_NAMES = {"compiled": "compile"}
"""Options of models that are not called as what they set."""
_LOST = "\ufffd"


def command_line(
    session: Session, *, files: Mapping[str, Sequence[str]] | None = None, always: Collection[str] = ()
) -> str:
    """The line that starts such a session; with a comment at its end where a prompt must be saved to a file first.

    Args:
        session: What to start; its config as it is now, knobs turned.
        files: Prompts by the file that they were read from, in the order of the session.
        always: Parameters of the command line that are written even at their defaults, because a settings file or a
            variable says otherwise.
    """
    texts, too_much = list(_texts(session.prompts, files or {})), list[str]()
    words = ["dynatui", *_models(session.models, always), *_files(session.prompts, files or {})]
    for number, text in texts:
        obstacle = _obstacle(text)
        if obstacle:
            too_much.append(f"save prompt {number} as PROMPT-{number}.txt first: {obstacle}")
            words += ["--prompt-file", f"PROMPT-{number}.txt"]
        else:
            words += ["--prompt", text]
    words += [*_run(session.config, always), *rule_options(session.config, always)]
    line = " ".join(map(quoted, words))
    return f"{line} # {'; '.join(too_much)}" if too_much else line


def quoted(word: str) -> str:
    """A word as a shell reads it back; in $'…' where it holds what no terminal should be sent."""
    if clean_line(word) == word:
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if clean_line(character) == character:
        return character
    try:
        encoded = character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        encoded = _LOST.encode()
    return "".join(f"\\x{byte:02x}" for byte in encoded)


def _models(models: Models, always: Collection[str]) -> Iterator[str]:
    given, usual = asdict(models), asdict(Models())
    for field, value in given.items():
        name = _NAMES.get(field, field)
        if value is None or (value == usual[field] and name not in always):
            continue
        if isinstance(value, bool):
            yield f"--{name}" if value else f"--no-{name}"
        else:
            yield from (f"--{name}", value)


def _matching(prompts: Sequence[str], files: Mapping[str, Sequence[str]]) -> tuple[list[str], int]:
    """The files that the session's prompts begin with, and how many prompts these hold."""
    names, count = list[str](), 0
    for name, held in files.items():
        if name == load.STANDARD_INPUT or tuple(prompts[count : count + len(held)]) != tuple(held):
            break
        names.append(name)
        count += len(held)
    return names, count


def _files(prompts: Sequence[str], files: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name in _matching(prompts, files)[0]:
        yield from ("--prompt-file", name)


def _texts(prompts: tuple[str, ...], files: Mapping[str, Sequence[str]]) -> Iterable[tuple[int, str]]:
    """The prompts that must be written out, each with its number; our own need not be."""
    if prompts == load.embedded():
        return ()
    first = _matching(prompts, files)[1]
    return enumerate(prompts[first:], first + 1)


def _obstacle(text: str) -> str:
    """Why a prompt cannot be an argument; nothing when it can."""
    if "\0" in text:
        return "no argument can hold its null characters"
    return "it is too long for an argument" if len(text.encode("utf-8", "replace")) > LONGEST_ARGUMENT else ""


def _run(config: RunConfig, always: Collection[str]) -> Iterator[str]:
    usual = RunConfig()
    if config.chat or "chat" in always:
        yield "--chat" if config.chat else "--no-chat"
    if config.methods != usual.methods or "methods" in always:
        yield from ("--methods", ",".join(config.methods))
    for name in ("max_new_tokens", "seed"):
        if getattr(config, name) != getattr(usual, name) or name in always:
            yield from (f"--{name.replace('_', '-')}", str(getattr(config, name)))


def rule_options(config: RunConfig, always: Collection[str] = ()) -> Iterator[str]:
    """DynaTree's nearest preset and what differs from it, then what differs from the other methods' usual values."""
    preset = min(PRESETS, key=lambda name: len(_differing(config.dynatree, PRESETS[name])))
    if preset != next(iter(PRESETS)) or "preset" in always:
        yield from ("--preset", preset)
    differing = _differing(config.dynatree, PRESETS[preset])
    for parameter, option in _DYNATREE.items():
        if parameter in differing or option in always:
            yield from _dynatree(option, getattr(config.dynatree, parameter))
    usual = RunConfig()
    if config.linear != usual.linear or "k" in always:
        yield from ("--k", str(config.linear.k))
    if config.fixed != usual.fixed or "fixed" in always:
        yield from ("--fixed", fixed_tree(config.fixed))
    if config.auto != usual.auto or "auto" in always:
        yield from ("--auto", auto_bounds(config.auto))


_DYNATREE = {
    knob.parameter: knob.option.removeprefix("--").replace("-", "_") for knob in TABLE if DynaTree().has(knob.name)
}
"""DynaTree's parameters and the names of their options."""


def _differing(one: DynaTree, other: DynaTree) -> set[str]:
    return {name for name, value in asdict(one).items() if value != asdict(other)[name]}


def _dynatree(option: str, value: Any) -> tuple[str, ...]:
    if option == "history":
        return ("--history" if value else "--no-history",)
    written = ",".join(map(str, value)) if isinstance(value, tuple) else _number(value)
    return (f"--{option.replace('_', '-')}", written)


def fixed_tree(fixed: Fixed) -> str:
    """A fixed tree as its option takes it; the number of nodes where it is not the usual one."""
    parts = [str(fixed.depth), str(fixed.branching), _number(fixed.tau)]
    return ",".join(parts if fixed.n_max == Fixed.n_max else [*parts, str(fixed.n_max)])


def auto_bounds(bounds: Auto) -> str:
    """What differs from the usual bounds of `auto`, as its option takes it."""
    usual = Auto()
    changed = [name for name in bounds.ends() if bounds.knob(name) != usual.knob(name)]
    return ",".join(f"{name}={_bound(name, bounds.knob(name))}" for name in changed)


def _bound(name: KnobName, value: float) -> str:
    return ("off", "on")[value > 0] if name == "history" else _number(value)


def _number(value: float | str) -> str:
    """A number that is read back as it was."""
    return re.sub(r"\.0$", "", str(value))
