"""The command line that gives the present settings again, as it can be pasted into a shell.

Only what differs from the defaults is written, on one line that shows every character: what could steer a terminal is
an escape of the shell's. Where the run is recorded and how the screen looks is no part of it.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict

from decoder.config import RunConfig
from decoder.knobs import RulesName
from decoder.methods import base, options_of
from decoder.methods.option import differing, option_words
from dynatui.clean import clean_line
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
        always: Parameters written even at their defaults, because a settings file or a variable says otherwise.
    """
    if session.models.embedded:  # which has others on the screen than elsewhere
        always = {*always, "temperature", "seed"}
    names, count = _matching(session.prompts, files or {})
    texts = () if session.prompts == load.embedded() else session.prompts[count:]
    words, too_much = ["dynatui", *_models(session.models, always)], list[str]()
    for name in names:
        words += ["--prompt-file", name]
    for number, text in enumerate(texts, count + 1):
        obstacle = _obstacle(text)
        if obstacle:
            too_much.append(f"save prompt {number} as PROMPT-{number}.txt first: {obstacle}")
            words += ["--prompt-file", f"PROMPT-{number}.txt"]
        else:
            words += ["--prompt", text]
    if session.tensor_parallel > 1 or "tensor_parallel" in always:
        words += option_words("tensor_parallel", session.tensor_parallel)
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
        yield from option_words(name, value)


def _matching(prompts: Sequence[str], files: Mapping[str, Sequence[str]]) -> tuple[list[str], int]:
    """The files that the session's prompts begin with, and how many prompts these hold."""
    names, count = list[str](), 0
    for name, held in files.items():
        if name == load.STANDARD_INPUT or tuple(prompts[count : count + len(held)]) != tuple(held):
            break
        names.append(name)
        count += len(held)
    return names, count


def _obstacle(text: str) -> str:
    """Why a prompt cannot be an argument; nothing when it can."""
    if "\0" in text:
        return "no argument can hold its null characters"
    return "it is too long for an argument" if len(text.encode("utf-8", "replace")) > LONGEST_ARGUMENT else ""


def _run(config: RunConfig, always: Collection[str]) -> Iterator[str]:
    usual = RunConfig()
    for name in ("chat", "methods", "max_new_tokens", "seed"):
        value = getattr(config, name)
        if value != getattr(usual, name) or name in always:
            yield from option_words(name, ",".join(value) if name == "methods" else value)


def rule_options(config: RunConfig, always: Collection[str] = ()) -> Iterator[str]:
    """Of each parameter set, in the order of the help: what differs from the usual one or a preset."""
    for name in sorted(config.parameters, key=_rank):
        rules = config.rules(name)
        changed = differing(rules, base(name, rules))
        for option in options_of(name):
            differs = changed & {*option.parameters}
            if option.default is not None:
                differs = option.value(rules) != option.default
            if differs or option.name in always:
                yield from option_words(option.name, option.value(rules))


def _rank(name: RulesName) -> int:
    return max((option.rank for option in options_of(name)), default=0)
