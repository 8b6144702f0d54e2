"""The tables: our numbers beside the paper's, no speed for a different text, noise and hardware."""

from typing import Any

import pytest
from msgspec import structs

from decoder.analysis.interval import Interval
from dynatui.lab.bench import paper as published
from dynatui.lab.bench.paper.records import Resumed
from dynatui.lab.bench.paper.report import COUNTS, POOLED, TIMES, PaperReport, report
from dynatui.lab.bench.paper.tables import GAIN, MEMORY_GAIN, tables
from dynatui.lab.bench.paper.write import setup
from dynatui.lab.tables import Cell, Printed, Table, lines
from tests.lab.bench.paper.reports import interrupted, left_out, paper_report, request


def by_name(report: PaperReport) -> dict[str, Table]:
    return {table.name: table for table in tables(report)}


@pytest.fixture(scope="module")
def usual() -> dict[str, Table]:
    return by_name(paper_report())


def row(table: Table, first: str) -> dict[str, Any]:
    """Cells by column title; a column of the paper is named after the column to its left."""
    cells = next(cells for cells in table.rows if cells[0] == first)
    titles: list[str] = []
    for column in table.columns:
        titles.append(f"{titles[-1]}, paper" if column.title == "paper" else column.title)
    return dict(zip(titles, cells, strict=True))


def test_there_is_a_table_for_each_of_the_paper_s_that_names_both_machines_and_the_noise(
    usual: dict[str, Table],
) -> None:
    of_sets = ("main", "latency", "verification", "ablation", "length", "memory")
    both = {f"{name}_{data_set}" for name in of_sets for data_set in ("wikitext", "books")}
    assert usual.keys() == both | {"data_sets", "prompt_length", "fixed_trees", "sensitivity"}
    for table in usual.values():
        assert any("a processor" in note and "A100" in note for note in table.notes)
        assert any("turns were disturbed; system load 0.5 before the run, 0.7 after it" in note for note in table.notes)


def test_a_row_has_our_figure_beside_the_paper_s_by_its_own_definition(usual: dict[str, Table]) -> None:
    found, own = row(usual["main_wikitext"], "phase 3"), row(usual["main_wikitext"], "streaming")
    assert isinstance(found["tokens/s"], Interval)
    assert found["tokens/s, paper"] == Printed(value=219.5, std=22.2, again=220.1, source="v4 table 1")
    assert isinstance(own["tokens/s"], Interval)
    assert (found["text"], own["text"]) == ("ar's", "may differ by design")
    printed = row(usual["verification_wikitext"], "phase 3")["paper's acc. %, paper"]
    assert printed.value == pytest.approx(102.2)
    assert printed.mark
    memory = row(usual["memory_wikitext"], "phase 3")
    assert memory["over ar %"] == pytest.approx(100 * (6316 / 6110 - 1))
    assert isinstance(memory["over ar %, paper"], Printed)
    different = {("phase 1", prompt) for prompt in range(5)}
    found = row(by_name(paper_report(different=different))["main_wikitext"], "phase 1")
    assert (found["tokens/s"], found["x ar"], found["text"]) == (None, None, "differs on 5 of 5")


def test_what_is_doubtful_or_defined_otherwise_than_in_the_paper_is_said_below(usual: dict[str, Table]) -> None:
    found = row(usual["main_books"], "phase 3")["x ar, paper"]
    (note,) = [note for note in usual["main_books"].notes if note.startswith(f"[{found.mark}]")]
    assert "others used the GPU" in note
    for names, said in (
        (("main_wikitext", "length_books"), "of the prompt; the paper's tokens/s include it"),
        (("verification_books", "ablation_wikitext"), "Here they have D drafted levels, and a round commits at most D"),
    ):
        assert all(any(said in note for note in usual[name].notes) for name in names)


def test_the_ablation_has_gains_over_the_fixed_tree_and_over_each_step(usual: dict[str, Table]) -> None:
    table = usual["ablation_wikitext"]
    assert [cells[0] for cells in table.rows] == ["fixed D5 B2", "phase 1", "phase 2", "phase 3"]
    over_fixed, over_above = (row(table, "phase 2")[title] for title in ("over fixed %", "over row above %"))
    assert over_fixed.value == pytest.approx(15.1, abs=0.2)
    assert 10 < over_fixed.low < over_fixed.value < over_above.value
    assert row(table, "fixed D5 B2")["over fixed %"] is None
    assert isinstance(row(table, "phase 1")["over fixed %, paper"], Printed)
    without = by_name(paper_report(request(lanes=("ar", "phase 1", "phase 2", "phase 3"))))
    assert "main_wikitext" in without
    assert "ablation_wikitext" not in without


def test_lengths_stand_beside_the_paper_s_at_the_same_length_alone(usual: dict[str, Table]) -> None:
    at_500 = next(cells for cells in usual["length_wikitext"].rows if cells[:2] == (500, "phase 3"))
    assert at_500[3] == Printed(value=185.8, again=190.9, source="v4 figure 5")
    others = by_name(paper_report(request(lengths=(64, 128))))
    assert not any(isinstance(cell, Printed) for cells in others["length_wikitext"].rows for cell in cells)
    for name in ("main_wikitext", "ablation_wikitext", "data_sets"):
        assert "The paper's numbers: WikiText-2, T=1500, prompts of at most 800 characters." in others[name].notes
    for name in ("fixed_trees", "sensitivity"):
        assert others[name].title.endswith(": WikiText-2, T=128")
        assert any("at T=1500" in note for note in others[name].notes)


