"""The kernels keep the candidates that the plain function keeps, of equally probable ones the first."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.session.cuda_graph import draft
from decoder.session.cuda_graph.kernels import keep_level
from tests.triton_tools import loads_of

pytestmark = pytest.mark.usefixtures("by_interpreter")
LEAST = torch.tensor(-1.0, dtype=torch.float64)


def kept(paths: Tensor, width: int, *, best: bool, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Rows of the kernel, whose other results are compared with what its choice means; and its bias."""
    random, count, columns = torch.Generator().manual_seed(len(paths)), len(paths), 70
    parents = torch.arange(count) // 3
    lines = torch.stack(
        (torch.randint(0, 50000, (count,), generator=random), paths.view(torch.int64), parents, parents)
    )
    bias = torch.randn((count // 3 + 1, columns), generator=random).to(dtype)
    rows, slots = torch.full((4, width + 2), 9), torch.randperm(columns, generator=random)[:width]
    new_bias = keep_level.keep_level(lines[:3], rows[:, 1:-1], LEAST, bias, slots, best=best)
    assert (rows[:, [0, -1]] == 9).all()
    rows = rows[:, 1:-1]
    assert torch.equal(rows[:3], lines[:3, rows[3]])
    right = bias[rows[2]].scatter(1, slots[:, None], 0.0)
    assert torch.equal(new_bias, right)
    plain = torch.arange(width).repeat(4, 1)
    plain_bias = draft.keep_level(lines[:3], plain, LEAST, bias, slots, best=best)
    if len(paths.unique()) == count or not best:
        assert torch.equal(rows, plain)
        assert torch.equal(new_bias, plain_bias)
    return rows[3], new_bias


@pytest.mark.parametrize("best", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("count", "width"), [(3, 1), (8, 8), (24, 8), (70, 33), (140, 64)])
def test_rows_are_those_of_the_plain_function(count: int, width: int, dtype: torch.dtype, *, best: bool) -> None:
    random = torch.Generator().manual_seed(count)
    paths = -torch.rand(count, dtype=torch.float64, generator=random) * 2
    kept(paths, width, best=best, dtype=dtype)


def test_levels_of_several_blocks_are_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANKED", "COMPARED", "SCANNED", "COLUMNS"):
        monkeypatch.setattr(keep_level, name, 16)
    kept(-torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), 9, best=True)


def test_each_program_reads_all_candidates_in_as_many_blocks_as_is_said() -> None:
    count = 600
    lines, rows = torch.zeros((3, count), dtype=torch.int64), torch.zeros((4, 64), dtype=torch.int64)
    with loads_of(lines[1]) as sizes:
        keep_level.keep_level(lines, rows, LEAST, torch.zeros((1, 70)), torch.arange(64), best=True)
    ranked, written = -(-count // keep_level.RANKED), 64  # one number a row is read to be written
    assert len(sizes) == ranked * (1 + keep_level.iterations(count)[0]) + written


def test_paths_that_differ_in_the_last_bits_of_a_float64_are_ranked() -> None:
    paths = torch.tensor([-1.0, -1.0 + 2**-50, -1.0 - 2**-50, -1.0 + 2**-51], dtype=torch.float64)
    assert kept(paths, 2, best=True)[0].tolist() == [1, 3]


def test_of_equally_probable_candidates_the_first_are_kept() -> None:
    paths = torch.tensor([-2.0, -1.0, -1.0, -3.0, -1.0, -2.0] * 12, dtype=torch.float64)
    expected = paths.sort(stable=True, descending=True).indices[:40].sort().values
    assert torch.equal(kept(paths, 40, best=True)[0], expected)


@pytest.mark.parametrize("best", [True, False])
def test_impossible_candidates_fill_what_is_left_of_a_level(*, best: bool) -> None:
    paths = torch.full((12,), -torch.inf, dtype=torch.float64)
    paths[[7, 9]] = torch.tensor([-0.5, -0.7], dtype=torch.float64)
    assert kept(paths, 4, best=best)[0].tolist() == [0, 1, 7, 9]


def test_undefined_paths_name_no_candidate_that_is_not_there() -> None:
    paths = torch.tensor([-1.0, -1.0, *[torch.nan] * 7], dtype=torch.float64)
    assert kept(paths, 4, best=True)[0].tolist() == [0, 1, 2, 3]
