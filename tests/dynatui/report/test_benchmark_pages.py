"""Benchmark pages state measurements, machine and conclusions, and escape all foreign text."""

import re
from html import unescape
from pathlib import Path

import pytest
from msgspec import structs

from decoder.bench.data_sets.text_set import TextSet
from decoder.bench.paper.claims import claims
from decoder.bench.paper.claims_table import claims_table
from decoder.bench.paper.corrections import CORRECTIONS
from decoder.bench.paper.records import Resumed
from decoder.bench.paper.report import PaperReport
from decoder.bench.paper.tables import conditions, tables
from dynatui.report.markup import Markup
from dynatui.report.page import written
from dynatui.report.paper import paper_page
from dynatui.report.speed import speed_page
from tests.decoder.bench.paper.reports import paper_report, request
from tests.dynatui.report.chromium import Browser
from tests.dynatui.report.hostile_markup import HOSTILE
from tests.dynatui.report.measurements import rounds_report, speed_report


def cells(body: Markup, heading: str) -> list[str]:
    """Texts of the cells in the first row with this heading."""
    found = re.search(rf'<th scope="row">{re.escape(heading)}.*?</th>(.*?)</tr>', body)
    assert found, heading
    return [plain(cell) for cell in re.findall(r"<td>(.*?)</td>", found[1])]


def plain(markup: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", markup))


def test_a_contender_has_its_speed_with_the_interval() -> None:
    body = speed_page("speed.jsonl", [speed_report()]).body
    assert cells(body, "tree") == ["150.0 (149.0 to 151.0)", "2.50", "1.50", "-", "2 of 2"]


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        ("tree over ar", ["1.50 (1.40 to 1.60)", "faster"]),
        ("tree over linear (linear, best of 6)", ["0.80 (0.70 to 0.90)", "slower"]),
        ("tree over fixed (fixed, best of 3)", ["1.00 (0.90 to 1.10)", "cannot tell"]),
    ],
)
def test_a_comparison_is_judged_by_its_interval(compared: str, expected: list[str]) -> None:
    assert cells(speed_page("x", [speed_report()]).body, compared) == expected


def test_a_text_that_differs_says_whether_it_may() -> None:
    body = plain(speed_page("x", [speed_report()]).body)
    for expected in ("a near tie, gap 0.001", "NO TIE: a fault, gap 2", "one text is shorter"):
        assert expected in body


def test_a_target_over_several_processes_names_them_their_memory_and_what_nobody_judged() -> None:
    alone = speed_report()
    unjudged = [structs.replace(found, near_tie=None, gap=None, judged=False) for found in alone.differences]
    setup = structs.replace(alone.setup, ranks=["cuda:0", "cuda:1"])
    peaks = [2_500_000_000, 1_250_000_000]
    report = structs.replace(alone, setup=setup, differences=unjudged, peak_bytes_by_rank=peaks)
    body = plain(speed_page("x", [report]).body)
    assert "float32 on 2 processes on cuda:0, cuda:1" in body
    assert "peak memory by process: 2.50, 1.25 GB" in body
    assert "not judged" in body
    assert "by process" not in plain(speed_page("x", [alone]).body)


def test_a_text_that_differs_by_design_is_told_from_one_that_is_not_compared() -> None:
    report = speed_report()
    rows = [structs.replace(row, same=None, by_design=row.name == "tree") for row in report.rows]
    body = speed_page("x", [structs.replace(report, rows=rows)]).body
    assert [cells(body, name)[-1] for name in ("ar", "tree")] == ["-", "differs by design"]


def test_a_measurement_that_was_stopped_or_disturbed_says_so_first() -> None:
    body = plain(speed_page("x", [speed_report(turns=3, waited=0.9)]).body)
    assert "Interrupted: only 3 of 4 turns were measured." in body
    assert "In 3 of 3 turns, other work disturbed the measurement: threads waited long" in body
    assert "Interrupted" not in plain(speed_page("x", [speed_report()]).body)


def test_rounds_have_a_table_for_each_length_and_their_growth() -> None:
    body = speed_page("x", [rounds_report()]).body
    assert cells(body, "2x4")[:2] == ["4.500 (4.250 to 4.750)", "1.000"]
    assert "after 64 random tokens" in body
    assert "Cost of a round divided by its cost after 64 random tokens" in body


