"""Writing of a report as files: a page in Markdown, and tables as CSV and JSON. No file is left incomplete."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from decoder.system.whole_files import made_folder, write_whole
from dynatui.lab.bench.paper import claims
from dynatui.lab.bench.paper.published import corrections
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.bench.paper.setup_table import setup
from dynatui.lab.bench.paper.tables import conditions, tables
from dynatui.lab.tables.data import Table, as_csv, escaped, section

SCHEMA = 1
FIGURES, TABLES = "figures", "tables"
"""Names of the folders next to the page."""


def write(report: PaperReport, folder: Path) -> list[Path]:
    """Writes `tables/*.csv`, `tables.json` and finally `report.md`, which links to each picture in `figures/`."""
    judged = claims.claims(report)
    all_tables = [
        setup(report),
        claims.claims_table(judged, conditions(report), claims.left_out(report)),
        *tables(report),
    ]
    contents = {folder / TABLES / f"{table.name}.csv": as_csv(table).encode() for table in all_tables}
    contents[folder / "tables.json"] = _as_json(all_tables, judged)
    contents[folder / "report.md"] = page(report, all_tables, _pictures(folder)).encode()
    made_folder(folder / TABLES)
    for path, content in contents.items():
        write_whole(path, content)
    return list(contents)


def page(report: PaperReport, all_tables: Sequence[Table], pictures: Sequence[str]) -> str:
    """Page in Markdown. The first two tables are setup and claims; `pictures` are paths relative to the page."""
    request = report.header.request
    about, said, *others = all_tables
    parts = [
        f"# The DynaTree paper's experiments: {escaped(request.target)} with {escaped(request.draft)}",
        "Means and standard deviations over prompts, and 95 % bootstrap intervals over prompts. Speeds include only "
        "texts that equal the text of plain decoding; a text that differs is reported, but its speed is not counted.",
        *section(about),
        *section(said),
        "## Where the paper's own numbers do not hold",
        "Sources are the paper's text, its authors' code and their logs; nothing in this section was measured here.",
        "\n".join(f"- {escaped(each.says)} *({escaped(each.source)})*" for each in corrections()),
        *(part for table in others for part in section(table)),
        *["## Figures"] * bool(pictures),
        *(f"![{Path(path).stem}]({quote(path)})" for path in pictures),
    ]
    return "\n\n".join(parts) + "\n"


def _pictures(folder: Path) -> list[str]:
    """Paths of the pictures, one for each figure; PNG is preferred to SVG."""
    by_name = {path.stem: path for suffix in (".svg", ".png") for path in (folder / FIGURES).glob(f"*{suffix}")}
    return [f"{FIGURES}/{path.name}" for _, path in sorted(by_name.items())]


def _as_json(all_tables: Sequence[Table], judged: Sequence[claims.JudgedClaim]) -> bytes:
    errors = [each._asdict() for each in corrections()]
    whole = {"schema": SCHEMA, "tables": all_tables, "claims": judged, "corrections": errors}
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"
