"""Writes the manual page from the declarations of the command line: options with defaults and help, commands, keys.

    python man/make.py

The help of options and keys is read from their declarations; only the other texts of the page are in this module. Does
not depend on the layout of `--help`.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click

import decoder
from dynatui.cli import config
from dynatui.cli.parameters import Option
from dynatui.keymap import ATTACHED, CURSOR, GROUPS, SIDE_BY_SIDE, Mode
from dynatui.main import command

PAGE = Path(__file__).with_name("dynatui.1")

_SETTINGS = """\
A flag overrides an environment variable, which overrides the settings file, which overrides the default. A setting has
the name of its option, with underscores: tau_h = 0.8, history = false, symbols = "ascii", prompt = ["one", "two"].
dynatui config prints the settings in force and the source of each setting. The table [keys], at the end of the file,
changes key bindings: pause = "f5", d0_up = ["=", "+"]; dynatui config --print-default lists all names.

The preset and DynaTree's knobs have other defaults than those under OPTIONS if the temperature is above 0.
"""
_EXAMPLES = (
    ("The embedded pair of models, live:", "dynatui"),
    ("Two models from the Hugging Face hub:", "dynatui --target EleutherAI/pythia-2.8b --draft EleutherAI/pythia-70m"),
    ("Without a screen, recorded:", 'dynatui --headless --prompt "The door opened" --record run.jsonl'),
    ("Replay the recording; write a template of the settings file:", "dynatui replay run.jsonl"),
    ("", "dynatui config --print-default > ~/.config/dynatui/config.toml"),
)
_VARIABLES = (
    (
        "DYNATUI_*",
        "Sets an option: DYNATUI_TAU_H=0.8 is like --tau-h 0.8. A variable gives a repeatable option only one value.",
    ),
    ("DYNATUI_CONFIG", "Path of another settings file."),
    ("DYNATUI_ATTACH_TOKEN", "The token that dynatui attach sends; it is never shown or recorded."),
    ("DYNATUI_DATA", "Default of --data in dynatui bench paper and dynatui bench sampling."),
    ("NO_COLOR", "If not empty, the screen has no colours."),
    ("SSH_CONNECTION", "If set, the default is 5 frames per second instead of 10."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "If set, they replace ~/.config and ~/.local/state in the paths under FILES."),
)
_FILES = (
    ("~/.config/dynatui/config.toml", "Settings, one name and value per line. dynatui config --path prints the path."),
    ("~/.local/state/dynatui/log/dynatui.log", "Errors, and messages of libraries, unless --log-file is given."),
    ("~/.local/state/dynatui/recordings/", "Recordings started by a key."),
)
_CODES = (
    ("0", "Done."),
    ("2", "The request is invalid; a line on standard error gives the reason and the remedy."),
    ("3", "A model or a device failed; for dynatui doctor: something required does not work."),
    ("4", "A process of a target over several was lost or failed."),
    ("5", "A check failed: dynatui replay A B finds a slowdown or another text; a watched server breaks a promise."),
    ("130", "Interrupted; the text so far has been printed."),
)


def page() -> str:
    """The manual page, as source text with the macros of man(7)."""
    live = command()
    lines = [
        f'.TH DYNATUI 1 "" "dynatui {decoder.__version__}" "User Commands"',
        ".SH NAME",
        r"dynatui \- watch and steer speculative decoding of language models",
        ".SH SYNOPSIS",
        *_synopsis(live),
        ".SH DESCRIPTION",
        *_paragraphs(live.help or ""),
        ".SH OPTIONS",
        *_options(live),
        ".SH COMMANDS",
    ]
    for name, sub in _commands(live):
        lines += [f".SS {_text(f'dynatui {name}')}", *_paragraphs(sub.help or ""), *_described(sub.params)]
    lines += [".SH KEYS"]
    for group in (*GROUPS, SIDE_BY_SIDE, ATTACHED):
        lines += [f".SS {_text(group.title)}"]
        lines += [line for key in group.keys for line in _item(", ".join(map(_bold, key.caps)), key.help)]
    lines += [".SH SETTINGS", *_paragraphs(_SETTINGS)]
    for title, entries in (("ENVIRONMENT", _VARIABLES), ("FILES", _FILES), ("EXIT STATUS", _CODES)):
        lines += [f".SH {title}"]
        lines += [line for name, meaning in entries for line in _item(_bold(name), meaning)]
    lines += [".SH EXAMPLES"]
    for words, example in _EXAMPLES:
        lines += [*([".PP", _text(words)] if words else []), ".PP", ".EX", _text(example), ".EE"]
    return "\n".join(lines) + "\n"


def _synopsis(live: Any) -> Iterator[str]:
    yield rf"{_bold('dynatui')} [\fIOPTIONS\fR]"
    for name, sub in _commands(live):
        arguments = "".join(
            rf" \fI{_text(str(each.metavar))}\fR" for each in sub.params if isinstance(each, click.Argument)
        )
        yield ".br"
        yield rf"{_bold(f'dynatui {name}')}{arguments} [\fIOPTIONS\fR]"


def _commands(group: Any) -> Iterator[tuple[str, Any]]:
    """(name, command) of every command that is not a group of commands; the name includes the names of its groups."""
    for name, sub in group.commands.items():
        if hasattr(sub, "commands"):
            yield from ((f"{name} {inner}", command) for inner, command in _commands(sub))
        else:
            yield name, sub


def _options(live: Any) -> Iterator[str]:
    """The options, grouped under the same headings as in `--help`."""
    options = [option for option in live.params if isinstance(option, Option)]
    for panel, group in groupby(options, lambda option: option.panel):
        yield f".SS {_text(str(panel))}"
        yield from _described(group)
    yield from _item(_bold("-h, --help"), "Show a summary and exit.")


def _described(parameters: Iterable[Any]) -> Iterator[str]:
    for parameter in parameters:
        if isinstance(parameter, click.Argument):
            yield from _item(rf"\fI{_text(parameter.metavar or parameter.name)}\fR", parameter.help or "")
        else:
            names = ", ".join(_bold(name) for name in [*parameter.opts, *parameter.secondary_opts])
            value = "" if parameter.is_flag else rf" \fI{_text(parameter.metavar or parameter.name)}\fR"
            yield from _item(names + value, f"{parameter.help}{_default(parameter)}")


def _default(option: Option) -> str:
    """The default of an option as a sentence; empty if there is none."""
    match config.default(option):
        case None:
            return ""
        case bool(on):
            names = option.opts if on else option.secondary_opts
            return f" Default: {names[0]}." if names else ""
        case value:
            return f" Default: {value}."


def _item(head: str, text: str) -> list[str]:
    return [".TP", head, _text(text)]


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _bold(text: str) -> str:
    return rf"\fB{_text(text)}\fR"


def _text(text: str) -> str:
    """`text` escaped for man(7): in ASCII, without accidental escape sequences or requests, and with hyphens kept."""
    plain = text.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti").replace("^", r"\(ha")
    plain = plain.replace("`", r"\(ga").replace('"', r"\(dq").replace("'", r"\(aq")
    return ("\\&" if plain.startswith(".") else "") + "".join(
        letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in plain
    )


def table_of_keys() -> list[str]:
    """The key map as rows of a Markdown table, for docs/keys.md."""
    where: dict[tuple[Mode, ...], str] = {
        ("watch",): "watching",
        CURSOR: "inspecting",
        ("search",): "searching",
        ("knobs",): "all knobs",
    }
    rows = ["| Keys | Where | What they do |", "|---|---|---|"]
    for group in (*GROUPS, SIDE_BY_SIDE, ATTACHED):
        rows.append(f"| **{group.title}** | | |")
        for key in group.keys:
            caps = " ".join(f"`{cap}`" for cap in key.shown)
            rows.append(f"| {caps} | {where.get(key.modes, '')} | {key.help} |")
    return rows


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="ascii")
    print(PAGE)


if __name__ == "__main__":
    main()
