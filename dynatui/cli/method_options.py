"""Options that follow from the registry of methods: declared for the command line, and handed on as what was given.

A command names a place for them, a parameter that takes a mapping. What they mean is decided in `decoder.methods`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Any

import typer

from decoder.errors import ConfigError, quoted
from decoder.methods import METHODS, racing
from decoder.methods.option import Option
from dynatui.cli import options

Given = Mapping[str, Any]
"""What was given for each option of a place, by its name; None where nothing was."""


def every() -> list[Option]:
    """The options of all methods, in the order of the help."""
    return sorted((option for method in METHODS.values() for option in method.options), key=lambda option: option.rank)


def instead(name: str, value: object) -> str | None:
    """What to do instead of setting an option to a value of another kind, where that is known."""
    found = next((option for option in every() if option.name == name), None)
    return found.instead.get(value) if found and isinstance(value, str) else None


def declared(option: Option) -> Parameter:
    """An option of a method as a parameter of a command."""
    flags = f"{option.flag}/--no-{option.flag.removeprefix('--')}" if option.kind is bool else option.flag
    shown = typer.Option(
        flags,
        metavar=option.metavar or None,
        rich_help_panel=options.TREE,
        help=option.help,
        autocompletion=(lambda: list(option.choices)) if option.choices else None,
        parser=partial(_whole_number, option) if option.instead else None,
    )
    kind = option.kind | None if option.default is None else option.kind
    return options.parameter(option.name, kind, shown, option.default)


def methods() -> Parameter:
    """The option that names the methods of a race."""
    shown = typer.Option(
        metavar="NAMES",
        rich_help_panel=options.RUN,
        autocompletion=_names,
        help=f"The methods that race, of {', '.join(METHODS)}; the first is the one that is watched.",
        show_default=", ".join(racing()),
    )
    return options.parameter("methods", str | None, shown)


def expanded(
    command: Callable[..., int], places: Mapping[str, Iterable[Parameter]], others: Sequence[Parameter] = ()
) -> Callable[..., int]:
    """A command with options in the places that it has for them, as the registry is now.

    Args:
        command: Takes a mapping of what was given in each place.
        places: The options of each place, by the name of the command's parameter.
        others: Parameters that take the place of the command's own of their names.
    """
    held = {place: tuple(found) for place, found in places.items()}
    own = {other.name: (other,) for other in others}
    parameters = [
        each
        for name, before in signature(command).parameters.items()
        for each in held.get(name, own.get(name, (before,)))
    ]

    @wraps(command)
    def run(**given: Any) -> int:
        gathered = {place: {each.name: given.pop(each.name) for each in found} for place, found in held.items()}
        return command(**given, **gathered)

    run.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": int}
    run.__dict__["__signature__"] = Signature(parameters)
    return run


def _names(incomplete: str) -> list[str]:
    begun = incomplete.split(",")[:-1]
    return [",".join([*begun, name]) for name in METHODS if name not in begun]


def _whole_number(option: Option, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        remedy = option.instead.get(text, "give a whole number from 1 up")
        raise ConfigError(f"{option.flag} is {quoted(text)}; {remedy}") from None
