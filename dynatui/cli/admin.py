"""The commands around a run: what is set, and whether everything that a run needs is here.

Both must help where something is broken, so neither lets the user's settings stop it before it has begun.
"""

from contextlib import suppress
from typing import Any, cast

import msgspec
import typer

from decoder.errors import DecoderError, ModelError
from dynatui.cli import options, request, settings, settings_text
from dynatui.cli.method_options import Given
from dynatui.session import Models
from dynatui.terminal import streams


def config(
    context: typer.Context, *, path: options.ShowPath = False, print_default: options.ShowDefault = False
) -> int:
    """Show what is set for good, and where: in a file, or by variables."""
    out, _ = streams.for_printing()
    live = _live(context)
    if path:
        streams.show(f"{settings.file_path()}\n", out)
    elif print_default:
        streams.show(settings_text.beginning(live.command), out)
    else:
        streams.show(_in_force(live), out)
        for name in settings.strange_variables(live.command):
            streams.say(f"{name} sets nothing; dynatui config --print-default lists all settings")
    return 0


def doctor(
    context: typer.Context,
    *,
    models: Given,
    log: options.LogFile = None,
    as_json: options.DoctorJson = False,
) -> int:
    """Examine terminal, packages, devices, models, settings and files; nothing is downloaded."""
    from dynatui.cli.doctor import Case, examine, page  # noqa: PLC0415 - no other command needs these
    from dynatui.cli.probes import PROBES  # noqa: PLC0415

    given: dict[str, Any] = {**models, "log": log}
    with suppress(DecoderError):  # what is wrong with the settings is a finding
        given |= settings.values(context, settings.applied(context))
    live = _live(context)
    strange = settings.strange_variables(live.command)
    log = given.pop("log")
    report = examine(Case(Models(**given), log, lambda: _summary(live), strange), PROBES)
    out, _ = streams.for_printing()
    streams.show(f"{msgspec.json.encode(report).decode()}\n" if as_json else page(report), out)
    return 0 if report.ok else ModelError.exit_code


def _live(context: typer.Context) -> typer.Context:
    return cast("typer.Context", context.find_root())


def _in_force(live: typer.Context) -> str:
    """All settings with their values and where each comes from; raises if one is wrong."""
    found = settings.applied(live)
    given = live.params | settings.values(live, found)
    with settings.named(found):
        named = {name: given[name] for name in ("methods", "max_new_tokens", "seed", "chat")}
        run = request.run_config(**named, rules=given)
    places = {name: setting.place for name, setting in found.items()}
    return settings_text.in_force(live.command, given, run, places, settings.keymap())


def _summary(live: typer.Context) -> str:
    """In a line, how much is set and where; raises if anything is wrong."""
    _in_force(live)
    places = [setting.place for setting in settings.applied(live).values()]
    by_variables = sum(place.startswith(settings.PREFIX) for place in places)
    by_file = len(places) - by_variables
    path = settings.file_path()
    return f"{by_file} set in {path}{'' if path.exists() else ', which does not exist'}, {by_variables} by variables"
