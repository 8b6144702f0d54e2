"""Makes options, arguments and commands as Typer objects, which provide `--help` and shell completion.

Typer's public functions make such objects only from function signatures, so this module uses private functions of
Typer; no other module uses them. Knows neither the options of any command nor the user's settings.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import Any, TypeAlias

from typer._click.globals import get_current_context
from typer._coercion import resolve_type_descriptor
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_install_completion_arguments
from typer.models import ArgumentInfo, OptionInfo

_WORD = re.compile(r"[A-Z]+")
Given = Mapping[str, Any]
"""Values of options by parameter name; None for an option that was not given."""


@dataclass(frozen=True)
class Group:
    """Options whose values together make one argument of a command's function."""

    name: str
    options: Sequence[TyperOption]
    make: Callable[..., Any] = dict
    """Function that makes the argument; the options' values are its keyword arguments."""


Declared: TypeAlias = Sequence[Group | TyperOption | TyperArgument]
"""The parameters of a command, in the order of its help text; a command's function takes them by name."""
CONTEXT = Group("context", (), get_current_context)
"""Parameter for functions that need Typer's context, which knows the options and the subcommand that were typed."""


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
    show_default: bool | str = True,
    panel: str | None = None,
    **further: Any,
) -> TyperOption:
    """An option of a command.

    Args:
        usage: Flag and placeholder of the value, such as "--fps N"; for a `bool`, only the flag, such as "--show" or
        "--mouse/--no-mouse".
        explained: Help text.
        kind: Type of the value, which Typer checks; a `list` option may be repeated, a `bool` option has no value.
        name: Name of the function's parameter; if not given, the flag's name with underscores.
        parse: Function from text to the value, used instead of `kind`; raises ConfigError for an invalid text. With
        `parse`, the default must be a text too.
        complete: Function from the beginning of a value to the whole values that a shell offers.
        least: Smallest valid number.
        most: Largest valid number.
        show_default: Whether the help shows the default, or a text to show instead.
        panel: Panel of `--help`.
        further: Other arguments of `TyperOption`: default, required, envvar, is_eager, callback.
    """
    flags, _, metavar = usage.partition(" ")
    return TyperOption(
        param_decls=[name or flags.partition("/")[0].lstrip("-").replace("-", "_"), flags],
        type_descriptor=resolve_type_descriptor(kind, OptionInfo(min=least, max=most, parser=parse)),
        is_flag=kind is bool,
        multiple=kind == list[str],
        metavar=metavar or None,
        help=explained,
        autocompletion=complete and (lambda _context, _arguments, begun: complete(begun)),
        min=least,
        max=most,
        show_default=show_default,
        show_envvar=True,
        rich_help_panel=panel,
        **further,
    )


def switch(usage: str, explained: str, *, default: bool | None = False, **further: Any) -> TyperOption:
    """An option without a value; `further` are parameters of `option`."""
    return option(usage, explained, bool, default=default, **further)


def in_panel(title: str, *options: TyperOption) -> tuple[TyperOption, ...]:
    """The given options, moved to the panel of `--help` with this title."""
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
    """An argument of a command; for parameters see `option`. An optional argument is None if absent."""
    described = resolve_type_descriptor(kind, ArgumentInfo(parser=parse))
    return TyperArgument(
        param_decls=[name], type_descriptor=described, metavar=metavar, help=explained, required=required
    )


Around: TypeAlias = Callable[[Any], AbstractContextManager[object]]
"""Function from Typer's context to a context manager. The command runs within the context manager, which may change
option values."""


def command(name: str, run: Callable[..., int], declared: Declared, around: Around = nullcontext) -> TyperCommand:
    """A command that calls `run` with the values of the declared parameters; the docstring of `run` is the help."""
    return TyperCommand(
        name, help=getdoc(run), params=[*_parameters(declared)], callback=_callback(run, declared, around)
    )


def group(
    name: str,
    run: Callable[..., object],
    declared: Declared,
    commands: Sequence[TyperCommand | TyperGroup],
    around: Around = nullcontext,
    **further: Any,
) -> TyperGroup:
    """A command group; `run` is called before each subcommand, and `further` are arguments of Typer's group."""
    return TyperGroup(
        name=name,
        help=getdoc(run),
        params=[*_parameters(declared)],
        callback=_callback(run, declared, around),
        commands=list(commands),
        **further,
    )


def with_completion(program: TyperGroup) -> TyperGroup:
    """The program with the options that install and show shell completion."""
    program.params += get_install_completion_arguments()
    return program


def _parameters(declared: Declared) -> Iterator[TyperOption | TyperArgument]:
    for each in declared:
        yield from each.options if isinstance(each, Group) else (each,)


def _callback(run: Callable[..., Any], declared: Declared, around: Around) -> Callable[..., Any]:
    groups = [each for each in declared if isinstance(each, Group)]

    def call(**_: Any) -> Any:
        context = get_current_context()
        with around(context):
            return run(**_arguments(_at_home(context), groups))

    return call


def _at_home(context: Any) -> Given:
    """The values of a command's parameters, with the home folder in place of a first ~ of each path, since a shell
    replaces it neither after = nor in settings.
    """
    paths = {each.name for each in context.command.params if set(_WORD.findall(each.metavar or "")) & {"FILE", "DIR"}}
    return {name: _expanded(value) if name in paths else value for name, value in context.params.items()}


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


def _arguments(values: Given, groups: Iterable[Group]) -> dict[str, Any]:
    """The arguments of a command's function: the values of a group become one argument, and every other value is an
    argument of its own.
    """
    left = dict(values)
    made = {each.name: each.make(**{option.name: left.pop(option.name) for option in each.options}) for each in groups}
    return left | made
