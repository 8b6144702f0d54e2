"""`dynatui report`: a recording or a benchmark as one HTML page."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dynatui.terminal import streams

Source = Annotated[
    Path,
    Argument(
        metavar="FILE|DIR",
        help="A recording, a file that bench speed --json has written, or a folder of bench paper --output.",
    ),
]
Output = Annotated[
    Path | None,
    Option(metavar="PAGE.html", help="The page.", show_default="named as what it shows, in this folder"),
]
RunNumber = Annotated[
    int | None, Option("--run", metavar="N", min=1, help="Of a recording only this run, from 1.", show_default="all")
]
Force = Annotated[bool, Option("--force", help="Replace the page where there is one.")]


def report(source: Source, output: Output = None, run: RunNumber = None, *, force: Force = False) -> int:
    """Write a recording or a benchmark as one HTML page, which needs nothing but a browser.

    A recording becomes a replay with text, tree, curves and race, steered by the keyboard. The page holds the prompts
    and texts of the recording.
    """
    from dynatui.report.inputs import page_name, page_of, require_kept  # noqa: PLC0415 - help needs none of it
    from dynatui.report.output import require_free, write  # noqa: PLC0415
    from dynatui.report.page import written  # noqa: PLC0415

    place = output or page_name(source)
    require_kept(source, place)
    require_free(place, force=force)
    text = written(page_of(source, run))
    write(text, place, force=force)
    streams.say(f"wrote {place} ({len(text.encode()) / 1e6:.2f} MB)")
    return 0
