"""The command line that reproduces the current settings: options that differ from the defaults, quoted for a shell."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from decoder.knobs import RulesName
from decoder.methods import SIDE_A, base, defaults, options_of
from decoder.methods.method import differing, option_words
from decoder.prompt import AnyPrompt, Prompt, as_prompt
from decoder.run.config import RunConfig
from dynatui.clean import clean_line
from dynatui.prompts import STANDARD_INPUT, embedded
from dynatui.session import Models, Session

LONGEST_ARGUMENT = 100_000
"""Maximum size of a prompt in bytes; Linux allows 128 KiB per argument."""
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "!": "\\x21"}
"""Escapes within $'…'; an interactive shell would replace `!` by a command of its history."""
_NAMES = {"compiled": "compile"}
"""Option names, without dashes, of the fields of `Models` whose option is not named after the field."""
_OF_RUN = ("chat", "methods", "max_new_tokens", "seed")
_LOST = "\ufffd"


def command_line(
    session: Session, *, files: Mapping[str, Sequence[AnyPrompt]] | None = None, always: Collection[str] = ()
) -> str:
    """The command line that starts this session; ends in a comment if a prompt must first be saved to a file.

    `files`: the prompts of each prompt file, by file name. `always`: options that are written even if they have their
    default value, since a settings file or an environment variable sets another value.
    """
    if session.models.embedded:  # these two defaults of the embedded pair depend on whether there is a screen
        always = {*always, "temperature", "seed"}
    names, count = _matching(session.prompts, files or {})
    texts = () if session.prompts == embedded() else session.prompts[count:]
    words, too_much = ["dynatui", *_changed(asdict(session.models), asdict(Models()), always)], list[str]()
    for name in names:
        words += ["--prompt-file", name]
    if names and session.prompt_field is not None:
        words += option_words("prompt_field", session.prompt_field)
    for number, prompt in enumerate(map(as_prompt, texts), count + 1):
        obstacle = _obstacle(prompt)
        if obstacle:
            name = f"PROMPT-{number}.{'txt' if prompt.earlier is None else 'json'}"
            too_much.append(f"save prompt {number} as {name} first: {obstacle}")
            words += ["--prompt-file", name]
        else:
            words += ["--prompt", prompt.text]
    run, usual = ({name: getattr(config, name) for name in _OF_RUN} for config in (session.config, RunConfig()))
    words += [*_changed(run, usual, always), *rule_options(session.config, always)]
    line = " ".join(map(quoted, words))
    return f"{line} # {'; '.join(too_much)}" if too_much else line


def quoted(word: str) -> str:
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


def _changed(values: Mapping[str, Any], usual: Mapping[str, Any], always: Collection[str]) -> Iterator[str]:
    for field, value in values.items():
        name = _NAMES.get(field, field)
        if value is not None and (value != usual[field] or name in always):
            yield from option_words(name, ",".join(value) if name == "methods" else value)


def _matching(prompts: Sequence[AnyPrompt], files: Mapping[str, Sequence[AnyPrompt]]) -> tuple[list[str], int]:
    """Names of the files whose prompts, in order, are the session's first prompts; and the number of these prompts."""
    names, count = list[str](), 0
    for name, file_prompts in files.items():
        if name == STANDARD_INPUT or tuple(prompts[count : count + len(file_prompts)]) != tuple(file_prompts):
            break
        names.append(name)
        count += len(file_prompts)
    return names, count


def _obstacle(prompt: Prompt) -> str:
    """Why a prompt cannot be an argument; empty if it can."""
    if prompt.earlier is not None:
        return "the prompt is a conversation"
    text = prompt.text
    if "\0" in text:
        return "the prompt contains null characters, which no argument can contain"
    return "the prompt is too long for an argument" if len(text.encode("utf-8", "replace")) > LONGEST_ARGUMENT else ""


def rule_options(config: RunConfig, always: Collection[str] = ()) -> Iterator[str]:
    """Options of all methods, in the order of the help; there are no options for side A of a comparison."""

    def rank(name: RulesName) -> int:
        return max((option.rank for option in options_of(name)), default=0)

    for name in sorted((name for name in config.parameters if not name.endswith(SIDE_A)), key=rank):
        yield from options_of_set(config, name, always)


def options_of_set(config: RunConfig, name: RulesName, always: Collection[str] = ()) -> Iterator[str]:
    """Options whose values differ from the preset, and an option for a preset if its value differs from the default."""
    rules, usual = config.rules(name), defaults(config.sampling.temperature)[name]
    changed = differing(rules, base(name, rules))
    for option in options_of(name):
        if option.selects_preset:
            differs = option.value(rules) != option.value(usual)
        else:
            differs = not changed.isdisjoint(option.parameters)
        if differs or option.name in always:
            yield from option_words(option.name, option.value(rules))
