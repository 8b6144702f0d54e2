"""Estimates of a round on a GPU: costs of single operators, and a traced round of small models."""

import math
from collections.abc import Sequence
from importlib.util import find_spec

import pytest
import torch

from benchmarks import estimate
from benchmarks.estimate import PROCESSORS, Costs, Given, microseconds
from tests.fake_cuda.tensors import Launch

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
    from decoder.forward.static.kernels.normed_product import columns_of  # noqa: PLC0415 - Triton may be missing

    weight = (1000, 1000)
    assert took("normed_columns", (4, 1000), weight, weight, (4, 1000)) == 4
    wide = (10000, 1000), (10000, 1000)
    assert took("normed_columns", (10, 1000), *wide, (10, 10000)) == pytest.approx(0.02 + 20 + 0.2)
    deep = (1000, 10000), (1000, 10000)
    programs = math.ceil(1000 / columns_of(64, 1000, PROCESSORS, torch.float16, gated=False))
    assert took("normed_columns", (64, 10000), *deep, (64, 1000)) == pytest.approx((programs * 1.28 + 20) / 2)


@BY_TRITON
def test_a_kernel_takes_the_time_of_the_blocks_that_a_program_reads_in_turn() -> None:
    from decoder.sampling.kernels.searched_truncation import blocks  # noqa: PLC0415 - Triton may be missing

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
