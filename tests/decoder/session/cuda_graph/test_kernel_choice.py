"""A kernel is used only where its results equal the plain function's and it is faster; the verdicts are told."""

import sys
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder.engine import Engine
from decoder.forward.families.native import NativeModel
from decoder.forward.static.static_forward import static_forward
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.sampling.truncation import DeviceTruncation
from decoder.session.cuda_graph import draft, kernel_trial, pass_comparison, self_test, verify
from decoder.session.cuda_graph import pass_comparison as timing
from decoder.session.cuda_graph.device_state import PARENT
from decoder.session.cuda_graph.kernel_trial import chosen_operators, with_layer_kernels
from decoder.session.cuda_graph.operators import PLAIN, Operators
from decoder.session.cuda_graph.pass_comparison import LEAST, LONG_TEXT, MOST, Share, relative_time
from tests.decoder.makers import graph_slots
from tests.decoder.session.cuda_graph.matching import Devices, last, prepared
from tests.decoder.session.cuda_graph.stub_kernels import by_rows, exactly, times

TRIED = None, Linear(2), DynaTree(selection="best", n_max=9, d_max=3, d0=2)
PARTS = ("add_children", "keep_level", "pack_tree", "tree_rows", "accept_path", "truncating")


@pytest.fixture
def tried(devices: Devices) -> Engine:
    return devices.plain(dtype="float32")


def chosen(tried: Engine, patch: pytest.MonkeyPatch, share: Any = 0.5, **changed: Any) -> Operators:
    """The choice among kernels with the plain functions' results, but for those that are changed; they take this share
    of the plain functions' time.
    """
    copied = {name: lambda *given, _name=name, **named: getattr(PLAIN, _name)(*given, **named) for name in PARTS}
    patch.setattr(kernel_trial, "kernels", lambda: copied | changed)
    patch.setattr(kernel_trial, "relative_time", lambda *_: exactly(share))
    return last(chosen_operators(tried.pair, graph_slots(tried), TRIED))


def test_kernels_with_equal_results_are_used_if_they_are_faster(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen(tried, monkeypatch)
    assert found.kernels == PARTS
    assert str(found) == "kernels: add_children, keep_level, pack_tree, tree_rows, accept_path, truncating"


def test_kernels_that_are_not_faster_are_not_used_and_their_times_are_told(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(tried, monkeypatch, share=1.204)
    assert found.kernels == ()
    assert str(found).startswith("kernels: none; add_children takes 1.20 x the time; keep_level takes")


def _first_tokens(logits: Tensor, *given: Any) -> None:
    draft.add_children(logits.flip(1), *given)


def _first_rows(lines: Tensor, rows: Tensor, *given: Any, best: bool) -> Tensor:
    return draft.keep_level(-lines, rows, *given, best=best)


def _other_bias(lines: Tensor, rows: Tensor, *given: Any, best: bool) -> Tensor:
    return draft.keep_level(lines, rows, *given, best=best) + 1


def _without_a_node(state: Any, *given: Any) -> None:
    draft.pack_tree(state, *given)
    state.nodes[PARENT, 2] += 1


def _places_of_the_root(*given: Any) -> verify.TreeRows:
    rows = verify.tree_rows(*given)
    return replace(rows, positions=rows.positions * 0 + rows.positions[0], bias=rows.bias * 0)


class _WithoutTopP(DeviceTruncation):
    @classmethod
    def of(cls, settings: Tensor, vocabulary: int) -> DeviceTruncation:
        whole = torch.tensor([1.0, 1.0, torch.inf], dtype=settings.dtype)
        return super().of(torch.where(whole.isinf(), whole, settings), vocabulary)


def _nothing_moved(*given: Any) -> None:
    verify.accept_path(*given)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("add_children", _first_tokens),
        ("keep_level", _first_rows),
        ("keep_level", _other_bias),
        ("pack_tree", _without_a_node),
        ("tree_rows", _places_of_the_root),
        ("accept_path", _nothing_moved),
        ("truncating", _WithoutTopP.of),
    ],
)
def test_kernels_with_other_results_are_not_used(
    tried: Engine, monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any]
) -> None:
    found = chosen(tried, monkeypatch, **{name: wrong})
    assert found.kernels == tuple(part for part in PARTS if part != name)
    assert str(found).endswith(f"; {name} gives other results")


