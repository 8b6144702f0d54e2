"""A kernel is used only where its results equal the plain function's and it is faster; the verdicts are told.

Verdicts are kept on disk: the next start tries no kernel again, but tests rounds with them again. Kernels that no
earlier start has tried are tried between texts, in small parts; until then rounds use the plain functions. The kernels
of these tests are plain functions, so that triton is not needed.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder import RunConfig
from decoder.engine import Engine
from decoder.errors import LostDeviceError
from decoder.forward.families.native import NativeModel
from decoder.forward.static_forward import static_forward
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.models.pair import Pair
from decoder.run import loading
from decoder.sampling.truncation import DeviceTruncation
from decoder.session.cuda_graph import draft, kernel_trial, operators, pass_comparison, self_test, verify
from decoder.session.cuda_graph.device_state import PARENT
from decoder.session.cuda_graph.operators import PLAIN, Operators, Verdict, VerdictFile
from decoder.session.cuda_graph.pass_comparison import LONG_TEXT, relative_time
from decoder.session.cuda_graph.slots import GraphSlots
from tests.decoder.makers import Played, graph_slots, play
from tests.decoder.session.cuda_graph.matching import Devices, prepared
from tests.decoder.session.cuda_graph.stub_kernels import LAYERS, Stubs, by_rows, exactly, times, tried_kernels
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device

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
    changed: dict[str, Any] = {name: wrong}
    found = chosen(tried, monkeypatch, **changed)
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


# Starts


RUN = RunConfig(("linear", "ar"), 12, linear=Linear(2))
AT_STARTS = None, Linear(2)
CHOSEN = ("pack_tree", *LAYERS)
COUNTED = [f"kernels: {number} of 4 tried" for number in (1, 2, 3, 4)]
TESTING = ["testing rounds on the device", "testing rounds with kernels"]


class Starts:
    """Starts of one pair with stand-ins for kernels."""

    def __init__(self, engine: Engine, folder: Path, stubs: Stubs) -> None:
        self.engine, self.folder, self.stubs = engine, folder, stubs

    @property
    def tried(self) -> list[str]:
        return self.stubs.tried

    @property
    def slots(self) -> GraphSlots:
        return graph_slots(self.engine)

    @property
    def operators(self) -> Operators:
        return self.slots.operators

    @property
    def layers(self) -> Any:
        form = self.slots.forward(self.engine.pair.target)
        assert isinstance(form, NativeModel)
        return form.layers

    def start(self, *, later: bool = False) -> list[str]:
        """Starts anew; returns what is told meanwhile. `later`: kernels without verdicts are tried between texts."""
        self.tried.clear()
        old, told = self.slots, list[str]()
        self.engine = replace(self.engine, slots=old.anew(self.engine.pair.target))
        self.slots.kernels, self.slots.kernels_later = True, later
        self.slots.operators = PLAIN
        loading.try_rounds(self.engine, told.append)
        assert self.slots.refused is None
        return told

    def steps(self) -> list[str]:
        """Does all that is left for later; returns what each step tells."""
        return list(iter(self.engine.prepare, ""))

    def played(self) -> Played:
        return play(self.engine, RUN)


@pytest.fixture
def starts(devices: Devices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubs: Stubs) -> Starts:
    """A pair that is loaded and not started."""
    monkeypatch.setattr(loading, "TRIED", AT_STARTS)
    monkeypatch.setattr(operators, "verdicts_folder", lambda: tmp_path / "kernels")
    return Starts(devices.plain(dtype="float32"), tmp_path / "kernels", stubs)


@pytest.fixture
def pending(starts: Starts) -> Starts:
    """A started pair whose kernels are not tried yet."""
    starts.start(later=True)
    return starts


# Verdicts on disk


@pytest.mark.parametrize("later", [False, True])
def test_the_next_start_uses_the_same_kernels_and_tries_none_but_tests_rounds_with_them_again(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    right, tested = self_test.refusals, list[tuple[str, ...]]()

    def refusals(pair: Any, slots: GraphSlots, *given: Any) -> Any:
        tested.append(slots.operators.kernels)
        return right(pair, slots, *given)

    told = [*starts.start(later=later), *(starts.steps() if later else ())]
    assert list(dict.fromkeys(told)) == [TESTING[0], *COUNTED, TESTING[1]]
    assert starts.tried == ["pack_tree", "keep_level", *["layers"] * 8]
    first, forms = starts.operators, [type(layer) for layer in starts.layers]
    assert first.kernels == CHOSEN
    assert str(first).startswith("kernels: pack_tree, attention of the target, ")
    monkeypatch.setattr(self_test, "refusals", refusals)
    assert starts.start(later=later) == TESTING
    assert starts.tried == []
    assert tested[-1:] == [CHOSEN]
    assert (starts.operators.kernels, starts.operators.verdicts) == (first.kernels, first.verdicts)
    assert [type(layer) for layer in starts.layers] == forms
    assert str(starts.operators).startswith("kernels: pack_tree, attention of the target, attention of the draft; ")
    assert "; keep_level takes 1.50 x the time" in str(starts.operators)
    assert starts.engine.prepare() == ""


def test_kernels_with_which_rounds_write_other_texts_are_forgotten(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts.start()
    right = self_test.refusals

    def refusals(pair: Any, slots: GraphSlots, *given: Any) -> Iterable[str | None]:
        return ["rounds wrote other texts"] if slots.operators.kernels else right(pair, slots, *given)

    monkeypatch.setattr(self_test, "refusals", refusals)
    starts.start()
    assert "pack_tree not kept, since " in str(starts.operators)
    assert list(starts.folder.iterdir()) == []


def test_a_kernel_that_failed_is_tried_again_and_no_other_is(starts: Starts) -> None:
    right = starts.stubs.kernels["keep_level"]
    starts.stubs.fail("keep_level")
    starts.start(later=True)
    starts.steps()
    assert "keep_level failed" in str(starts.operators)
    for tried in (["keep_level"], ["keep_level"], []):
        told = starts.start(later=True)
        assert (starts.operators.kernels, starts.tried) == (CHOSEN, tried)
        assert (COUNTED[0].replace("4", "1") in told) == bool(tried)
        starts.stubs.kernels["keep_level"] = right


def test_rows_are_kept_too(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows(monkeypatch, lambda rows, _: 0.5 if rows == 8 else 1.5)
    for _ in range(2):
        starts.start()
        assert [starts.operators.verdicts[name].rows for name in LAYERS] == [(8,)] * 2
    forms = starts.layers[0].forms
    assert {rows: form is forms[8] for rows, form in forms.items()} == {1: False, 8: True, 32: False, 64: False}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b'{"circumstances": [], "verdicts": {}}',
        b'{"circumstances": ["x"], "verdicts": {"pack_tree": {"words": "\\u001b[2J", "used": true}}}',
        b'{"circumstances": ["x"], "verdicts": {"pack_tree": {"words": "good", "used": true, "more": 1}}}',
        b'{"circumstances": ["other"], "verdicts": {"pack_tree": {"words": "good", "used": true}}}',
    ],
)
def test_a_damaged_or_foreign_file_counts_as_absent_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    kept, file = {"pack_tree": Verdict("takes 0.50 x the time", used=True)}, VerdictFile(tmp_path, ("x",))
    file.write(kept)
    (path,) = tmp_path.iterdir()
    assert file.read() == kept
    path.write_bytes(content)
    assert file.read() == {}
    file.write(kept)
    assert file.read() == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device_name", lambda _: "another GPU"),
        ("releases", lambda: ("torch 3", "triton 4")),
        ("source_digest", lambda: "other sources"),
    ],
)
def test_verdicts_of_other_circumstances_do_not_hold(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    starts.start()
    monkeypatch.setattr(self_test, name, value)
    starts.start()
    assert "pack_tree" in starts.tried
    assert len(list(starts.folder.iterdir())) == 2


def test_a_folder_that_cannot_be_written_costs_nothing_but_another_trial(starts: Starts) -> None:
    starts.folder.write_text("a file")
    for _ in range(2):
        starts.start()
        assert starts.operators.kernels == CHOSEN
        assert starts.tried


def test_the_sources_are_found() -> None:
    package = Path(operators.__file__).parents[2]
    assert all(any((package / folder).rglob("*.py")) for folder in operators.SOURCES)
    assert (package / "session/cuda_graph/verify.py") == Path(verify.__file__)


# Trials between texts


def test_until_the_test_of_rounds_has_ended_texts_have_plain_functions_alone(pending: Starts) -> None:
    """Each step tries one kernel, or tests rounds under one rule; slots with old graphs are dropped at the end."""
    slots, before, told = pending.slots, pending.operators, list[str]()
    forms = {model: slots.forward(model) for model in pending.engine.pair.models.values()}
    texts = [pending.played().tokens("linear")]
    assert pending.tried == []
    while words := pending.engine.prepare():
        told.append(words)
        assert slots.operators is before
        assert {model: slots.forward(model) for model in forms} == forms
        assert not pending.folder.exists()
        texts.append(pending.played().tokens("linear"))
    assert told == [*COUNTED, *[TESTING[1]] * (1 + 2 * len(AT_STARTS))]
    assert not slots._free
    assert pending.operators.kernels == CHOSEN
    assert all(slots.forward(model) is not form for model, form in forms.items())
    texts.append(pending.played().tokens("linear"))
    assert all(text == texts[0] for text in texts)


def test_if_rounds_with_kernels_are_wrong_plain_functions_stay(
    pending: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pending.played()
    monkeypatch.setattr(self_test, "refusals", lambda *_: [None, "rounds wrote other texts", None])
    pending.steps()
    assert pending.operators.kernels == ()
    assert "pack_tree not kept, since rounds wrote other texts" in str(pending.operators)
    assert pending.played().tokens("linear") == before.tokens("linear")
    assert not list(pending.folder.glob("*"))


def test_a_device_that_fails_in_a_trial_ends_it_in_one_sentence_and_no_verdict_is_kept(starts: Starts) -> None:
    with fake_cuda() as device:
        starts.engine = on_fake_device(starts.engine)
        starts.start(later=True)

        def lost(*_: Any) -> None:
            device.fault = "CUDA error: an illegal memory access was encountered"
            raise RuntimeError(device.fault)

        starts.stubs.kernels["pack_tree"] = lost
        with pytest.raises(LostDeviceError, match=r"^cuda:0 has failed"):
            starts.steps()
    assert not starts.folder.exists()
