"""Programs in benchmarks/: checkouts are compared, the long run of laws goes on, and rounds on a GPU are estimated."""

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import commits, estimate, laws
from benchmarks.estimate import PROCESSORS, Costs, Given, microseconds
from decoder.errors import ConfigError
from tests.decoder.laws.case import Case, Group, Verdict
from tests.decoder.laws.cases import GROUPS
from tests.fake_cuda.tensors import Launch

TRACE = Path(__file__).parents[1] / "traces" / "demo.jsonl"
Change = Callable[[dict[str, Any]], None]


def later(event: dict[str, Any]) -> None:
    event["t"] += 1
    event["verify_s"] *= 2


def other_token(event: dict[str, Any]) -> None:
    event["committed"][0] += 1


def other_tree(event: dict[str, Any]) -> None:
    event["limited_by"] = "cost"
    event["logprobs"] = []


def moved(by: float) -> Change:
    def move(event: dict[str, Any]) -> None:
        event["logprobs"][-1] += by

    return move


def longer(event: dict[str, Any]) -> None:
    event["methods"]["fixed"]["path_length"] += 0.001
    event["methods"]["fixed"]["decode_s"] += 1


@pytest.mark.parametrize(
    ("kind", "method", "change", "found"),
    [
        ("round", "ar", lambda _: None, []),
        ("round", "dynatree", later, []),
        ("round", "auto", other_token, ["run 0, auto text"]),
        ("round", "auto", other_tree, []),  # auto follows measured times
        ("round", "dynatree", other_tree, ["run 0, dynatree round 0"]),
        ("round", "dynatree", moved(1e-5), []),
        ("round", "dynatree", moved(0.5), ["run 0, dynatree round 0"]),
        ("summary", "", longer, ["run 0, summary"]),
    ],
)
def test_texts_trees_and_figures_are_compared_and_times_are_not(
    tmp_path: Path, kind: str, method: str, change: Change, found: list[str]
) -> None:
    events = [json.loads(line) for line in TRACE.read_text(encoding="utf-8").splitlines()]
    change(next(event for event in events if (event["type"], event.get("method", method)) == (kind, method)))
    file = tmp_path / "changed.jsonl"
    file.write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
    assert commits.differences(commits.figures(file), commits.figures(TRACE)) == found


def test_what_is_missing_on_one_side_is_a_difference() -> None:
    both: tuple[dict[str, Any], dict[str, Any]] = ({"a": 1}, {"a": 1, "b": 2})
    assert commits.differences(*both) == commits.differences(*reversed(both)) == ["b"]


class Fake:
    """A fake checkout whose speed rises with every run, as on a machine that becomes faster."""

    prompts = 2

    def __init__(self, log: list[str], name: str, share: float) -> None:
        self._log, self._name, self._share = log, name, share

    def tokens_per_second(self, _method: str, _prompt: int) -> float:
        self._log.append(self._name)
        return self._share * (1000 + len(self._log))

    def close(self) -> None:
        self._log.append("closed")


def test_speeds_are_compared_in_turn_and_told_with_an_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    monkeypatch.setattr(
        commits,
        "Worker",
        lambda checkout, *_: Fake(log, "mine", 0.9) if checkout == commits.HERE else Fake(log, "other", 1.0),
    )
    assert commits.show_speed(tmp_path, "bfloat16", 8, 0, repeats=2, starts=1) == 1
    a_lap = len(commits.MEASURED) * Fake.prompts
    assert log == ["other", "mine"] * a_lap + ["mine", "other"] * a_lap + ["other", "mine"] * a_lap + ["closed"] * 2
    assert "ar         0.900" in capsys.readouterr().out


def test_equal_processes_that_differ_from_start_to_start_are_not_taken_for_a_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares, started = iter((0.9, 1.1, 0.95, 1.05, 0.9, 1.1)), list[Path]()

    def start(checkout: Path, *_: object) -> Fake:
        started.append(checkout)
        return Fake([], "", next(shares) if checkout == commits.HERE else 1.0)

    monkeypatch.setattr(commits, "Worker", start)
    assert commits.show_speed(tmp_path, "bfloat16", 8, 0, repeats=2, starts=6) == 0
    assert started == [commits.HERE, tmp_path, tmp_path, commits.HERE] * 3
    assert "0.9" in capsys.readouterr().out


