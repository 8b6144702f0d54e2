"""A report is written as a page and as data, either completely or not at all."""

import csv
import errno
import json
import os
import re
from pathlib import Path

import pytest
from msgspec import structs

from decoder.errors import ConfigError
from dynatui.lab.bench.paper.records import Resumed
from dynatui.lab.bench.paper.setup_table import setup
from dynatui.lab.bench.paper.write import write
from tests.lab.bench.paper.reports import cell_of, left_out, paper_report, request

FEW = request(prompts=2, sets=("wikitext",))


def test_every_table_is_a_file_and_stands_on_the_page(tmp_path: Path) -> None:
    paths = write(paper_report(request(prompts=2)), tmp_path)
    assert all(path.stat().st_size for path in paths)
    assert paths[-1] == tmp_path / "report.md"
    names = {path.stem for path in (tmp_path / "tables").glob("*.csv")}
    assert {"setup", "claims", "main_wikitext", "main_books", "fixed_trees"} <= names
    kept = json.loads((tmp_path / "tables.json").read_text("utf-8"))
    assert {table["name"] for table in kept["tables"]} == names
    text = (tmp_path / "report.md").read_text("utf-8")
    for title in (
        "## Setup",
        "## The paper's claims",
        "## Where the paper's own numbers do not hold",
        "## Main results",
    ):
        assert title in text


def test_rows_on_the_page_have_as_many_cells_as_their_heads(tmp_path: Path) -> None:
    write(paper_report(FEW), tmp_path)
    for block in (tmp_path / "report.md").read_text("utf-8").split("\n\n"):
        if block.startswith("|"):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_a_file_of_values_has_a_column_for_each_part_of_a_cell(tmp_path: Path) -> None:
    report = paper_report(FEW, different={("alg1", 0), ("alg1", 1)})
    write(report, tmp_path)
    with (tmp_path / "tables" / "main_wikitext.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["lane"]: row for row in csv.DictReader(file)}
    found = rows["phase 3"]
    stat = cell_of(report, "phase 3").stats["tokens_per_second"]
    parts = [float(found[f"tokens/s{part}"]) for part in ("", " std", " low", " high")]
    assert parts == [stat.value, stat.std, stat.low, stat.high]
    assert (found["tokens/s paper"], found["tokens/s paper source"]) == ("219.5", "v4 table 1")
    assert rows["alg1"]["tokens/s"] == ""
    assert rows["streaming"]["text"] == "may differ by design"


def test_pictures_are_linked_where_there_are_any(tmp_path: Path) -> None:
    write(paper_report(FEW), tmp_path)
    assert "![" not in (tmp_path / "report.md").read_text("utf-8")
    (tmp_path / "figures").mkdir()
    for name in ("main.png", "main.svg", "length.svg", "notes.txt"):
        (tmp_path / "figures" / name).write_bytes(b"x")
    write(paper_report(FEW), tmp_path)
    linked = re.findall(r"!\[(.*?)\]\((.*?)\)", (tmp_path / "report.md").read_text("utf-8"))
    assert linked == [("length", "figures/length.svg"), ("main", "figures/main.png")]


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    hostile = structs.replace(FEW, target="<script>|*x*", draft="a\nb")
    write(paper_report(hostile), tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    assert re.search(r"(?<!\\)<script", text) is None
    assert "a\nb" not in text


def test_a_lane_that_could_not_decode_is_named() -> None:
    whole = paper_report(FEW)
    rows = {row[0]: row[1] for row in setup(left_out(whole, "alg1", range(2))).rows}
    assert rows["left out"] == "alg1: could not decode here"
    assert "left out" not in {row[0] for row in setup(whole).rows}


def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(paper_report(FEW), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ConfigError, match=r"^cannot write .*: No space left on device; name another place$"):
        write(paper_report(FEW, disturbed=7), tmp_path)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ConfigError, match=r"^cannot write .*; name another folder$"):
        write(paper_report(FEW), tmp_path / "taken")


def test_no_permission_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(ConfigError, match=r"^cannot write .*: Permission denied; name another folder$"):
        write(paper_report(FEW), tmp_path / "new")


def test_the_setup_names_the_commits_that_went_on() -> None:
    resumed = [
        Resumed(at="2026-01-02T00:00:00Z", commit="abc", version="1"),
        Resumed(at="2026-01-03T00:00:00Z", commit=None, version="1"),
    ]
    rows = [row[1] for row in setup(paper_report(FEW, resumed=resumed)).rows if row[0] == "resumed"]
    assert rows == ["2026-01-02T00:00:00Z, dynatui 1, commit abc", "2026-01-03T00:00:00Z, dynatui 1, commit unknown"]


def test_of_sampled_texts_the_page_says_why_there_are_no_claims(tmp_path: Path) -> None:
    write(paper_report(structs.replace(FEW, temperature=0.6)), tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    section = text.partition("## The paper's claims")[2].partition("##")[0]
    assert "are about greedy decoding; here tokens were sampled" in section
    assert "|" not in section
