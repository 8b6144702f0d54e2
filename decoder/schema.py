"""Recordings of earlier schemas in the terms of today's.

Schema 1 had no method `auto`: there DynaTree's `n_max` of 0 stood for as many nodes as pay. Such a run is told as one
of `auto`. What an earlier schema did not record stays unknown. Knows single events, neither files nor lines.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from decoder.events import SCHEMA, Event, Run, Summary


class Upgrade:
    """Turns the events of one recording, in their order, into events of today's schema."""

    def __init__(self) -> None:
        self._names: Mapping[str, str] = {}
        """Today's name of a method, where the present run calls it otherwise."""

    def event(self, event: Event) -> Event:
        """The event as it would be recorded today."""
        if isinstance(event, Run):
            return self._run(event)
        if isinstance(event, Summary):
            return structs.replace(event, methods={self._name(name): found for name, found in event.methods.items()})
        name = self._name(event.method)
        return event if name == event.method else structs.replace(event, method=name)

    def _run(self, run: Run) -> Run:
        self._names = {}
        if run.schema >= SCHEMA:
            return run
        if _is_automatic(run.methods.get("dynatree", {})) and "auto" not in run.methods:
            self._names = {"dynatree": "auto"}
        methods = {self._name(name): _parameters(self._name(name), given) for name, given in run.methods.items()}
        return structs.replace(run, schema=SCHEMA, methods=methods)

    def _name(self, method: str) -> str:
        return self._names.get(method, method)


def _is_automatic(parameters: Mapping[str, Any]) -> bool:
    n_max = parameters.get("n_max")
    return n_max == 0 and not isinstance(n_max, bool)


def _parameters(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """Without those that `auto` does not have."""
    return {name: value for name, value in given.items() if method != "auto" or name not in ("n_max", "selection")}