def test_every_table_of_the_paper_is_there_with_its_notes() -> None:
    report = paper_report()
    body = plain(paper_page("out", report, []).body)
    for table in tables(report):
        assert table.title in body
        assert all(note in body for note in table.notes if note not in conditions(report))


def test_every_claim_has_its_verdict() -> None:
    report = paper_report()
    body = paper_page("out", report, []).body
    found = re.findall(r'<span class="verdict \w+">([^<]*)</span>', body)
    assert found == [claim.verdict for claim in claims(report)]


def test_claims_read_as_in_the_report_that_is_written() -> None:
    found = claims(paper_report())
    body = plain(paper_page("out", paper_report(), []).body)
    expected = claims_table(found, ())
    assert expected.what in body
    assert all(column.title in body for column in expected.columns)
    first = found[1]
    row = cells(paper_page("out", paper_report(), []).body, first.says)
    assert row[:2] == [first.data_set, first.verdict]
    assert row[4] == f"over {first.limit:g}"


def test_what_is_wrong_with_the_papers_own_numbers_is_told() -> None:
    body = plain(paper_page("out", paper_report(), []).body)
    assert all(each.says in body for each in CORRECTIONS)


def test_an_interrupted_benchmark_says_so_first() -> None:
    body = paper_page("out", structs.replace(paper_report(), complete=False, disturbed=3), []).body
    assert body.index("Interrupted: a part") < body.index("Target model")
    assert "other work disturbed" in body


def test_every_link_within_a_page_leads_to_a_place() -> None:
    body = paper_page("out", paper_report(), [("speed", "image/svg+xml", b"<svg/>")]).body
    places = re.findall(r' id="([^"]*)"', body)
    assert len(places) == len(set(places))
    assert set(re.findall(r'href="#([^"]*)"', body)) <= set(places)


def hostile_paper() -> PaperReport:
    report = paper_report()
    request = report.header.request
    texts = tuple(TextSet(name=each.name, title=HOSTILE, prompts=(HOSTILE,)) for each in request.text_sets)
    header = structs.replace(
        report.header,
        commit=HOSTILE,
        machine=structs.replace(report.header.machine, processor=HOSTILE, versions={HOSTILE: HOSTILE}),
        request=structs.replace(request, target=HOSTILE, draft=HOSTILE, text_sets=texts),
    )
    return structs.replace(report, header=header)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_of_a_hostile_benchmark_runs_and_pages_fit_their_window(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    evil = b'<svg xmlns="http://www.w3.org/2000/svg" onload="parent.pwned=1"><script>window.pwned=1</script></svg>'
    pages = [
        paper_page(HOSTILE, hostile_paper(), [(HOSTILE, "image/svg+xml", evil)]),
        speed_page(HOSTILE, [speed_report(HOSTILE, HOSTILE), rounds_report()]),
    ]
    for page in pages:
        path = tmp_path / "page.html"
        path.write_text(written(page), encoding="utf-8")
        tab = browser.open(path.as_uri(), width=width)
        assert tab.value("window.pwned") is None
        assert tab.value("document.scripts.length + document.querySelectorAll('iframe, base, object').length") == 0
        assert tab.value("document.documentElement.scrollWidth") <= width
        assert tab.faults() == []
        assert tab.requests() == [path.as_uri()]
        tab.close()


def test_what_must_be_known_of_a_claim_s_number_is_told_and_why_there_are_no_claims() -> None:
    body = plain(paper_page("out", paper_report(), []).body)
    assert "relative to an undisturbed AR the quotient is 1.44" in body
    sampled = plain(paper_page("out", paper_report(request(prompts=2, temperature=0.6)), []).body)
    assert "are about greedy decoding; here tokens were sampled" in sampled


def test_commits_that_went_on_are_named() -> None:
    report = paper_report(resumed=[Resumed(at="2026-01-02T00:00:00Z", commit="abc", version="1")])
    assert "2026-01-02T00:00:00Z, dynatui 1, source abc" in plain(paper_page("out", report, []).body)
