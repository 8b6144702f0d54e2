"""Creates options, arguments and commands of Typer from values; Typer itself creates them only from signatures."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import Parameter, Signature, getdoc
from pathlib import Path
from typing import Any, TypeAlias

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_callback, get_command_from_info
from typer.models import CommandInfo

_WORD = re.compile(r"[A-Z]+")
Given = Mapping[str, Any]
"""Values of options by parameter name; None for an option that was not given."""


@dataclass(frozen=True)
class OptionGroup:
    """Options whose values are keyword arguments of `make`, which returns one argument of the command's function."""

    name: str
    options: Sequence[TyperOption]
    make: Callable[..., Any] = dict


Declared: TypeAlias = Sequence[OptionGroup | TyperOption | TyperArgument]
"""The parameters of a command, in the order of the help text; the command's function takes them by name."""
CONTEXT = OptionGroup("context", ())
"""Makes Typer's context, which contains the options on the command line, an argument of a command's function."""


def option(
    usage: str,
    explained: str,
    kind: Any = str,
    *,
    name: str | None = None,
    default: Any = None,
    required: bool = False,
    parse: Callable[[str], object] | None = None,
    complete: Callable[[str], Sequence[str]] | None = None,
    least: int | None = None,
    most: int | None = None,
    panel: str | None = None,
    **further: Any,
) -> TyperOption:
    """An option of a command. With a list type as `kind`, the option may be repeated; with bool, it takes no value.

    `usage` is a flag and the placeholder of its value, such as "--fps N", or only flags, such as "--mouse/--no-mouse".
    `name` is the name of the function's parameter, by default the flag with underscores. `parse` replaces `kind`: it
    converts a text (also a default) to the value, or raises ConfigError. `complete` maps the beginning of a value to
    the whole values that a shell offers.
    """
    flags, _, metavar = usage.partition(" ")
    declared = typer.Option(
        ... if required else default,
        flags,
        metavar=metavar or None,
        help=explained,
        parser=parse,
        autocompletion=complete and (lambda incomplete: complete(incomplete)),
        min=least,
        max=most,
        rich_help_panel=panel,
        **further,
    )
    made: TyperOption = _made(name or flags.partition("/")[0].lstrip("-").replace("-", "_"), kind, declared)
    return made


def switch(usage: str, explained: str, *, default: bool | None = False, **further: Any) -> TyperOption:
    return option(usage, explained, bool, default=default, **further)


def in_panel(title: str, *options: TyperOption) -> tuple[TyperOption, ...]:
    for each in options:
        each.rich_help_panel = title
    return options


def argument(
    name: str,
    metavar: str,
    explained: str,
    kind: Any = str,
    *,
    required: bool = True,
    parse: Callable[[str], object] | None = None,
) -> TyperArgument:
    """An argument of a command, None if optional and absent. The parameters have the same meaning as in `option`."""
    declared = typer.Argument(... if required else None, metavar=metavar, help=explained, parser=parse)
    made: TyperArgument = _made(name, kind, declared)
    return made


def _made(name: str, kind: Any, declared: Any) -> Any:
    """The option or argument that Typer creates from the signature of a function with only this parameter."""

    def function(**_: Any) -> None: ...

    parameter = Parameter(name, Parameter.KEYWORD_ONLY, default=declared, annotation=kind)
    vars(function)["__signature__"] = Signature([parameter])
    command = get_command_from_info(CommandInfo(callback=function), pretty_exceptions_short=True, rich_markup_mode=None)
    return command.params[0]


Around: TypeAlias = Callable[[Any], AbstractContextManager[object]]
"""(Typer's context) -> context manager in which a command runs; the manager may change the values of options."""


def command(name: str, run: Callable[..., int], declared: Declared, around: Around = nullcontext) -> TyperCommand:
    """A command that calls `run` with the values of the declared parameters; the docstring of `run` is the help."""
    return TyperCommand(name, **_running(run, declared, around))


def group(
    name: str,
    run: Callable[..., object],
    declared: Declared,
    commands: Sequence[TyperCommand | TyperGroup],
    around: Around = nullcontext,
    **further: Any,
) -> TyperGroup:
    """A command group; `run` is called before each subcommand, and `further` are arguments of Typer's group."""
    return TyperGroup(name=name, commands=list(commands), **_running(run, declared, around), **further)


def _running(run: Callable[..., Any], declared: Declared, around: Around) -> dict[str, Any]:
    params = [each for part in declared for each in (part.options if isinstance(part, OptionGroup) else (part,))]

    def call(context: typer.Context, **_: Any) -> Any:
        with around(context):
            return run(**_arguments(context, declared))

    callback = get_callback(callback=call, params=params, context_param_name="context", pretty_exceptions_short=True)
    return {"help": getdoc(run), "params": params, "callback": callback}


def _arguments(context: typer.Context, declared: Declared) -> dict[str, Any]:
    """Arguments of a command's function. In paths, a leading ~ is expanded, since shells do not expand it after =."""
    paths = {each.name for each in context.command.params if set(_WORD.findall(each.metavar or "")) & {"FILE", "DIR"}}
    left = {name: _expanded(value) if name in paths else value for name, value in context.params.items()}
    for each in declared:
        if each is CONTEXT:
            left[each.name] = context
        elif isinstance(each, OptionGroup):
            left[each.name] = each.make(**{option.name: left.pop(option.name) for option in each.options})
    return left


def _expanded(value: Any) -> Any:
    match value:
        case str():
            return os.path.expanduser(value)  # noqa: PTH111 - leaves the text as it is if there is no such user
        case Path():
            return Path(_expanded(str(value)))
        case list() | tuple():
            return type(value)(map(_expanded, value))
        case _:
            return value
