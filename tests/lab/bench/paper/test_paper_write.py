"""A report is written as a page, as data and as figures; each file is written completely or not at all."""

import csv
import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import pytest
from msgspec import structs

from decoder.errors import ConfigError
from dynatui.lab.bench.paper import write as writing
from dynatui.lab.bench.paper.report import PaperReport, report
from dynatui.lab.bench.paper.write import draw, write, write_all
from tests.lab.bench.paper.reports import paper_report, request, row_of

FEW = request(prompts=2, sets=("wikitext",))
WHOLE = paper_report(request(prompts=2))
SMALL = report(WHOLE.header, [each for each in WHOLE.blocks if each.experiment in (2, 3, 4)])
"""A report of the experiment on prompt length alone."""


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
    stat = row_of(report, "phase 3").stats["tokens_per_second"]
    parts = [float(found[f"tokens/s{part}"]) for part in ("", " std", " low", " high")]
    assert parts == [stat.value, stat.std, stat.low, stat.high]
    assert (found["tokens/s paper"], found["tokens/s paper source"]) == ("219.5", "v4 table 1")
    assert (rows["alg1"]["tokens/s"], rows["streaming"]["text"]) == ("", "may differ by design")


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


def test_every_figure_of_which_rows_were_measured_is_a_png_and_an_svg(small: list[Path]) -> None:
    assert [file.name for file in small] == [f"prompt_length_sensitivity.{kind}" for kind in ("png", "svg")]
    for file in small:
        assert file.read_bytes().startswith(b"\x89PNG" if file.suffix == ".png" else b"<?xml")
    assert sorted(small[0].parent.iterdir()) == sorted(small)


def test_the_same_report_gives_the_same_bytes_whatever_a_user_has_set(small: list[Path], tmp_path: Path) -> None:
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}):
        changed = [file.read_bytes() for file in draw(SMALL, tmp_path)]
        assert mpl.rcParams["font.size"] == 30
    assert changed == [file.read_bytes() for file in small]


@pytest.mark.parametrize("written", [write, draw])
def test_a_folder_that_cannot_be_made_is_one_line(written: Callable[..., object], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ConfigError, match=r"^cannot write .*: Not a directory; name another folder$"):
        written(SMALL, tmp_path / "taken" / "in")


@pytest.mark.parametrize(("written", "at"), [(write, ""), (draw, ".png")])
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
        written(report(SMALL.header, SMALL.blocks[:-1]), tmp_path)
    assert files(tmp_path) == before


def test_the_page_links_a_picture_of_each_figure_that_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drawn(_: PaperReport, folder: Path) -> list[Path]:
        folder.mkdir()
        paths = [folder / name for name in ("main.png", "main.svg", "length.svg")]
        for path in (*paths, folder / "notes.txt"):
            path.write_bytes(b"x")
        return paths

    monkeypatch.setattr(writing, "draw", drawn)
    write_all(SMALL, tmp_path)
    linked = re.findall(r"!\[(.*?)\]\((.*?)\)", page(tmp_path))
    assert linked == [("length", "figures/length.svg"), ("main", "figures/main.png")]
    assert f"wrote {len(files(tmp_path)) - 1} files to {tmp_path}" in capsys.readouterr().err
    assert json.loads((tmp_path / "report.json").read_bytes())["complete"] is False


def test_without_matplotlib_all_but_the_figures_is_written_and_a_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(writing, "find_spec", lambda _: None)
    write_all(SMALL, tmp_path)
    assert "for figures, run pip install 'dynatui[bench]'" in capsys.readouterr().err
    assert "![" not in page(tmp_path)


def test_a_figure_that_fails_takes_neither_page_nor_tables_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_report: PaperReport, _folder: Path) -> list[Path]:
        raise ZeroDivisionError

    monkeypatch.setattr(writing, "draw", failing)
    with pytest.raises(ZeroDivisionError):
        write_all(SMALL, tmp_path)
    assert {"report.json", "report.md", "tables", "tables.json"} <= {path.name for path in tmp_path.iterdir()}


def test_a_file_that_cannot_be_written_is_named_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(ConfigError, match=r"cannot write .*/report.json: Is a directory; name another"):
        write_all(SMALL, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json"]
