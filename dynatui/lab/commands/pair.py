"""Options that all measurements have."""

from pathlib import Path
from typing import Any

from typer.core import TyperOption

from dynatui.cli import options
from dynatui.cli.options import MEASUREMENT
from dynatui.cli.parameters import Group, option
from dynatui.lab.bench.on_pair import OnPair

PAIR = Group("pair", options.PAIR_OPTIONS, OnPair)


def repeats(explained: str, **further: Any) -> TyperOption:
    return option("--repeats R", explained, int, least=1, most=1000, panel=MEASUREMENT, **further)


def json_file(content: str) -> TyperOption:
    return option(
        "--json FILE", f"Append to FILE a line of JSON with {content}.", Path, name="json_file", panel=MEASUREMENT
    )