def test_log_probabilities_that_are_rounded_otherwise_are_equal(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(logits: Tensor, layout: Any, breadths: Any, paths: Tensor, lines: Tensor, logprobs: Tensor) -> None:
        draft.add_children(logits, layout, breadths, paths, lines, logprobs)
        logprobs.mul_(1 + 1e-6)

    assert "add_children" in chosen(tried, monkeypatch, add_children=rounded).kernels


def test_a_kernel_that_fails_is_not_used_and_the_reason_is_told(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("out of resources\nmore")

    found = chosen(tried, monkeypatch, pack_tree=fails)
    assert str(found).endswith("; pack_tree failed: out of resources")


def test_without_triton_all_parts_are_plain_functions(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("decoder.session.cuda_graph.kernels")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    found = last(chosen_operators(tried.pair, graph_slots(tried), TRIED))
    assert found.kernels == ()
    assert str(found).startswith("kernels: none; all parts are plain functions: ")
    assert "triton" in str(found)


def test_kernels_with_which_rounds_write_other_texts_are_dropped(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(PLAIN, accept_path=_nothing_moved, verdicts={"accept_path": "takes 0.50 x the time"})
    monkeypatch.setattr(self_test, "chosen_operators", lambda *_: [wrong])
    graph_slots(tried).kernels = True
    assert prepared(tried) is None
    assert graph_slots(tried).operators.kernels == ()
    assert "accept_path not kept, since rounds on the device wrote" in str(graph_slots(tried).operators)


def test_no_trial_takes_place_if_kernels_are_off(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "chosen_operators", lambda *_: pytest.fail("kernels were tried"))
    assert prepared(tried) is None
    assert graph_slots(tried).operators is PLAIN


def in_layers(
    tried: Engine, patch: pytest.MonkeyPatch, share: float = 0.5, **kernels: Callable[[NativeModel], NativeModel]
) -> Operators:
    """The choice among these kernels of layers, which take this share of the plain operators' time."""
    patch.setattr(kernel_trial, "layer_kernels", lambda: kernels)
    patch.setattr(pass_comparison, "relative_time", lambda *_: exactly(share))
    return last(with_layer_kernels(tried.pair, graph_slots(tried)))


def test_kernels_of_layers_are_used_in_each_model_that_they_make_faster(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = in_layers(tried, monkeypatch, attention=times(1), products=times(1))
    assert found.kernels == tuple(
        f"{part} of the {role}" for role in tried.pair.models for part in ("attention", "products")
    )
    for model in tried.pair.models.values():
        assert graph_slots(tried).forward(model) is not static_forward(model)


@pytest.mark.parametrize("every", [True, False])
def test_for_another_pair_with_the_same_target_kernels_are_tried_beside_its_own_layers(
    tried: Engine, monkeypatch: pytest.MonkeyPatch, *, every: bool
) -> None:
    by_rows(monkeypatch, lambda rows, _: 0.5 if every or rows == 8 else 1.2)
    found = in_layers(tried, monkeypatch, attention=times(1), products=times(1))
    assert found.in_layers
    target, slots = tried.pair.target, graph_slots(tried)
    form = slots.forward(target)
    assert isinstance(form, NativeModel)
    plain = slots.anew(target).forward(target)
    assert plain is form.plain is not form
    assert last(with_layer_kernels(tried.pair, slots.anew(target))).in_layers == found.in_layers


def test_kernels_of_layers_that_are_not_faster_are_not_used(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_layers(tried, monkeypatch, share=1.5, attention=times(1))
    assert found.kernels == ()
    assert str(found) == (
        "kernels: none; "
        "attention of the target takes 1.50, 1.50, 1.50, 1.50 x the time in passes of 1, 8, 32, 64 rows; "
        "attention of the draft takes 1.50, 1.50, 1.50, 1.50 x the time in passes of 1, 8, 32, 64 rows"
    )


def with_marked_layers(form: NativeModel) -> NativeModel:
    """Kernels of layers whose passes end with the same large number in all rows."""
    return form.with_layers(lambda layer: lambda *given: layer(*given) * 0 + 7)


def test_kernels_of_layers_are_used_in_passes_of_those_sizes_alone_that_they_make_faster(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_rows(monkeypatch, lambda rows, _: 0.5 if rows in (8, 32) else 1.2)
    found = in_layers(tried, monkeypatch, attention=with_marked_layers)
    assert found.in_layers == {f"attention of the {role}": (8, 32) for role in ("target", "draft")}
    assert str(found).startswith(
        "kernels: attention of the target (8, 32 rows), attention of the draft (8, 32 rows); attention of the target "
        "takes 1.20, 0.50, 0.50, 1.20 x the time in passes of 1, 8, 32, 64 rows; "
    )
    form = graph_slots(tried).forward(tried.pair.target)
    plain = static_forward(tried.pair.target)
    assert isinstance(plain, NativeModel)
    marked = with_marked_layers(plain).computed
    for rows in (1, 2, 8, 20, 64, 100):
        given = pass_comparison.example(form, rows, 3)
        with torch.no_grad():
            assert torch.equal(form.computed(*given), marked(*given)) == (rows in (2, 8, 20))


def test_kernels_of_layers_that_slow_down_long_texts_are_not_used(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_rows(monkeypatch, lambda rows, text: 1.1 if text == LONG_TEXT and rows == 64 else 0.9)
    monkeypatch.setattr(kernel_trial, "layer_kernels", lambda: {"attention": times(1)})
    long = replace(tried.pair, context=LONG_TEXT + 1)
    assert last(with_layer_kernels(long, graph_slots(tried))).in_layers["attention of the target"] == (1, 8, 32)


def test_a_short_context_has_no_long_texts(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows(monkeypatch, lambda _, text: 1.1 if text == LONG_TEXT else 0.9)
    found = in_layers(tried, monkeypatch, attention=times(1))
    assert found.in_layers == {f"attention of the {role}": () for role in ("target", "draft")}


def test_a_compiler_sees_the_layers_behind_those_of_each_size(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows(monkeypatch, lambda rows, _: 0.5 if rows == 1 else 1.2)
    in_layers(tried, monkeypatch, attention=with_marked_layers)
    form, plain = graph_slots(tried).forward(tried.pair.target), static_forward(tried.pair.target)
    assert isinstance(form, NativeModel)
    given = pass_comparison.example(form, 8, 3)
    with torch.no_grad():
        assert torch.allclose(form.for_a_compiler().computed(*given), plain.computed(*given), atol=1e-4)


def test_kernels_of_layers_with_other_logits_are_not_used(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_layers(tried, monkeypatch, attention=times(1), products=times(3))
    assert found.kernels == ("attention of the target", "attention of the draft")
    assert "products of the draft gives other results" in str(found)


def test_a_part_that_no_layer_has_is_not_tried(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_layers(tried, monkeypatch, products=lambda form: form)
    assert str(found) == ""


def test_kernels_of_layers_that_fail_are_not_used_and_the_reason_is_told(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: NativeModel) -> NativeModel:
        raise RuntimeError("out of resources\nmore")

    found = in_layers(tried, monkeypatch, attention=fails)
    assert "attention of the target failed: out of resources;" in str(found)


def test_slots_with_other_operators_are_not_taken_again(tried: Engine) -> None:
    slots = graph_slots(tried)
    first = slots.take(tried.pair, 20)
    slots.give_back(first)
    assert slots.take(tried.pair, 20) is first
    slots.give_back(first)
    slots.operators = replace(PLAIN, verdicts={"pack_tree": "takes 0.50 x the time"})
    assert slots.take(tried.pair, 20) is not first


def test_two_graphs_of_one_kind_are_measured_in_turn() -> None:
    done: list[str] = []
    share = relative_time(lambda: done.append("kernel"), lambda: done.append("plain"), torch.device("cpu"))
    assert done[:4] == ["plain", "kernel", "plain", "kernel"]
    assert share.low <= share.median <= share.high


def trials(patch: pytest.MonkeyPatch, share: float) -> list[Share]:
    """Results of 200 trials of work that takes this share of the time, where each time varies by 2 %."""
    random, repeats = Random(0), {"kernel": share, "plain": 1.0}
    patch.setattr(timing, "_seconds", lambda work, _: repeats[work] * random.gauss(1, 0.02))
    works: tuple[Any, Any] = ("kernel", "plain")
    return [relative_time(*works, torch.device("cpu")) for _ in range(200)]


@pytest.mark.parametrize(("share", "pays"), [(0.9, True), (0.94, True), (1.0, False), (1.1, False)])
def test_noise_does_not_turn_a_verdict(monkeypatch: pytest.MonkeyPatch, share: float, *, pays: bool) -> None:
    assert {each.pays for each in trials(monkeypatch, share)} == {pays}


@pytest.mark.parametrize(("share", "costs"), [(0.97, False), (1.0, False), (1.1, True)])
def test_only_work_that_is_surely_slower_costs(monkeypatch: pytest.MonkeyPatch, share: float, *, costs: bool) -> None:
    assert {each.costs for each in trials(monkeypatch, share)} == {costs}


@pytest.mark.parametrize(("share", "repeats"), [(0.5, LEAST), (timing.PAYS, MOST)])
def test_a_clear_difference_needs_few_repeats(share: float, repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random, seconds = Random(1), list[float]()

    def timed(work: Any, _: torch.device) -> float:
        seconds.append((share if work == "kernel" else 1.0) * random.gauss(1, 0.01))
        return seconds[-1]

    monkeypatch.setattr(timing, "_seconds", timed)
    works: tuple[Any, Any] = ("kernel", "plain")
    relative_time(*works, torch.device("cpu"))
    assert len(seconds) == 2 * repeats