def test_no_checkout_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["commits.py", "same", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        commits.main()
    assert ended.value.code == 2
    assert "is not a checkout of dynatui" in capsys.readouterr().err


class Counting:
    def __init__(self, *, right: bool = True, setting: str = "usual") -> None:
        self.asked: list[int] = []
        self.stop_at: int | None = None
        self.error: BaseException = KeyboardInterrupt()
        self._right, self._setting = right, setting

    def count(self, units: range) -> Counter[str]:
        if self.stop_at in units:
            raise self.error
        self.asked += units
        return Counter({"seen": len(units)})

    def judge(self, counts: Mapping[str, float]) -> Verdict:
        return Verdict(self._right, (f"{counts['seen']:.0f}", "as it should be" if self._right else "otherwise"))

    def group(self, title: str = "Kind") -> Group:
        case = Case("a case", self._setting, 10, 3, self.count, self.judge)
        return Group(title, "What it is.", ("case", "seen", "verdict"), (case,))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(laws, "say", lines.append)
    return lines


def run(output: Path, *groups: Group, only: str = "") -> int:
    return laws.main(["run", "--output", str(output), "--only", only], groups)


def report(output: Path, *groups: Group) -> int:
    return laws.main(["report", "--output", str(output)], groups)


def stopped(output: Path, at: int) -> Counting:
    """A case whose run was stopped at a unit, and which can go on now."""
    own = Counting()
    own.stop_at = at
    with pytest.raises(KeyboardInterrupt):
        run(output, own.group())
    own.stop_at = None
    return own


@pytest.mark.parametrize("half_written", [False, True])
def test_a_run_that_was_stopped_goes_on_within_the_case_and_does_nothing_twice(
    tmp_path: Path, said: list[str], *, half_written: bool
) -> None:
    own = stopped(tmp_path, 7)
    if half_written:
        (kept,) = tmp_path.iterdir()
        kept.with_suffix(".new").write_text("{", encoding="utf-8")
    assert report(tmp_path, own.group()) == 1
    assert "| a case | 6 of 10 done |  |" in said[-1]
    assert "0 of 1 cases are done" in said[-1]
    assert [run(tmp_path, own.group()) for _ in range(2)] == [0, 0]
    assert own.asked == list(range(10))
    assert said[-2:] == ["Kind: a case: 10, as it should be"] * 2
    assert report(tmp_path, own.group()) == 0


def test_counts_of_another_setting_are_not_gone_on_with(tmp_path: Path, said: list[str]) -> None:
    run(tmp_path, Counting(setting="before").group())
    own = Counting(setting="now")
    assert report(tmp_path, own.group()) == 1
    assert "| a case | 0 of 10 done |  |" in said[-1]
    run(tmp_path, own.group())
    assert own.asked == list(range(10))


def test_the_report_names_what_is_not_as_it_should_be(tmp_path: Path, said: list[str]) -> None:
    right, wrong = Counting().group(), Counting(right=False).group("Other")
    assert run(tmp_path, right, wrong) == 1
    assert said[-1].endswith("WRONG")
    assert report(tmp_path, right, wrong) == 1
    rows = ("| a case | 10 | as it should be |", "| a case | 10 | **otherwise** |")
    assert all(row in said[-1] for row in (*rows, "2 of 2 cases are done; 1 of these pass."))


def test_cases_are_chosen_by_a_part_of_their_names(tmp_path: Path, said: list[str]) -> None:
    one, other = Counting(), Counting()
    assert run(tmp_path, one.group(), other.group("Other"), only="Other:") == 0
    assert (len(one.asked), len(other.asked)) == (0, 10)
    assert said == ["Other: a case: 10, as it should be"]


def test_what_lacks_its_data_ends_in_one_line(tmp_path: Path, said: list[str]) -> None:
    own = Counting()
    own.stop_at, own.error = 0, ConfigError("no books; give some")
    assert run(tmp_path, own.group()) == 2
    assert said == ["laws.py: no books; give some"]


def test_files_of_all_cases_differ(tmp_path: Path) -> None:
    cases = [(group, case) for group in GROUPS for case in group.cases]
    assert len({laws.file_of(group, case, tmp_path) for group, case in cases}) == len(cases)


COSTS = Costs(kernel=2.0, product=4.0, bandwidth=0.5, l2=2e6, keys=1.0, key=0.1, block=0.5, selection=0.25)
BY_TRITON = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
BYTES_PER_S = 2e12
"""Beside a share of 0.5, a million bytes a microsecond."""


def took(
    name: str,
    *shapes: Sequence[int],
    result: int = 0,
    dtype: torch.dtype = torch.float16,
    given: Given = Given(text=2048),  # noqa: B008 - frozen
) -> float:
    launch = Launch(name, [tuple(shape) for shape in shapes], [dtype] * len(shapes), [], result)
    return microseconds(launch, COSTS, BYTES_PER_S, given)


@pytest.mark.parametrize(
    ("name", "shapes", "result", "expected"),
    [
        # a product takes the time of its bytes, but never less than the shortest product
        ("mm", [(50, 1000), (1000, 10000)], 10**6, 0.1 + 20 + 1),
        ("mm", [(1, 10), (10, 10)], 20, 4),
        # a small operator takes its kernels, and a large one its bytes
        ("add", [(64, 64), (64, 64)], 8192, 2),
        ("sort", [(64,)], 640, 8),
        ("add", [(1000, 1000), (1000, 1000)], 2 * 10**6, 6),
        # writing a few rows of a large store does not take the time of the store
        ("index_copy_", [(10**4, 10**4), (1, 10**4)], 2 * 10**8, 2),
        # a selection takes more waves for more rows
        ("topk", [(1, 1024)], 0, 4 + 8 * 0.25),
        ("topk", [(265, 1024)], 0, 4 + 2 * 8 * 0.25),
    ],
)
def test_operators_take_kernels_or_bytes(
    name: str, shapes: list[tuple[int, ...]], result: int, expected: float
) -> None:
    assert took(name, *shapes, result=result) == pytest.approx(expected)


def test_a_selection_takes_more_passes_for_wider_numbers() -> None:
    assert took("topk", (1, 4096), dtype=torch.float64) == 4 + 32 * 0.25 * 4


def test_attention_takes_the_time_of_its_keys_once_for_each_wave_of_heads() -> None:
    assert took("_scaled_dot_product_efficient_attention", (1, 32, 64, 80), (1, 32, 384, 80)) == 2 + 6
    assert took("_scaled_dot_product_efficient_attention", (1, 133, 64, 80), (1, 133, 65, 80)) == 2 * (2 + 2)


@BY_TRITON
def test_attention_by_parts_takes_the_time_of_the_keys_of_one_part_of_the_text() -> None:
    # 4 parts of the text and one for the pass's own rows, for each of 64 heads: two waves of 2 programs a processor.
    operands = (64, 18000), (2, 64, 4096, 80), (64, 1, 10, 2), (64,), (64, 4096), (64, 5, 64, 80)
    maxima, totals = (64, 5, 64), (64, 5, 64)
    assert took("attend_by_parts", *operands, maxima, totals) == pytest.approx(2 + 2 * 512 * 0.1)
    assert took("attend_by_parts", *operands, maxima, totals, given=Given(text=3)) == pytest.approx(2 + 2 * 64 * 0.1)


@BY_TRITON
def test_a_product_with_its_norm_takes_the_time_of_its_weights_or_of_the_rows_that_all_programs_read() -> None:
    from decoder.session.cuda_graph.kernels.normed_product import columns_of  # noqa: PLC0415 - Triton may be missing

    weight = (1000, 1000)
    assert took("normed_columns", (4, 1000), weight, weight, (4, 1000)) == 4
    wide = (10000, 1000), (10000, 1000)
    assert took("normed_columns", (10, 1000), *wide, (10, 10000)) == pytest.approx(0.02 + 20 + 0.2)
    deep = (1000, 10000), (1000, 10000)
    programs = math.ceil(1000 / columns_of(64, 1000, PROCESSORS, torch.float16, gated=False))
    assert took("normed_columns", (64, 10000), *deep, (64, 1000)) == pytest.approx((programs * 1.28 + 20) / 2)


@BY_TRITON
def test_a_kernel_takes_the_time_of_the_blocks_that_a_program_reads_in_turn() -> None:
    from decoder.session.cuda_graph.kernels.searched_truncation import blocks  # noqa: PLC0415 - Triton may be missing

    given = Given(top_k=True, top_p=True)
    one_row = took("exclude", (1, 50304), (1, 3), given=given)
    assert one_row == pytest.approx(2 + 0.5 * blocks(50304, 16, top_k=True, top_p=True))
    assert took("exclude", (132, 50304), (1, 3), given=given) == one_row
    assert took("exclude", (133, 50304), (1, 3), given=given) == pytest.approx(2 * one_row - 2)
    assert took("part_best", (32, 50304), (32, 25), (32, 25), (32, 25, 8)) == pytest.approx(2 + 8 * 0.5)
    assert took("best_of_parts", (64, 25), (64, 25), (64, 25, 8)) == pytest.approx(2 + 8 * 0.5)


@BY_TRITON
def test_a_tree_of_more_candidates_takes_longer_to_be_chosen_and_packed() -> None:
    def of(candidates: int, rows: int) -> list[float]:
        many = (candidates,)
        return [
            took("choose_rows", many, (), many),
            took("write_rows", many),
            took("choose_nodes", many, (rows,), (rows,), (8,), (), many),
            took("write_nodes", *[many] * 6, (rows,)),
        ]

    assert of(256, 33) == pytest.approx([2.5, 2.5, 2.5, 2 + 3 * 0.5])
    assert of(3144, 393) == pytest.approx([2 + 13 * 0.5, 2 + 7 * 0.5, 2 + 13 * 0.5, 2 + 28 * 0.5])


def test_the_parts_of_a_traced_round_add_up_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    shape = "tests/fake_cuda/small-neox.json"
    estimate.main(["--shapes", f"{shape}:{shape}", "--tree", "2x4", "--context", "8"])
    *rows, total, last = capsys.readouterr().out.splitlines()[1:]
    counts = [[int(word) for word in row.partition(": ")[2].split()[1:3]] for row in rows]
    assert [sum(column) for column in zip(*counts, strict=True)] == [int(word) for word in total.split()[1:3]]
    by_part = {row.partition("  ")[0]: each[0] for row, each in zip(rows, counts, strict=True)}
    assert by_part["verify: attention"] == 1
    assert by_part["draft: attention"] == 2
    assert last == "estimates; nothing was measured"
