"""The paper's numbers equal its printed ones, and misleading numbers are marked."""

import csv
from importlib.resources import files
from typing import Any

from dynatui.lab.bench.paper import published
from dynatui.lab.bench.paper.experiments import fixed_grid, sensitivity
from dynatui.lab.bench.paper.report import COUNTS, POOLED, TIMES, paper_row


def test_the_numbers_are_those_of_the_latest_version_that_has_them() -> None:
    found: Any = published.at("DynaTree", "WikiText-2", "tokens_per_second", 1500, 800)
    assert (found.value, found.std, found.again, found.source, found.doubt) == (219.5, 22.2, 220.1, "v4 table 1", None)
    found = published.usual("HF assisted", "WikiText-2", "tokens_per_second")
    assert (found.value, found.again, found.length) == (161.9, 209.8, 500)
    found = published.usual("DynaTree", "PG-19", "speedup")
    assert (found.value, found.again) == (1.70, 1.44)
    assert found.doubt == f"{published.DOUBTS['shared-base']}; {published.DOUBTS['deeper-on-pg19']}"
    assert "others used the GPU" in found.doubt
    assert published.at(None, "WikiText-2", "speedup", 1500, 800) is None
    assert published.at("DynaTree", None, "speedup", 1500, 800) is None
    assert published.at("DynaTree", "WikiText-2", "speedup", 128, 800) is None


def test_settings_of_sweeps_have_numbers_of_their_own() -> None:
    (tree,), varied = fixed_grid([8], [3], [0.1]), sensitivity([(0.9, 0.5)], [(1, 3)], [(8, 12)])
    rows = [paper_row("fixed_trees", tree), *(paper_row("sensitivity", lane) for lane in varied)]
    found = [published.at(row, "WikiText-2", "tokens_per_second", 1500, 800) for row in rows]
    assert [each and each.value for each in found] == [228, 217, 222.5, 256]


def test_every_line_has_a_known_figure_and_doubt_and_a_key_of_its_own() -> None:
    lines = list(csv.DictReader(files(published.__package__).joinpath("published.csv").read_text("utf-8").splitlines()))
    assert len(lines) == len(published.numbers())
    assert {line["figure"] for line in lines} <= {*TIMES, *COUNTS, *POOLED, published.GAIN, published.MEMORY_GAIN}
    assert {name for line in lines for name in line["doubt"].split()} == published.DOUBTS.keys()


def test_on_pg19_dynatree_s_figures_say_that_its_trees_may_be_deeper() -> None:
    deeper = published.DOUBTS["deeper-on-pg19"]
    for figure in ("tokens_per_second", "tpot_ms", "tokens_per_round", "rounds", "peak_mb"):
        found = [published.usual("DynaTree", data_set, figure) for data_set in ("PG-19", "WikiText-2")]
        assert [deeper in (each.doubt or "") for each in found if each] == [True, False]


def test_every_correction_names_its_source_and_ends_as_a_sentence() -> None:
    for correction in published.corrections():
        assert correction.says.endswith(".")
        assert any(name in correction.source for name in ("v1", "v2", "v4", "code", "logs"))
