"""Options and arguments of click in the form that all commands share: help under headings, groups of options that make
one argument of a command's function, and shell completion.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import Any, TypeAlias, get_args, get_origin

import click
from click.shell_completion import get_completion_class
from click.types import FuncParamType

from decoder.errors import ConfigError, shortened

_PLACE = re.compile(r"\b(FILE|DIR)\b")
_WIDEST = 120
_VARIABLE = "_DYNATUI_COMPLETE"
Given = Mapping[str, Any]
"""Values of options by parameter name; None for an option that was not given."""


class Option(click.Option):
    kind: Any = str
    """Type of the value in a settings file."""
    panel: str = "General"
    """Heading in the help."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        cast = super().type_cast_value(ctx, value)
        return list(cast) if self.multiple else cast


@dataclass(frozen=True)
class OptionGroup:
    """Options whose values are keyword arguments of `make`, which returns one argument of the command's function."""

    name: str
    options: Sequence[Option]
    make: Callable[..., Any] = dict


Declared: TypeAlias = Sequence[OptionGroup | Option | click.Argument]
"""The parameters of a command, in the order of the help text; the command's function takes them by name."""
CONTEXT = OptionGroup("context", ())
"""Passes click's context, which contains the options on the command line, to a command's function as an argument."""


def option(
    usage: str,
    explained: str,
    kind: Any = str,
    *,
    name: str | None = None,
    parse: Callable[[str], object] | None = None,
    complete: Callable[[str], Sequence[str]] | None = None,
    least: int | None = None,
    most: int | None = None,
    panel: str = Option.panel,
    **further: Any,
) -> Option:
    """An option of a command. With a list type as `kind`, the option may be repeated; with bool, it takes no value.

    `usage` is a flag and the placeholder of its value, such as "--fps N", or only flags, such as "--mouse/--no-mouse".
    `name` is the name of the function's parameter, by default the flag with underscores. `parse` replaces `kind`: it
    converts a text (also a default) to the value, or raises ConfigError. `complete` maps the beginning of a value to
    the whole values that a shell offers. `further` are arguments of click's option.
    """
    flags, _, metavar = usage.partition(" ")
    if complete:
        further["shell_complete"] = lambda _context, _option, begun: [
            word for word in complete(begun) if word.startswith(begun)
        ]
    further = {"show_default": True} | further
    if not further.get("required"):
        further.setdefault("default", None)  # click's own default is a private value
    if kind is not bool:
        further |= {"multiple": get_origin(kind) is list, "type": _type(kind, metavar, parse, least, most)}
    made = Option(
        [name or flags.partition("/")[0].lstrip("-").replace("-", "_"), flags],
        metavar=metavar or None,
        help=explained,
        **further,
    )
    made.kind, made.panel = kind, panel
    return made


def switch(usage: str, explained: str, *, default: bool | None = False, **further: Any) -> Option:
    return option(usage, explained, bool, is_flag=True, default=default, **further)


def in_panel(title: str, *options: Option) -> tuple[Option, ...]:
    for each in options:
        each.panel = title
    return options


def argument(
    name: str,
    metavar: str,
    explained: str,
    kind: Any = str,
    *,
    required: bool = True,
    parse: Callable[[str], object] | None = None,
) -> click.Argument:
    """An argument of a command, None if optional and absent. The parameters have the same meaning as in `option`."""
    shown = metavar if required else f"[{metavar}]"
    return click.Argument([name], metavar=shown, help=explained, required=required, type=_type(kind, metavar, parse))


def _type(
    kind: Any, metavar: str, parse: Callable[[str], object] | None, least: int | None = None, most: int | None = None
) -> click.ParamType[Any]:
    """Click's type for one value of an option. In paths, a leading ~ is expanded, which shells do not do after =."""
    each = get_args(kind)[0] if get_origin(kind) is list else kind
    if parse:
        return FuncParamType(lambda text: parse(text))
    if each is Path or (each is str and _PLACE.search(metavar)):
        # `os.path.expanduser` leaves the text as it is if there is no such user.
        return FuncParamType(lambda text: each(os.path.expanduser(text)))  # noqa: PTH111
    if each is int:
        whole = click.IntRange(least, most)
        whole.name = "whole number"
        return whole
    return click.Choice(get_args(each)) if get_args(each) else click.types.convert_type(each)


class Command(click.Command):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        panels = defaultdict[str, list[tuple[str, str]]](list)
        for each in self.get_params(ctx):
            if not isinstance(each, click.Argument) and (record := each.get_help_record(ctx)):
                panels[getattr(each, "panel", Option.panel)].append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)


class Group(Command, click.Group):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        Command.format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)


Around: TypeAlias = Callable[[Any], AbstractContextManager[object]]
"""(click's context) -> context manager in which a command runs; the manager may change the values of options."""


def command(name: str, run: Callable[..., int], declared: Declared, around: Around = nullcontext) -> Command:
    """A command that calls `run` with the values of the declared parameters; the docstring of `run` is the help."""
    return Command(name, **_running(run, declared, around))


def group(
    name: str,
    run: Callable[..., object],
    declared: Declared,
    commands: Sequence[click.Command],
    around: Around = nullcontext,
    **further: Any,
) -> Group:
    """A command group; `run` is called before each subcommand, and `further` are arguments of click's group."""
    running = _running(run, declared, around)
    return Group(name, commands=list(commands), no_args_is_help=False, **running, **further)


def _running(run: Callable[..., Any], declared: Declared, around: Around) -> dict[str, Any]:
    params = [each for part in declared for each in (part.options if isinstance(part, OptionGroup) else (part,))]

    @click.pass_context
    def call(context: click.Context, /, **_: Any) -> Any:
        with around(context):
            left = dict(context.params)
            for each in declared:
                if each is CONTEXT:
                    left[each.name] = context
                elif isinstance(each, OptionGroup):
                    left[each.name] = each.make(**{str(option.name): left.pop(option.name) for option in each.options})
            return run(**left)

    settings = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST}
    return {"help": getdoc(run), "params": params, "callback": call, "context_settings": settings}


_STARTUP_FILES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}


def _complete(context: click.Context, asked: click.Parameter, shell: str | None) -> None:
    """Prints the script with which a shell completes words, or appends it to the shell's startup file."""
    if not shell:
        return
    complete = get_completion_class(shell)
    if complete is None or shell not in _STARTUP_FILES:
        raise ConfigError(f"there is no completion for {shortened(shell)}; give {', '.join(_STARTUP_FILES)}")
    prepare = "autoload -Uz compinit && compinit\n" if shell == "zsh" else ""
    script = f"{prepare}{complete(context.command, {}, 'dynatui', _VARIABLE).source()}\n"
    if asked.name == "show_completion":
        click.echo(script)
        context.exit()
    startup = Path(_STARTUP_FILES[shell]).expanduser()
    startup.parent.mkdir(parents=True, exist_ok=True)
    if not startup.exists() or _VARIABLE not in startup.read_text(encoding="utf-8"):
        with startup.open("a", encoding="utf-8") as file:
            file.write(f"\n{script}")
    click.echo(f"{shell} completion is installed in {startup}; it works in new terminals")
    context.exit()


def completion() -> list[Option]:
    shell = Path(os.environ.get("SHELL") or "bash").name
    further: dict[str, Any] = {"is_eager": True, "expose_value": False, "is_flag": False, "flag_value": shell}
    return [
        option("--install-completion SHELL", "Install completion for your shell.", callback=_complete, **further),
        option("--show-completion SHELL", "Show the script of completion.", callback=_complete, **further),
    ]
