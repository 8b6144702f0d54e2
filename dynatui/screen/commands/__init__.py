"""Commands of the keys: a short function for each command, with the screen as its first argument."""

import ast
from collections.abc import Callable
from functools import partial
from types import ModuleType

from decoder.errors import DecoderError
from dynatui.screen.commands import knobs, record, time, view
from dynatui.screen.protocol import Screen

_MODULES: tuple[ModuleType, ...] = (knobs, time, view, record)


def find(action: str) -> Callable[[Screen], None] | None:
    """The command for an action of the key map; None if the app itself has a method for this action."""
    name, _, arguments = action.partition("(")
    function = next((getattr(module, name) for module in _MODULES if hasattr(module, name)), None)
    if function is None:
        return None
    return partial(_run, function, ast.literal_eval(f"({arguments.removesuffix(')')},)") if arguments else ())


def _run(function: Callable[..., None], arguments: tuple[object, ...], screen: Screen) -> None:
    try:
        function(screen, *arguments)
    except DecoderError as error:
        screen.show_note(str(error))
    screen.draw(everything=True)
