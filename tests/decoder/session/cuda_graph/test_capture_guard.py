"""What a device can capture, how it is captured, and the stand-ins that notice what a GPU would refuse."""

import ctypes
import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen2Config

from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.forward.static.hf import ModuleStatic
from decoder.forward.static.static_forward import static_forward, visibility
from decoder.methods.dynatree import DynaTree
from decoder.models.pair import Pair
from decoder.session.cuda_graph import verify
from decoder.session.cuda_graph.capture_guard import NotCapturableError, refuse_waits
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.draft import DraftPart, side_of
from decoder.session.cuda_graph.slots import GraphSlots, tried
from decoder.system.device import WARM_UPS, Graphs, Mark
from decoder.tree_rules import Rules
from tests import tiny
from tests.decoder.makers import TinyModels
from tests.decoder.session.cuda_graph.matching import match, recorded, records, with_slots
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.recording import record
from tests.fake_cuda.tensors import CUDA

# Records


def test_a_record_repeats_operations_on_the_tensors_that_were_there() -> None:
    total, step = torch.zeros(3), torch.ones(3)
    repeated = record(lambda: total.add_(step * 2)[1:].mul_(-1).neg_())
    step.fill_(5)
    repeated()
    repeated()
    assert total.tolist() == [20, 20, 20]


def test_what_is_chosen_by_indices_is_chosen_anew() -> None:
    numbers, places, found = torch.arange(4), torch.tensor([0, 2]), torch.zeros(2, dtype=torch.int64)
    repeated = record(lambda: found.copy_(numbers[places]))
    places.add_(1)
    repeated()
    assert found.tolist() == [1, 3]


def test_to_record_changes_nothing() -> None:
    total = torch.arange(4)
    record(lambda: total.view(2, 2)[1].fill_(7))
    assert total.tolist() == [0, 1, 2, 3]


def test_what_was_made_meanwhile_is_garbage_afterwards() -> None:
    kept: list[Tensor] = []
    number = torch.ones(2)
    repeated = record(lambda: kept.append(number + 1))
    repeated()
    assert (kept[0] > 1e30).all()


@pytest.mark.parametrize(
    "work",
    [
        lambda numbers: numbers[0].item(),
        lambda numbers: int(numbers[0]),
        lambda numbers: bool(numbers.any()),
        lambda numbers: 2.0 in numbers,
        lambda numbers: range(3)[numbers[0].long()],
        lambda numbers: numbers.tolist(),
        lambda numbers: numbers.numpy(),
        lambda numbers: numbers.cpu(),
        lambda numbers: torch.equal(numbers, numbers),
        lambda numbers: numbers.nonzero(),
        lambda numbers: torch.where(numbers > 0),
        lambda numbers: numbers[numbers > 0],
        lambda numbers: numbers.masked_select(numbers > 0),
        lambda numbers: numbers.unique(),
        lambda numbers: numbers.repeat_interleave(numbers.long()),
        lambda numbers: numbers.index_put_((numbers > 0,), numbers[:1]),
        lambda numbers: numbers + torch.tensor([1.0, 2.0]),
        lambda numbers: numbers[[0, 1]],
        lambda numbers: numbers + torch.as_tensor(3.0),
        lambda numbers: torch.asarray([1.0]) + numbers,
        lambda numbers: numbers.new_tensor(3.0),
    ],
)
def test_numbers_that_go_to_the_host_or_come_from_it_are_refused(work: Callable[[Tensor], object]) -> None:
    numbers = torch.ones(2)
    for mode in (torch.inference_mode, torch.no_grad):
        with mode(), pytest.raises(NotCapturableError):
            record(lambda: work(numbers))


def test_memory_that_was_freed_is_noticed() -> None:
    held = {"number": torch.ones(2)}
    total = torch.zeros(2)
    repeated = record(lambda: total.add_(held["number"][:1]))
    repeated()
    held["number"] = torch.ones(2)
    gc.collect()
    with pytest.raises(NotCapturableError, match="freed"):
        repeated()


# Mistakes that plain calls do not reveal


def played(tiny_models: TinyModels, place: Callable[[Engine], Engine]) -> None:
    match(place(tiny_models.engine("neox", "float64")), [1, 2, 3, 4], 12, None)


