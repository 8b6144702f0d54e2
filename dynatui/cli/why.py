"""`dynatui why`: what limits the methods of recorded runs, from their own figures. Loads no models."""

from collections.abc import Iterator
from dataclasses import asdict
from textwrap import shorten, wrap
from typing import Annotated, Any

import msgspec
import typer

from decoder.analysis.bottleneck import FEWEST_ROUNDS, explained, of_method
from decoder.analysis.metrics import Race, fold
from decoder.methods import METHODS
from dynatui.clean import clean_line
from dynatui.cli import options
from dynatui.record.reader import Runs
from dynatui.terminal import streams

WIDTH = 80
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a run: the numbers behind the sentences.")]


def why(path: options.RecordingFile, *, as_json: AsJson = False) -> int:
    """Say what limits each method of a recording: where its time goes, its ceiling, and what would help.

    Each factor takes one limit away and leaves all else as it was measured: a ceiling, no forecast.
    """
    out, _ = streams.for_printing()
    for number, run in enumerate(Runs(path), 1):
        race = fold(run)
        streams.show(_json(race) if as_json else "\n".join(_told(race, number)) + "\n", out)
    return 0


def _told(race: Race, number: int) -> Iterator[str]:
    yield shorten(clean_line(f"run {number}: {race.run.prompt if race.run else ''}"), WIDTH, placeholder=" ...")
    for sentences in _verdicts(race):
        yield from wrap(" ".join(sentences), WIDTH, initial_indent="  ", subsequent_indent="    ")


def _verdicts(race: Race) -> Iterator[tuple[str, ...]]:
    for name in race.tallies:
        yield explained(race, name, clean_line(name)) or (_silent(name),)


def _silent(method: str) -> str:
    if method in METHODS and METHODS[method].by_module:
        return f"{method} does not show its draft: only its time is known."
    if method in METHODS and METHODS[method].rules is None:
        return f"{method} guesses nothing: the others are compared with it."
    return f"{clean_line(method)} has drafted nothing, or ran for fewer than {FEWEST_ROUNDS} rounds."


def _json(race: Race) -> str:
    methods: dict[str, Any] = {
        name: asdict(found) | {"speedup": found.speedup, "verdict": explained(race, name, clean_line(name))}
        if found
        else None
        for name in race.tallies
        for found in (of_method(race, name),)
    }
    return msgspec.json.encode({"prompt": race.run.prompt if race.run else "", "methods": methods}).decode() + "\n"
