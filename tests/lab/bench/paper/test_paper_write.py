"""A report is written as a page, as data and as figures; each file is written completely or not at all."""

import csv
import errno
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import pytest
from msgspec import structs

from decoder.errors import ConfigError
from dynatui.lab.bench.paper.records import Resumed
from dynatui.lab.bench.paper.write import draw, setup, write
from tests.lab.bench.paper.reports import cell_of, left_out, paper_report, request

FEW = request(prompts=2, sets=("wikitext",))
WHOLE = paper_report(request(prompts=2))
SMALL = structs.replace(WHOLE, cells=[cell for cell in WHOLE.cells if cell.experiment == "prompt_length"])


def page(folder: Path) -> str:
    return (folder / "report.md").read_text("utf-8")


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_table_is_a_file_and_stands_on_the_page(tmp_path: Path) -> None:
    paths = write(WHOLE, tmp_path)
    assert all(path.stat().st_size for path in paths)
    assert paths[-1] == tmp_path / "report.md"
    names = {path.stem for path in (tmp_path / "tables").glob("*.csv")}
    assert {"setup", "claims", "main_wikitext", "main_books", "fixed_trees"} <= names
    kept = json.loads((tmp_path / "tables.json").read_text("utf-8"))
    assert {table["name"] for table in kept["tables"]} == names
    for title in ("Setup", "The paper's claims", "Where the paper's own numbers do not hold", "Main results"):
        assert f"## {title}" in page(tmp_path)
    for block in page(tmp_path).split("\n\n"):
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
    assert (rows["alg1"]["tokens/s"], rows["streaming"]["text"]) == ("", "may differ by design")


def test_pictures_are_linked_where_there_are_any(tmp_path: Path) -> None:
    write(paper_report(FEW), tmp_path)
    assert "![" not in page(tmp_path)
    (tmp_path / "figures").mkdir()
    for name in ("main.png", "main.svg", "length.svg", "notes.txt"):
        (tmp_path / "figures" / name).write_bytes(b"x")
    write(paper_report(FEW), tmp_path)
    linked = re.findall(r"!\[(.*?)\]\((.*?)\)", page(tmp_path))
    assert linked == [("length", "figures/length.svg"), ("main", "figures/main.png")]


def test_the_setup_names_the_commits_that_went_on_and_lanes_that_could_not_decode() -> None:
    def found(name: str, report: object) -> list[object]:
        return [row[1] for row in setup(report).rows if row[0] == name]  # type: ignore[arg-type]  # a report

    whole = paper_report(FEW)
    assert found("left out", left_out(whole, "alg1", range(2))) == ["alg1: could not decode here"]
    assert found("left out", whole) == found("resumed", whole) == []
    resumed = [
        Resumed(at=f"2026-01-0{day}T00:00:00Z", commit=commit, version="1") for day, commit in ((2, "abc"), (3, None))
    ]
    assert found("resumed", paper_report(FEW, resumed=resumed)) == [
        "2026-01-02T00:00:00Z, dynatui 1, commit abc",
        "2026-01-03T00:00:00Z, dynatui 1, commit unknown",
    ]


def test_of_sampled_texts_the_page_says_why_there_are_no_claims_and_names_are_no_markup(tmp_path: Path) -> None:
    write(paper_report(structs.replace(FEW, temperature=0.6, target="<script>|*x*", draft="a\nb")), tmp_path)
    assert re.search(r"(?<!\\)<script", page(tmp_path)) is None
    assert "a\nb" not in page(tmp_path)
    section = page(tmp_path).partition("## The paper's claims")[2].partition("##")[0]
    assert "are about greedy decoding; here tokens were sampled" in section
    assert "\n|" not in section


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return draw(SMALL, tmp_path_factory.mktemp("drawn") / "figures")


def test_every_figure_of_which_cells_were_measured_is_a_png_and_an_svg(small: list[Path]) -> None:
    assert [file.name for file in small] == [f"prompt_length_sensitivity.{kind}" for kind in ("png", "svg")]
    for file in small:
        assert file.read_bytes().startswith(b"\x89PNG" if file.suffix == ".png" else b"<?xml")
    assert sorted(small[0].parent.iterdir()) == sorted(small)


def test_the_same_report_gives_the_same_bytes_whatever_a_user_has_set(small: list[Path], tmp_path: Path) -> None:
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}):
        changed = [file.read_bytes() for file in draw(SMALL, tmp_path)]
        assert mpl.rcParams["font.size"] == 30
    assert changed == [file.read_bytes() for file in small]


def test_without_matplotlib_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "dynatui.lab.bench.paper.figures"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = r"^figures cannot be drawn without matplotlib \(.+\); run pip install 'dynatui\[bench\]'$"
    with pytest.raises(ConfigError, match=line):
        draw(SMALL, tmp_path)


@pytest.mark.parametrize("written", [write, draw])
def test_a_folder_that_cannot_be_made_is_one_line(written: Callable[..., object], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ConfigError, match=r"^cannot write .*: Not a directory; name another folder$"):
        written(SMALL, tmp_path / "taken" / "in")


@pytest.mark.parametrize(("written", "at"), [(write, ""), (draw, ".svg")])
def test_on_a_full_disk_files_are_complete_or_as_they_were(
    written: Callable[..., object], at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(SMALL, tmp_path)
    before, honest = files(tmp_path), Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if at not in path.name:
            return honest(path, content)
        honest(path, content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ConfigError, match=r"^cannot write .*: No space left on device; name another place$"):
        written(structs.replace(SMALL, disturbed=7), tmp_path)
    assert files(tmp_path) == before