def with_start(patch: pytest.MonkeyPatch, start_of: Callable[[Tensor], float]) -> None:
    """Patches the mask of the verification so that its first visible position comes from `start_of`."""
    right = verify.tree_bias

    def seen(side: DraftPart, columns: Tensor, own: Tensor, above: Tensor) -> Tensor:
        return right(side, columns, torch.full_like(own, start_of(own[0])), above)

    patch.setattr(verify, "tree_bias", seen)


def test_a_number_that_the_host_put_in_is_stale_in_the_next_round(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_start(monkeypatch, lambda start: ctypes.c_int64.from_address(start.data_ptr()).value)
    played(tiny_models, with_slots)
    with pytest.raises(AssertionError):
        played(tiny_models, recorded)


def test_a_number_that_is_read_back_is_noticed(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    with_start(monkeypatch, lambda start: start.item())
    played(tiny_models, with_slots)
    with pytest.raises(NotCapturableError):
        played(tiny_models, recorded)


def test_a_tensor_that_another_takes_the_place_of_is_noticed(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = DeviceState.begin

    def elsewhere(state: DeviceState, *text: Any) -> None:
        state.text = torch.zeros_like(state.text)
        right(state, *text)

    monkeypatch.setattr(DeviceState, "begin", elsewhere)
    for place in (with_slots, recorded):
        pair = place(tiny_models.engine("neox", "float64"))
        match(pair, [1, 2, 3], 12, None)
        if place is with_slots:
            match(pair, [1, 2, 3], 12, None)
            continue
        with pytest.raises(NotCapturableError, match="freed"):
            match(pair, [1, 2, 3], 12, None)


# Rounds


def test_a_text_grows_from_one_range_of_slots_to_the_next_within_its_records(tiny_models: TinyModels) -> None:
    pair = recorded(tiny_models.engine("long", "float64"))
    rounds = [match(pair, [7 * place % 260 for place in range(start)], 60, DynaTree()) for start in (150, 240, 350)]
    assert records(pair) < sum(map(len, rounds)) / 2


@pytest.mark.parametrize("rules", [None, DynaTree(selection="best", n_max=9)], ids=["ar", "best"])
def test_the_module_of_another_family_is_repeated_too(tiny_models: TinyModels, rules: Rules | None) -> None:
    pair = qwen2(tiny_models)
    match(recorded(pair, by_module=True), [1, 2, 3, 4], 30, rules)


def qwen2(tiny_models: TinyModels) -> Engine:
    settings = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2Config(**tiny._common(settings | {"intermediate_size": 64}))
    target = tiny.build(config, seed=1)
    models = [LanguageModel.of_module(module.double(), "qwen2") for module in (tiny.kin(target, seed=2), target)][::-1]
    loaded = tiny_models.engine("llama", "float64")
    return Engine(
        Pair(
            target=models[0],
            draft=models[1],
            tokenizer=loaded.pair.tokenizer,
            eos=frozenset(),
            context=models[0].context,
        )
    )


def side(model: LanguageModel, engine: Engine, *, by_module: bool) -> DraftPart:
    passes = ModuleStatic(model.hf.module) if by_module else static_forward(model)
    return side_of(model, passes, passes.new_store(1500), engine.pair)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["neox", "llama"])
def test_native_layers_are_as_right_in_half_precision_as_the_module_is(
    tiny_models: TinyModels, family: str, dtype: str
) -> None:
    right = logits(tiny_models, family, "float64", by_module=True)
    native, module = (logits(tiny_models, family, dtype, by_module=by_module) for by_module in (False, True))
    assert 0 < float((native - right).abs().max()) < 2 * float((module - right).abs().max())


@torch.inference_mode()
def logits(tiny_models: TinyModels, family: str, dtype: str, *, by_module: bool) -> Tensor:
    engine = tiny_models.engine(family, dtype)
    target, places = side(engine.pair.target, engine, by_module=by_module), torch.arange(12)
    bias = visibility(places[0], torch.ones(12, 12).tril().bool(), 256, target.store.dtype)
    return target.logits(places + 3, places, places, bias).double()


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


class Driver:
    """Records the calls and the stream of each call."""

    def __init__(self, patch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
        self.log: list[str] = []
        self.current = "the thread's stream"
        self.pools: list[object] = []
        self.modes: list[tuple[bool, bool]] = []
        """(inference mode, gradients enabled) at the begin of each capture."""
        self._fails = fails
        signature = inspect.signature(torch.cuda.graph)
        for name, stands_in in {
            "device": lambda _: nullcontext(),
            "stream": self._on,
            "current_stream": lambda *_: self,
            "Stream": lambda: Stream(self),
            "CUDAGraph": lambda: self,
            "graph_pool_handle": lambda: "a pool",
            "graph": lambda *args, **kwargs: self._capturing(**signature.bind(*args, **kwargs).arguments),
        }.items():
            patch.setattr(torch.cuda, name, stands_in)

    def note(self, what: str) -> None:
        self.log.append(f"{what} on {self.current}")

    def wait_stream(self, stream: object) -> None:
        self.note(f"wait for {stream}")

    def replay(self) -> None:
        self.note("replay")

    @contextmanager
    def _on(self, where: object) -> Iterator[None]:
        before = self.current
        if isinstance(where, Stream):
            self.current = str(where)
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def _capturing(self, cuda_graph: object, pool: object, stream: object, capture_error_mode: str) -> Iterator[None]:
        assert (cuda_graph, capture_error_mode) == (self, "thread_local")
        self.modes.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
        self.pools.append(pool)
        self.current = str(stream)
        self.note("begin")
        yield
        self.note("end")
        if self._fails:
            # Like torch's own, it raises before the stream is restored.
            raise RuntimeError("the capture is invalid")
        self.current = "the thread's stream"


class Stream:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def wait_stream(self, _: object) -> None:
        self._driver.note("the side stream waits")

    def __str__(self) -> str:
        return "the side stream"


def captured(driver: Driver) -> tuple[Graphs, Callable[[], None]]:
    graphs = Graphs(torch.device("cuda"))
    return graphs, graphs.capture(lambda: driver.note("work"), lambda: driver.note("undo"))


def test_work_is_tried_on_the_stream_on_which_it_is_captured_and_undone_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(monkeypatch)
    _, repeated = captured(driver)
    assert driver.log == [
        "the side stream waits on the thread's stream",
        *["work on the side stream", "undo on the side stream"] * WARM_UPS,
        "wait for the side stream on the thread's stream",
        "begin on the side stream",
        "work on the side stream",
        "end on the side stream",
    ]
    repeated()
    assert driver.log[-1] == "replay on the thread's stream"


def test_all_captures_share_one_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    graphs, _ = captured(driver)
    graphs.capture(lambda: None, lambda: None)
    assert driver.pools == ["a pool", "a pool"]


def test_a_capture_begins_outside_of_inference_mode_whoever_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch before 2.11 reuses tensors of the first capture, so later captures fail if these are inference tensors."""
    driver = Driver(monkeypatch)
    captured(driver)
    with torch.inference_mode():
        captured(driver)
    assert driver.modes == [(False, False)] * 2


def test_a_capture_that_fails_leaves_the_thread_on_its_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, fails=True)
    with pytest.raises(RuntimeError, match="invalid"):
        captured(driver)
    assert driver.current == "the thread's stream"


def test_a_mark_records_an_event_on_the_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            asked.append(enable_timing)

        def record(self, stream: object) -> None:
            asked.append(stream)

        def synchronize(self) -> None:
            asked.append("waited")

        def elapsed_time(self, later: object) -> float:
            assert later is not self
            return 2000.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    first, second = (Mark(torch.device("cuda:1")) for _ in range(2))
    second.wait()
    assert asked == [True, "stream of cuda:1"] * 2 + ["waited"]
    assert second.seconds_since(first) == 2.0


def test_elsewhere_than_on_cuda_work_is_just_done() -> None:
    done: list[str] = []
    repeated = Graphs(torch.device("cpu")).capture(lambda: done.append("work"), lambda: done.append("undone"))
    assert done == []
    repeated()
    assert done == ["work"]
