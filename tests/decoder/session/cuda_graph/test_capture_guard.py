"""Work that a graph cannot replay is refused before capture, and no other work is refused."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from decoder.session.cuda_graph.capture_guard import NotCapturableError, refuse_waits
from decoder.session.cuda_graph.slots import GraphSlots, tried
from decoder.system.device import Graphs
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.tensors import CUDA

CPU = torch.device("cpu")


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize(
    "work",
    [
        lambda numbers: numbers[0].item(),
        lambda numbers: bool(numbers.any()),
        lambda numbers: numbers.nonzero(),
        lambda numbers: torch.where(numbers > 0),
        lambda numbers: numbers[numbers > 0],
        lambda numbers: numbers.unique(),
        lambda numbers: numbers + torch.tensor([1.0, 2.0], device=numbers.device),
        lambda numbers: numbers + numbers.new_tensor(3.0),
        lambda numbers: numbers[[0, 1]],
        lambda numbers: numbers.cpu(),
        lambda numbers: numbers + numbers.cpu().shape[0],
        lambda numbers: torch.zeros(2).copy_(numbers),
    ],
)
def test_where_the_host_would_wait_work_is_refused(
    work: Callable[[Tensor], object], mode: Callable[[], object]
) -> None:
    with fake_cuda():
        numbers = torch.ones(2, device=CUDA)
        with mode(), pytest.raises(NotCapturableError):  # type: ignore[attr-defined]
            refuse_waits(lambda: work(numbers), CUDA)


@pytest.mark.parametrize(
    "work",
    [
        lambda numbers: numbers[numbers.long()],
        lambda numbers: numbers.to(torch.float64).copy_(numbers),
        lambda numbers: torch.where(numbers > 0, numbers, 0.0),
        lambda numbers: numbers.masked_fill(numbers > 0, 2.0),
        lambda numbers: torch.nn.functional.scaled_dot_product_attention(*[numbers.view(1, 1, 2, 1)] * 3),
    ],
)
def test_all_else_is_done(work: Callable[[Tensor], Tensor]) -> None:
    with fake_cuda():
        found, numbers = torch.zeros(2, dtype=torch.float64, device=CUDA), torch.ones(2, device=CUDA)
        with torch.inference_mode():
            refuse_waits(lambda: found.copy_(work(numbers).flatten()), CUDA)
        assert bool(found.any())


def test_numbers_of_the_host_s_own_may_be_read_while_work_is_done_elsewhere() -> None:
    with fake_cuda():
        refuse_waits(lambda: torch.ones(2).sum().item(), CUDA)


def test_what_tried_work_has_done_is_undone_whether_it_is_refused_or_not() -> None:
    number = torch.zeros(())
    with pytest.raises(NotCapturableError):
        tried(lambda: [number.add_(1), number.item()], number.zero_, CPU)  # type: ignore[arg-type]
    assert float(number) == 0
    tried(lambda: number.add_(1), number.zero_, CPU)  # type: ignore[arg-type]
    assert float(number) == 0


def test_of_work_that_is_refused_nothing_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    number, found = torch.zeros(()), list[object]()
    slots = GraphSlots()
    monkeypatch.setattr(Graphs, "capture", lambda _, work, undo: found.append((work, undo)) or work)  # type: ignore[func-returns-value]
    with pytest.raises(NotCapturableError):
        slots.repeatable(lambda: number.add_(1).item(), CPU)  # type: ignore[arg-type]
    assert not found
    slots.repeatable(lambda: number.add_(1), CPU)  # type: ignore[arg-type]
    assert len(found) == 1
