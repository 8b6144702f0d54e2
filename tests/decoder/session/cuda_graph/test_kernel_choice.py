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
from decoder.models.pair import Pair
from decoder.sampling.truncation import DeviceTruncation
from decoder.session.cuda_graph import draft, kernel_trial, pass_comparison, self_test, verify
from decoder.session.cuda_graph.device_state import PARENT
from decoder.session.cuda_graph.operators import PLAIN, Operators, Verdict
from decoder.session.cuda_graph.pass_comparison import LONG_TEXT, relative_time
from tests.decoder.makers import graph_slots
from tests.decoder.session.cuda_graph.matching import Devices, prepared
from tests.decoder.session.cuda_graph.stub_kernels import LAYERS, by_rows, exactly, times, tried_kernels

TRIED = None, Linear(2), DynaTree(selection="best", n_max=9, d_max=3, d0=2)
PARTS = ("add_children", "keep_level", "pack_tree", "tree_rows", "accept_path", "truncating")


@pytest.fixture
def tried(devices: Devices) -> Engine:
    return devices.plain(dtype="float32")


# Parts of a round


def chosen(tried: Engine, patch: pytest.MonkeyPatch, share: float = 0.5, **changed: Any) -> Operators:
    """The choice among kernels with the plain functions' results, but for those that are changed; they take this share
    of the plain functions' time.
    """
    copied = {name: lambda *given, _name=name, **named: getattr(PLAIN, _name)(*given, **named) for name in PARTS}
    patch.setattr(kernel_trial, "kernels", lambda: copied | changed)
    patch.setattr(kernel_trial, "layer_kernels", dict)
    patch.setattr(kernel_trial, "relative_time", lambda *_: exactly(share))
    return tried_kernels(tried.pair, graph_slots(tried), TRIED)


def fails(*_: Any) -> Any:
    raise RuntimeError("out of resources\nmore")


def _rounded(logits: Tensor, layout: Any, breadths: Any, paths: Tensor, lines: Tensor, logprobs: Tensor) -> None:
    draft.add_children(logits, layout, breadths, paths, lines, logprobs)
    logprobs.mul_(1 + 1e-6)


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


def test_kernels_with_equal_results_are_used_if_they_are_faster_however_they_round(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(tried, monkeypatch, add_children=_rounded)
    assert found.kernels == PARTS
    assert str(found) == "kernels: add_children, keep_level, pack_tree, tree_rows, accept_path, truncating"
    assert found.add_children is _rounded


def test_kernels_that_are_not_faster_are_not_used_and_their_times_are_told(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(tried, monkeypatch, share=1.204)
    assert found.kernels == ()
    assert str(found).startswith("kernels: none; add_children takes 1.20 x the time; keep_level takes")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("add_children", lambda logits, *given: draft.add_children(logits.flip(1), *given)),
        ("keep_level", lambda lines, *given, best: draft.keep_level(-lines, *given, best=best)),
        ("keep_level", lambda *given, best: draft.keep_level(*given, best=best) + 1),
        ("pack_tree", _without_a_node),
        ("tree_rows", _places_of_the_root),
        ("accept_path", _nothing_moved),
        ("truncating", _WithoutTopP.of),
        ("pack_tree", fails),
    ],
)
def test_kernels_with_other_results_are_not_used(
    tried: Engine, monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any]
) -> None:
    found = chosen(tried, monkeypatch, **{name: wrong})
    assert found.kernels == tuple(part for part in PARTS if part != name)
    why = "failed: out of resources" if wrong is fails else "gives results that differ from the plain function's"
    assert str(found).endswith(f"; {name} {why}")
    assert getattr(found, name) is getattr(PLAIN, name)


