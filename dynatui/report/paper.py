"""A report of `dynatui bench paper` as a page: setup, claims with verdicts, tables with the paper's numbers, figures.

Tables and verdicts are computed in `decoder.bench.paper`. Figures are inline pictures. Needs no scripts.
"""

from base64 import b64encode
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from decoder.bench.paper.corrections import CORRECTIONS, Correction
from decoder.bench.paper.request import PaperRequest
from decoder.events import arithmetic
from decoder.tables.data import UNKNOWN, Table
from dynatui.report.figures import Figure
from dynatui.report.markup import Markup, details, element, joined
from dynatui.report.measured import machine_entries, notice
from dynatui.report.page import Page
from dynatui.report.tables import grid

if TYPE_CHECKING:  # these modules import torch
    from decoder.bench.paper.claims import Claim
    from decoder.bench.paper.report import PaperReport

_ABOUT = (
    "The DynaTree paper's experiments, measured here, beside the paper's own results. All methods and "
    "their variants decoded the same prompts in one process, in turns. Numbers are means over prompts ± standard "
    "deviation, with 95 % bootstrap intervals of the mean below them."
)


def paper_page(name: str, report: "PaperReport", figures: Sequence[Figure]) -> Page:
    """The page of a report.

    Args:
        name: Name of the report's folder.
        report: The measured report.
        figures: The figures in the report's folder.
    """
    from decoder.bench.paper.claims import claims, left_out  # noqa: PLC0415 - imports torch
    from decoder.bench.paper.tables import conditions, tables  # noqa: PLC0415

    parts = [
        ("setup", "Setup", element("div", notice(_warnings(report)), details(_setup(report)))),
        ("claims", "Claims of the paper", _claims(claims(report), left_out(report))),
        ("corrections", "Where the paper's own numbers do not hold", joined(map(_correction, CORRECTIONS))),
        ("tables", "Tables", _tables(tables(report), conditions(report))),
        ("figures", "Figures", joined(_figure(*figure) for figure in figures)),
    ]
    filled_parts = [part for part in parts if part[2]]
    links = element("nav", *(element("a", title, href=f"#{key}") for key, title, _ in filled_parts), aria_label="Parts")
    head = element("header", element("h1", f"DynaTree benchmark: {name}"), element("p", _ABOUT), links)
    body = [element("section", element("h2", title), part, class_="part", id=key) for key, title, part in filled_parts]
    return Page(title=f"{name} - dynatui", body=joined((head, element("main", *body))))


def _warnings(report: "PaperReport") -> list[str]:
    """Warnings for the top of the page."""
    turns = sum(len(block.turns) for block in report.blocks)
    missing = [] if report.complete else ["Interrupted: a part of the requested measurement is missing."]
    loud = [f"In {report.disturbed} of {turns} turns, other work disturbed the measurement."] * bool(report.disturbed)
    return missing + loud


def _setup(report: "PaperReport") -> list[tuple[str, str]]:
    header, request = report.header, report.header.request
    return [
        ("Target model", request.target),
        ("Draft model", request.draft),
        ("Computed in", f"{arithmetic(request.dtype, request.draft_dtype)} on {request.device}"),
        ("Tokens are chosen", _sampling_words(request)),
        ("Texts", "; ".join(f"{each.title}, {len(each.prompts)} prompts" for each in request.text_sets)),
        ("Experiments", "; ".join(dict.fromkeys(each.name.replace("_", " ") for each in request.experiments))),
        ("Begun", f"{header.started_at}, source {header.commit or UNKNOWN}"),
        *(
            ("Resumed", f"{each.at}, dynatui {each.version}, source {each.commit or UNKNOWN}")
            for each in report.resumed
        ),
        *machine_entries(header.machine, report.load_after),
    ]


def _sampling_words(request: PaperRequest) -> str:
    how = f"at temperature {request.temperature:g}, top-p {request.top_p:g}" if request.temperature else "greedily"
    return f"{how}, seed {request.seed}, {'to' if request.stops_at_eos else 'beyond'} the end of text"


def _claims(claims: "Sequence[Claim]", left_out: str | None) -> Markup:
    from decoder.bench.paper.claims_table import claims_table  # noqa: PLC0415 - imports torch

    if left_out:
        return element("p", left_out)
    table = claims_table(claims, ())
    return joined((grid(table), _notes(table.notes))) if claims else Markup()


def _correction(correction: Correction) -> Markup:
    return element("p", correction.says, " ", element("small", f"({correction.source})"))


def _tables(tables: Sequence[Table], shared_notes: Collection[str]) -> Markup:
    """A table of contents, then the tables."""
    places = [(f"table-{number}", table) for number, table in enumerate(tables, 1)]
    links = (element("li", element("a", table.title, href=f"#{place}")) for place, table in places)
    contents = element("details", element("summary", f"All {len(places)} tables"), element("ul", *links))
    return joined((contents, *(_table(place, table, shared_notes) for place, table in places))) if places else Markup()


def _table(place: str, table: Table, shared_notes: Collection[str]) -> Markup:
    """A table with its notes, except notes that all tables share."""
    notes = [note for note in table.notes if note not in shared_notes]
    return element("div", element("h3", table.title), grid(table), _notes(notes), id=place)


def _notes(notes: "Sequence[str]") -> Markup:
    return element("ul", *(element("li", note) for note in notes), class_="notes")


def _figure(name: str, media_type: str, picture: bytes) -> Markup:
    title = name.replace("_", " ").capitalize()
    source = f"data:{media_type};base64,{b64encode(picture).decode()}"
    return element("figure", element("img", src=source, alt=title), element("figcaption", title))
