"""A kernel is used only where its results equal the plain function's and it is faster; the verdicts are told.

The kernels of these tests are plain functions, so that triton is not needed.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder.engine import Engine
from decoder.forward.static.layers import NativeStatic
from decoder.forward.static.static_forward import static_forward
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.sampling.device_truncation import DeviceTruncation
from decoder.session.cuda_graph import draft, kernel_trial, pass_comparison, self_test, verify
from decoder.session.cuda_graph.device_state import PARENT
from decoder.session.cuda_graph.kernel_trial import chosen_operators, with_layer_kernels
from decoder.session.cuda_graph.operators import PLAIN, Operators
from decoder.session.cuda_graph.relative_time import relative_time
from decoder.session.cuda_graph.static_shapes import passes
from decoder.tree_rules import tree_rule
from tests.decoder.makers import TinyModels, graph_slots
from tests.decoder.session.cuda_graph.matching import prepared, with_slots

TRIED = None, Linear(2), DynaTree(selection="best", n_max=9, d_max=3, d0=2)
PARTS = ("add_children", "keep_level", "pack_tree", "tree_rows", "accept_path", "truncating")


def engine(tiny_models: TinyModels) -> Engine:
    return with_slots(tiny_models.loaded(tiny_models.pair("neox"), "float32"))


def chosen(
    tiny_models: TinyModels,
    patch: pytest.MonkeyPatch,
    kernels: Callable[[], dict[str, Callable[..., Any]]],
    share: float = 0.5,
) -> Operators:
    """The choice among these kernels, which take this share of the plain functions' time."""
    patch.setattr(kernel_trial, "kernels", kernels)
    patch.setattr(kernel_trial, "relative_time", lambda *_: share)
    tried = engine(tiny_models)
    return chosen_operators(tried.pair, graph_slots(tried), TRIED)


def copied() -> dict[str, Callable[..., Any]]:
    """Kernels with the plain functions' results."""
    return {name: lambda *given, _name=name, **named: getattr(PLAIN, _name)(*given, **named) for name in PARTS}


def test_kernels_with_equal_results_are_used_if_they_are_faster(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(tiny_models, monkeypatch, copied)
    assert found.kernels == PARTS
    assert str(found) == "kernels: add_children, keep_level, pack_tree, tree_rows, accept_path, truncating"


def test_kernels_that_are_not_faster_are_not_used_and_their_times_are_told(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(tiny_models, monkeypatch, copied, share=1.204)
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
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any]
) -> None:
    found = chosen(tiny_models, monkeypatch, lambda: copied() | {name: wrong})
    assert found.kernels == tuple(part for part in PARTS if part != name)
    assert str(found).endswith(f"; {name} gives other results")


def test_log_probabilities_that_are_rounded_otherwise_are_equal(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rounded(logits: Tensor, layout: Any, breadths: Any, paths: Tensor, lines: Tensor, logprobs: Tensor) -> None:
        draft.add_children(logits, layout, breadths, paths, lines, logprobs)
        logprobs.mul_(1 + 1e-6)

    assert "add_children" in chosen(tiny_models, monkeypatch, lambda: copied() | {"add_children": rounded}).kernels


def test_a_kernel_that_fails_is_not_used_and_the_reason_is_told(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("out of resources\nmore")

    found = chosen(tiny_models, monkeypatch, lambda: copied() | {"pack_tree": fails})
    assert str(found).endswith("; pack_tree failed: out of resources")


def test_without_triton_all_parts_are_plain_functions(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("decoder.session.cuda_graph.kernels")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    tried = engine(tiny_models)
    found = chosen_operators(tried.pair, graph_slots(tried), TRIED)
    assert found.kernels == ()
    assert str(found).startswith("kernels: none; all parts are plain functions: ")
    assert "triton" in str(found)


def test_kernels_with_which_rounds_write_other_texts_are_dropped(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(PLAIN, accept_path=_nothing_moved, verdicts={"accept_path": "takes 0.50 x the time"})
    monkeypatch.setattr(self_test, "chosen_operators", lambda *_: wrong)
    tried = engine(tiny_models)
    graph_slots(tried).kernels = True
    assert prepared(tried) is None
    assert graph_slots(tried).operators.kernels == ()
    assert "accept_path not kept, since rounds on the device wrote" in str(graph_slots(tried).operators)


def test_no_trial_takes_place_if_kernels_are_off(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "chosen_operators", lambda *_: pytest.fail("kernels were tried"))
    tried = engine(tiny_models)
    assert prepared(tried) is None
    assert graph_slots(tried).operators is PLAIN


Kernels = Callable[[NativeStatic], NativeStatic]
"""See `layer_kernels`."""


def in_layers(
    tiny_models: TinyModels, patch: pytest.MonkeyPatch, kernels: dict[str, Kernels], share: float = 0.5
) -> tuple[Engine, Operators]:
    """The choice among these kernels of layers, which take this share of the plain operators' time, for rounds with a
    chain of two tokens.
    """
    patch.setattr(kernel_trial, "layer_kernels", lambda: kernels)
    patch.setattr(pass_comparison, "relative_time", lambda *_: share)
    tried = engine(tiny_models)
    return tried, with_layer_kernels(tried.pair, graph_slots(tried), passes([tree_rule(Linear(2))]))


def times(factor: float) -> Kernels:
    """Kernels that multiply the rows of each layer by a factor."""
    return lambda form: form.with_layers(lambda layer: lambda *given: layer(*given) * factor)


def test_kernels_of_layers_are_used_in_each_model_that_they_make_faster(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, found = in_layers(tiny_models, monkeypatch, {"attention": times(1), "products": times(1)})
    assert found.kernels == tuple(
        f"{part} of the {role}" for role in tried.pair.models for part in ("attention", "products")
    )
    for model in tried.pair.models.values():
        assert graph_slots(tried).forward(model) is not static_forward(model)


def test_kernels_of_layers_that_are_not_faster_are_not_used(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = in_layers(tiny_models, monkeypatch, {"attention": times(1)}, share=1.5)
    assert found.kernels == ()
    assert str(found) == (
        "kernels: none; attention of the target takes 1.50 x the time; attention of the draft takes 1.50 x the time"
    )


def test_kernels_of_layers_with_other_logits_are_not_used(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = in_layers(tiny_models, monkeypatch, {"attention": times(1), "products": times(3)})
    assert found.kernels == ("attention of the target", "attention of the draft")
    assert "products of the draft gives other results" in str(found)


def test_a_part_that_no_layer_has_is_not_tried(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = in_layers(tiny_models, monkeypatch, {"products": lambda form: form})
    assert str(found) == ""


def test_kernels_of_layers_that_fail_are_not_used_and_the_reason_is_told(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: NativeStatic) -> NativeStatic:
        raise RuntimeError("out of resources\nmore")

    _, found = in_layers(tiny_models, monkeypatch, {"attention": fails})
    assert "attention of the target failed: out of resources;" in str(found)


def test_slots_with_other_operators_are_not_taken_again(tiny_models: TinyModels) -> None:
    tried = engine(tiny_models)
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
    assert share > 0