def test_without_triton_all_parts_are_plain_functions(tried: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("decoder.session.cuda_graph.kernels")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    found = tried_kernels(tried.pair, graph_slots(tried), TRIED)
    assert found.kernels == ()
    assert str(found).startswith("kernels: none; all parts are plain functions: ")
    assert "triton" in str(found)


def test_kernels_with_which_rounds_write_other_texts_are_dropped(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trial(_: Pair, slots: Any, *__: Any) -> list[str]:
        verdicts = {"accept_path": Verdict("takes 0.50 x the time", used=True)}
        slots.operators = replace(PLAIN, accept_path=_nothing_moved, verdicts=verdicts)
        return []

    monkeypatch.setattr(self_test, "trial", trial)
    assert prepared(tried) is None
    assert graph_slots(tried).operators is PLAIN  # no trial takes place if kernels are off
    graph_slots(tried).kernels = True
    assert prepared(tried) is None
    assert graph_slots(tried).operators.kernels == ()
    assert "accept_path not kept, since rounds on the device wrote" in str(graph_slots(tried).operators)


# Layers


def marked(form: NativeModel) -> NativeModel:
    """Kernels of layers whose passes end with the same large number in all rows."""
    return form.with_layers(lambda layer: lambda *given: layer(*given) * 0 + 7)


def in_layers(
    tried: Engine, patch: pytest.MonkeyPatch, share: float = 0.5, **kernels: Callable[[NativeModel], NativeModel]
) -> Operators:
    """The choice among these kernels of layers, which take this share of the plain operators' time."""
    patch.setattr(kernel_trial, "kernels", dict)
    patch.setattr(kernel_trial, "layer_kernels", lambda: kernels)
    patch.setattr(pass_comparison, "relative_time", lambda *_: exactly(share))
    return tried_kernels(tried.pair, graph_slots(tried), ())


def forms(tried: Engine) -> tuple[NativeModel, NativeModel]:
    """The target's form in use, and its plain form."""
    found, plain = graph_slots(tried).forward(tried.pair.target), static_forward(tried.pair.target)
    assert isinstance(found, NativeModel)
    assert isinstance(plain, NativeModel)
    return found, plain


ROWS = "x the time in passes of 1, 8, 32, 64 rows"
SLOWER = f"takes 1.50, 1.50, 1.50, 1.50 {ROWS}"
ALL = tuple(f"{part} of the {role}" for role in ("target", "draft") for part in ("attention", "products"))


@pytest.mark.parametrize(
    ("share", "kernels", "used", "told"),
    [
        (0.5, {"attention": times(1), "products": times(1)}, ALL, ", ".join(ALL)),
        (
            1.5,
            {"attention": times(1)},
            (),
            f"kernels: none; attention of the target {SLOWER}; attention of the draft {SLOWER}",
        ),
        (
            0.5,
            {"attention": times(1), "products": times(3)},
            LAYERS,
            "products of the draft gives results that differ from the plain function's",
        ),
        (0.5, {"products": lambda form: form}, (), ""),
        (0.5, {"attention": fails}, (), "attention of the target failed: out of resources;"),
    ],
    ids=["faster", "not faster", "with other logits", "no layer has the part", "failed"],
)
def test_kernels_of_layers_are_used_in_each_model_that_they_make_faster(
    tried: Engine, monkeypatch: pytest.MonkeyPatch, share: float, kernels: Any, used: tuple[str, ...], told: str
) -> None:
    plain = {model: graph_slots(tried).forward(model) for model in tried.pair.models.values()}
    found = in_layers(tried, monkeypatch, share, **kernels)
    assert found.kernels == used
    assert told in str(found)
    assert bool(str(found)) == bool(told)
    assert not used or all(graph_slots(tried).forward(model) is not form for model, form in plain.items())


@pytest.mark.parametrize("every", [True, False])
def test_for_another_pair_with_the_same_target_kernels_are_tried_beside_its_own_layers(
    tried: Engine, monkeypatch: pytest.MonkeyPatch, *, every: bool
) -> None:
    by_rows(monkeypatch, lambda rows, _: 0.5 if every or rows == 8 else 1.2)
    found = in_layers(tried, monkeypatch, attention=times(1), products=times(1))
    assert found.kernels
    slots, (form, _) = graph_slots(tried), forms(tried)
    anew = slots.anew(tried.pair.target)
    assert anew.forward(tried.pair.target) is form.plain is not form
    assert tried_kernels(tried.pair, anew, ()).verdicts == found.verdicts


def test_kernels_of_layers_are_used_in_passes_of_those_sizes_alone_that_they_make_faster(
    tried: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_rows(monkeypatch, lambda rows, _: 0.5 if rows in (8, 32) else 1.2)
    found = in_layers(tried, monkeypatch, attention=marked)
    assert [found.verdicts[name].rows for name in LAYERS] == [(8, 32)] * 2
    assert str(found).startswith(
        "kernels: attention of the target (8, 32 rows), attention of the draft (8, 32 rows); attention of the target "
        f"takes 1.20, 0.50, 0.50, 1.20 {ROWS}; "
    )
    form, plain = forms(tried)
    for rows in (1, 2, 8, 20, 64, 100):
        given = pass_comparison.example(form, rows, 3)
        with torch.no_grad():
            right = plain.computed(*given)
            assert torch.equal(form.computed(*given), marked(plain).computed(*given)) == (rows in (2, 8, 20))
            # A compiler sees the layers behind those of each size.
            assert torch.allclose(form.for_a_compiler().computed(*given), right, atol=1e-4)


@pytest.mark.parametrize(
    ("context", "slow", "used"), [(LONG_TEXT + 1, 64, (1, 8, 32)), (LONG_TEXT, None, ())], ids=["long", "short"]
)
def test_kernels_of_layers_that_slow_down_long_texts_are_not_used(
    tried: Engine, monkeypatch: pytest.MonkeyPatch, context: int, slow: int | None, used: tuple[int, ...]
) -> None:
    """In a short context, kernels are not tried after long texts, so here they are used for all rows."""
    by_rows(monkeypatch, lambda rows, text: 1.1 if text == LONG_TEXT and slow in (rows, None) else 0.9)
    shorter = replace(tried, pair=replace(tried.pair, context=context))
    verdict = in_layers(shorter, monkeypatch, attention=times(1)).verdicts["attention of the target"]
    assert (verdict.used, verdict.rows) == (True, used)


def test_slots_with_other_operators_are_not_taken_again(tried: Engine) -> None:
    slots = graph_slots(tried)
    first = slots.take(tried.pair, 20)
    slots.give_back(first)
    assert slots.take(tried.pair, 20) is first
    slots.give_back(first)
    slots.operators = replace(PLAIN, verdicts={"pack_tree": Verdict("takes 0.50 x the time", used=True)})
    assert slots.take(tried.pair, 20) is not first


# Times


WORKS: tuple[Any, Any, torch.device] = ("kernel", "plain", torch.device("cpu"))


def test_two_graphs_of_one_kind_are_measured_in_turn() -> None:
    done: list[str] = []
    share = relative_time(lambda: done.append("kernel"), lambda: done.append("plain"), torch.device("cpu"))
    assert done[:4] == ["plain", "kernel", "plain", "kernel"]
    assert share.low <= share.median <= share.high


@pytest.mark.parametrize(
    ("share", "pays", "costs"), [(0.9, True, False), (0.97, None, False), (1.0, False, False), (1.1, False, True)]
)
def test_noise_does_not_turn_a_verdict(
    monkeypatch: pytest.MonkeyPatch, share: float, *, pays: bool | None, costs: bool
) -> None:
    random = Random(0)

    def measured(work: Any, _: torch.device) -> float:
        return (share if work == "kernel" else 1.0) * random.gauss(1, 0.02)

    monkeypatch.setattr(pass_comparison, "_seconds", measured)
    trials = [relative_time(*WORKS) for _ in range(200)]
    assert pays is None or {each.pays for each in trials} == {pays}
    assert {each.costs for each in trials} == {costs}