def test_prompts_that_are_cut_by_tokens_have_no_numbers_of_the_paper_beside_them() -> None:
    those = request()
    by_tokens = tuple(structs.replace(each, unit="tokens") for each in those.experiments)
    table = by_name(paper_report(structs.replace(those, experiments=by_tokens)))["prompt_length"]
    assert not any(column.kind == "paper" for column in table.columns)
    assert "tokens" in table.what


def test_settings_of_sweeps_are_found_by_their_parameters(usual: dict[str, Table]) -> None:
    trees = {cells[:3]: cells[4] for cells in usual["fixed_trees"].rows}
    assert trees[8, 3, 0.1] == Printed(value=228, source="v4 figure 7", mark="a")
    varied: dict[Any, Any] = {cells[:6]: cells[7] for cells in usual["sensitivity"].rows}
    assert (varied[0.8, 0.4, 1, 3, 8, 12].value, varied[0.8, 0.4, 2, 3, 5, 8].value) == (256, 204.7)
    assert varied[0.9, 0.5, 1, 3, 5, 8].value == 217


def test_data_sets_stand_side_by_side_where_there_are_two(usual: dict[str, Table]) -> None:
    titles = [column.title for column in usual["data_sets"].columns]
    assert titles[1] == "WikiText-2: x ar"
    assert "PG-19-style (books_test): x ar" in titles
    assert "data_sets" not in by_name(paper_report(request(sets=("wikitext",))))


def test_an_interrupted_measurement_says_so_and_nothing_measured_is_no_table() -> None:
    part = interrupted(paper_report(request(prompts=2)))
    for table in tables(part):
        assert any(note.startswith("INTERRUPTED") for note in table.notes)
    assert tables(report(part.header, [])) == []


def test_the_setup_names_the_commits_that_went_on_and_lanes_that_could_not_decode() -> None:
    def found(name: str, report: PaperReport) -> list[Cell]:
        return [row[1] for row in setup(report).rows if row[0] == name]

    few = request(prompts=2, sets=("wikitext",))
    whole = paper_report(few)
    assert found("left out", left_out(whole, "alg1", range(2))) == ["alg1: could not decode here"]
    assert found("left out", whole) == found("resumed", whole) == []
    resumed = [
        Resumed(at=f"2026-01-0{day}T00:00:00Z", commit=commit, version="1") for day, commit in ((2, "abc"), (3, None))
    ]
    assert found("resumed", paper_report(few, resumed=resumed)) == [
        "2026-01-02T00:00:00Z, dynatui 1, commit abc",
        "2026-01-03T00:00:00Z, dynatui 1, commit unknown",
    ]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, ("-",)),
        ("words", ("words",)),
        (1.234, ("1.23",)),
        (Interval(value=2.0, std=0.5, low=1.5, high=2.5), ("2.00 ±0.50", "1.50 to 2.50")),
        (Interval(value=2.0, std=0.5, low=None, high=None), ("2.00 ±0.50",)),
        (Interval(value=2.0, std=0.0, low=2.0, high=2.0), ("2.00",)),
        (Printed(value=1.64, source="v4 table 1"), ("1.64",)),
        (Printed(value=1.0, std=0.1, again=2.0, source="logs", mark="b"), ("1.00 ±0.10 [b]", "/ 2.00")),
    ],
)
def test_a_cell_is_written_with_what_is_known_of_it(cell: Cell, text: tuple[str, ...]) -> None:
    assert lines(cell, 2) == text


def test_the_numbers_are_those_of_the_latest_version_that_has_them() -> None:
    found: Any = published.at("DynaTree", "WikiText-2", "tokens_per_second", 1500, 800)
    assert (found.value, found.std, found.again, found.source, found.doubt) == (219.5, 22.2, 220.1, "v4 table 1", "")
    found = published.usual("HF assisted", "WikiText-2", "tokens_per_second")
    assert (found.value, found.again, found.length) == (161.9, 209.8, 500)
    found = published.usual("DynaTree", "PG-19", "speedup")
    assert (found.value, found.again) == (1.70, 1.44)
    assert found.doubt == f"{published.DOUBTS['shared-base']}; {published.DOUBTS['deeper-on-pg19']}"
    for row, data_set, length in ((None, "WikiText-2", 1500), ("DynaTree", None, 1500), ("DynaTree", "WikiText-2", 12)):
        assert published.at(row, data_set, "speedup", length, 800) is None


def test_every_published_line_has_a_known_figure_and_doubt_and_a_key_of_its_own() -> None:
    lines = published.lines_of("published.csv")
    assert len(lines) == len(published.numbers())
    assert {line["figure"] for line in lines} <= {*TIMES, *COUNTS, *POOLED, GAIN, MEMORY_GAIN}
    assert {name for line in lines for name in line["doubt"].split()} == published.DOUBTS.keys()
    for line in published.lines_of("corrections.csv"):
        assert line["says"].endswith(".")
        assert any(name in line["source"] for name in ("v1", "v2", "v4", "code", "logs"))


def test_on_pg19_dynatree_s_figures_say_that_its_trees_may_be_deeper() -> None:
    deeper = published.DOUBTS["deeper-on-pg19"]
    for figure in ("tokens_per_second", "tpot_ms", "tokens_per_round", "rounds", "peak_mb"):
        found = [published.usual("DynaTree", data_set, figure) for data_set in ("PG-19", "WikiText-2")]
        assert [deeper in each.doubt for each in found if each] == [True, False]
