"""Writing of a report as files: a page in Markdown, tables as CSV and JSON, and figures. No file is left incomplete.

The first table compares models, machine and measurement protocol with those of the paper's authors.
"""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import msgspec

from decoder.events import arithmetic
from decoder.system.whole_files import made_folder, write_whole
from dynatui.lab.bench.paper import lines_of
from dynatui.lab.bench.paper.claims import claims, claims_table, left_out
from dynatui.lab.bench.paper.records import PaperExperiment, PaperRequest
from dynatui.lab.bench.paper.report import PaperReport, device, noise
from dynatui.lab.bench.paper.tables import conditions, tables
from dynatui.lab.tables import Cell, Column, Table, as_csv, escaped, section
from dynatui.number_format import counted
from dynatui.terminal import streams

SCHEMA = 1
FIGURES, TABLES = "figures", "tables"
"""Names of the folders next to the page."""
WITHOUT_FIGURES = "matplotlib is not installed, so no figures are drawn; for figures, run pip install 'dynatui[bench]'"


def write_all(report: PaperReport, folder: Path) -> None:
    """Writes the report, its tables and, if matplotlib is installed, its figures, and prints the name of the folder."""
    write_whole(folder / "report.json", msgspec.json.encode(report.as_json()))
    # The figures are drawn after all other files are written, so that the other files exist even if drawing fails.
    # Then the tables are written again, since the page links to the figures that exist.
    written = {*write(report, folder)}
    if find_spec("matplotlib") is None:
        streams.say(WITHOUT_FIGURES)
    else:
        written |= {*draw(report, folder / FIGURES), *write(report, folder)}
    streams.say(f"wrote {1 + len(written)} files to {folder}")


def write(report: PaperReport, folder: Path) -> list[Path]:
    """Writes `tables/*.csv`, `tables.json` and finally `report.md`, which links to each picture in `figures/`."""
    judged = claims(report)
    all_tables = [
        setup(report),
        claims_table(judged, conditions(report), left_out(report)),
        *tables(report),
    ]
    whole = {"schema": SCHEMA, "tables": all_tables, "claims": judged, "corrections": lines_of("corrections.csv")}
    contents = {folder / TABLES / f"{table.name}.csv": as_csv(table).encode() for table in all_tables}
    contents[folder / "tables.json"] = msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"
    contents[folder / "report.md"] = _page(report, all_tables, _pictures(folder)).encode()
    made_folder(folder / TABLES)
    for path, content in contents.items():
        write_whole(path, content)
    return list(contents)


def draw(report: PaperReport, folder: Path) -> list[Path]:
    """Draws every figure for which the report has data, as PNG and SVG; returns the paths of the files."""
    from dynatui.lab.bench.paper.figures import pictures  # noqa: PLC0415 - imports matplotlib

    paths = []
    for name, content in pictures(report):
        paths.append(made_folder(folder) / name)
        write_whole(paths[-1], content)
    return paths


def _page(report: PaperReport, all_tables: Sequence[Table], pictures: Sequence[str]) -> str:
    """Page in Markdown. The first two tables are setup and claims; `pictures` are paths relative to the page."""
    about, said, *others = all_tables
    parts = [
        f"# The DynaTree paper's experiments: {escaped(report.request.target)} with {escaped(report.request.draft)}",
        "Means and standard deviations over prompts, and 95 % bootstrap intervals over prompts. Speeds include only "
        "texts that equal the text of plain decoding; a text that differs is reported, but its speed is not counted.",
        *section(about),
        *section(said),
        "## Where the paper's own numbers do not hold",
        "Sources are the paper's text, its authors' code and their logs; nothing in this section was measured here.",
        "\n".join(f"- {escaped(line['says'])} *({escaped(line['source'])})*" for line in lines_of("corrections.csv")),
        *(part for table in others for part in section(table)),
        *["## Figures"] * bool(pictures),
        *(f"![{Path(path).stem}]({quote(path)})" for path in pictures),
    ]
    return "\n\n".join(parts) + "\n"


def _pictures(folder: Path) -> list[str]:
    """Paths of the pictures, one for each figure; PNG is preferred to SVG."""
    by_name = {path.stem: path for suffix in (".svg", ".png") for path in (folder / FIGURES).glob(f"*{suffix}")}
    return [f"{FIGURES}/{path.name}" for _, path in sorted(by_name.items())]


AUTHORS = {
    "target": "Pythia-2.8B",
    "draft": "Pythia-70M",
    "device": "one NVIDIA A100",
    "arithmetic": "float16",
    "decoding": "greedy",
    "end of text": "ignored",
    "main": "WikiText-2: 10 prompts of at most 800 characters, T=1500; PG-19: 10 prompts of at most 1000 characters",
    "warm-up": "2 prompts",
    "order": "one method after the other, each method in its own run",
    "versions": "torch 2.0 or later, transformers 4.38 or later",
}
"""Setup of the paper's authors, by name of the table row."""


def setup(report: PaperReport) -> Table:
    return Table(
        name="setup",
        title="Setup",
        what="Setup of this measurement and of the paper's authors.",
        columns=(Column(""), Column("here"), Column("paper")),
        rows=tuple((name, here, AUTHORS.get(name)) for name, here in _setup_rows(report)),
    )


def _setup_rows(report: PaperReport) -> Iterator[tuple[str, Cell]]:
    header, request = report.header, report.request
    yield "target", request.target
    yield "draft", request.draft
    yield "device", device(report)
    yield "arithmetic", arithmetic(request.dtype, request.draft_dtype)
    yield (
        "decoding",
        "greedy" if request.temperature == 0 else f"temperature {request.temperature:g}, top-p {request.top_p:g}",
    )
    yield "end of text", "ends a text" if request.stops_at_eos else "ignored"
    for name in dict.fromkeys(experiment.name for experiment in request.experiments):
        yield name, "; ".join(_experiment(request, each) for each in request.experiments if each.name == name)
    yield "warm-up", counted(request.warm_up, "prompt")
    yield "order", "all lanes take turns on each prompt, in one process"
    yield "seed", str(request.seed)
    yield "versions", ", ".join(f"{name} {version}" for name, version in header.machine.versions.items())
    yield "commit", header.commit or None
    yield "begun", header.started_at
    yield from (
        ("resumed", f"{each.at}, dynatui {each.version}, commit {each.commit or 'unknown'}") for each in report.resumed
    )
    yield "noise", noise(report)
    measured = {turn.lane for block in report.blocks for turn in block.turns}
    asked = dict.fromkeys(name for experiment in request.experiments for name in experiment.lanes)
    if report.complete and (failed := [name for name in asked if name not in measured]):
        yield "left out", f"{', '.join(failed)}: could not decode here"
    yield "finished", "yes" if report.complete else "NO: a part of the requested measurement is missing"


def _experiment(request: PaperRequest, experiment: PaperExperiment) -> str:
    repeats = f", {experiment.repeats} times" if experiment.repeats > 1 else ""
    return (
        f"{request.text_set(experiment.data_set).title}: {counted(experiment.prompts, 'prompt')} of at most "
        f"{experiment.most} {experiment.unit}, T={experiment.lengths[-1]}, {len(experiment.lanes)} lanes{repeats}"
    )
