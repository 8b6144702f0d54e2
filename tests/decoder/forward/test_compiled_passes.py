"""Compiled passes have the logits of torch in float64, and a row the same bits in every pass, whatever helps; the
library is found for this CPU, and chooses tokens.
"""

import ctypes
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from decoder.forward.compiled import library as libraries
from decoder.forward.compiled import model as passes
from decoder.forward.compiled import model as team
from decoder.forward.compiled.library import PassLibrary, PassStruct, chosen_tokens, library
from decoder.forward.compiled.model import CompiledModel, Helper, Team, leave_cpu
from decoder.forward.compiled.weights import compiled_model
from decoder.forward.families.native import NativeModel
from decoder.forward.hf import source_of
from decoder.forward.kv_cache import KvCache
from decoder.forward.language_model import LanguageModel
from decoder.forward.protocol import Forward
from decoder.forward.token_choice import ranked
from decoder.sampling.noise import Estimate
from decoder.sampling.ranking import Ranking
from decoder.sampling.settings import Sampling
from tests.decoder.family_models import COMPILED, MODELS, made, native_of
from tests.decoder.random_trees import Tree

TEXT = np.random.default_rng(3).integers(3, 90, 70).tolist()
EACH = pytest.mark.parametrize("name", MODELS | COMPILED)


def packed(module: Any) -> CompiledModel:
    source, found = source_of(module), library()
    assert source
    assert found
    return compiled_model(source, found)


@cache
def compiled(name: str, dtype: torch.dtype = torch.float32) -> CompiledModel:
    return packed(made(name, dtype))


@cache
def by_torch(name: str, dtype: torch.dtype = torch.float64) -> Forward:
    module = made(name, dtype)
    return native_of(module) if name in MODELS else LanguageModel.of_module(module, name).hf.forward_form()


def at_random(seed: int, nodes: int) -> Tree:
    return Tree.at_random(seed, TEXT, nodes)


def after_text(model: Forward, text: Sequence[int] = TEXT) -> KvCache:
    cache = model.new_cache(len(text) + 64)
    model.read(cache, text)
    return cache


def logits_of(model: Forward, tree: Tree) -> Tensor:
    return model.forward(after_text(model), tree.tokens, tree.positions, tree.visible)


def one_by_one(model: CompiledModel, tokens: Sequence[int]) -> Tensor:
    """Logits after the last of these tokens, each of which is computed alone after `TEXT`."""
    cache = after_text(model)
    for place, token in enumerate(tokens, len(TEXT)):
        logits = model.forward(cache, [token], [place], np.ones((1, 1), dtype=np.bool_))
        cache.keep([place])
    return logits[0]


@contextmanager
def threads(count: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Context in which even the smallest pass is computed by `count` threads."""
    before = torch.get_num_threads()
    monkeypatch.setattr(passes, "SHARED_FROM", 0)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@EACH
@pytest.mark.parametrize("nodes", [1, 3, 7, 16, 40])
def test_logits_are_those_of_torch_in_float64(name: str, nodes: int) -> None:
    tree = at_random(nodes, nodes)
    found, right = logits_of(compiled(name), tree).double(), logits_of(by_torch(name), tree)
    single = logits_of(by_torch(name, torch.float32), tree).double()
    assert (found - right).abs().max() <= 4 * (single - right).abs().max() + 1e-6 * right.abs().max()


@EACH
def test_a_row_has_the_bits_of_plain_text_among_any_others(name: str) -> None:
    model = compiled(name)
    for nodes in (2, 5, 16):
        tree = at_random(nodes, nodes)
        logits = logits_of(model, tree)
        for node in {0, nodes // 2, nodes - 1}:
            assert torch.equal(logits[node], one_by_one(model, [tree.tokens[above] for above in tree.paths[node]]))


@EACH
def test_a_text_read_at_once_has_the_bits_of_one_read_token_by_token(name: str) -> None:
    model = compiled(name)
    whole, apart = model.new_cache(len(TEXT)), model.new_cache(len(TEXT))
    logits = model.read(whole, TEXT)
    for token in TEXT:
        last = model.read(apart, [token])
    assert torch.equal(logits, last)
    assert torch.equal(whole.store, apart.store)


@EACH
@pytest.mark.parametrize("truncating", [False, True])
def test_a_pass_chooses_the_tokens_that_are_chosen_from_its_logits(name: str, *, truncating: bool) -> None:
    compiled_form, tree = compiled(name), at_random(3, 9)
    model = LanguageModel.of_module(made(name, torch.float32), name).with_forward(compiled_form)
    offsets = [*torch.randn(9, compiled_form.vocabulary)]
    truncation = [Sampling(temperature=1.0, top_k=5)] * 9 if truncating else None
    for ranking in (Ranking(4), Ranking(2, Estimate([1.5] * 9, offsets, truncation), own=True), Ranking(2, own=True)):
        expected = ranked(logits_of(compiled_form, tree), ranking)
        for _ in range(2):
            cache = after_text(compiled_form)
            assert model.best(cache, tree.tokens, tree.positions, tree.visible, ranking) == expected
            assert cache.used == len(TEXT) + len(tree.tokens)
    read, apart, ranking = model.new_cache(len(TEXT)), model.new_cache(len(TEXT)), Ranking(3)
    assert model.best_after(read, TEXT, ranking) == ranked(model.read(apart, TEXT)[None], ranking)
    assert read.length == read.used == len(TEXT)
    assert torch.equal(read.store, apart.store)


def test_logits_keep_their_values_in_later_passes_and_may_be_changed_in_place() -> None:
    model, tree = compiled("neox"), at_random(1, 3)
    with torch.inference_mode():
        first = logits_of(model, tree)
        bits = first.clone()
    logits_of(model, tree).zero_()
    assert torch.equal(first, bits)
    assert torch.equal(logits_of(model, tree), bits)


@pytest.mark.parametrize("name", ["neox", "llama", "qwen2, windows in half of its layers"])
@pytest.mark.parametrize("count", [2, 5])
def test_threads_change_no_bit(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tree = compiled(name), at_random(1, 12)
    alone = logits_of(model, tree)
    with threads(count, monkeypatch):
        for _ in range(30):
            assert torch.equal(logits_of(model, tree), alone)


@pytest.mark.parametrize(("tokens", "start"), [([10_000], 3), ([-1], 3), ([5], -1), ([5] * 9, 3)])
def test_rows_that_would_lie_outside_memory_are_refused(tokens: list[int], start: int) -> None:
    cache = compiled("llama").new_cache(8)
    rows = len(tokens)
    with pytest.raises(IndexError, match="rows do not fit"):
        compiled("llama").forward(cache, tokens, range(start, start + rows), np.tri(rows, dtype=np.bool_))


def test_a_weight_that_is_not_a_number_makes_logits_that_are_not_numbers() -> None:
    module = made("llama")
    module.model.embed_tokens.weight.data[7] = torch.nan
    model = packed(module)
    logits = model.forward(model.new_cache(2), [5, 7], [0, 1], np.tri(2, dtype=np.bool_))
    assert logits.isnan().all(1).tolist() == [False, True]
    assert not logits[0].isnan().any()


def test_a_pass_does_not_wait_for_threads_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    found = library()
    assert found is not None
    absent = Team(found)
    absent._helpers = [Helper(found.functions, 1, asleep=True)]
    model, tree = compiled("llama"), at_random(1, 12)
    alone = logits_of(model, tree)
    monkeypatch.setattr(passes, "team", lambda _: absent)
    absent._helpers[0].wakeup.acquire()
    with threads(2, monkeypatch):
        assert torch.equal(logits_of(model, tree), alone)


def test_passes_of_two_threads_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model, trees = compiled("neox"), [at_random(seed, 9 + seed) for seed in range(2)]
    alone = [logits_of(model, tree) for tree in trees]

    def repeated(which: int) -> bool:
        return all(torch.equal(logits_of(model, trees[which]), alone[which]) for _ in range(40))

    with threads(2, monkeypatch), ThreadPoolExecutor(2) as pool:
        assert all(pool.map(repeated, range(2)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["neox", "llama"])
def test_weights_in_half_precision_are_stored_so_and_give_the_logits_of_float32(name: str, dtype: torch.dtype) -> None:
    half, single, tree = compiled(name, dtype), packed(made(name, dtype).float()), at_random(4, 6)
    assert torch.equal(logits_of(half, tree), logits_of(single, tree))
    right = logits_of(native_of(made(name, dtype).double()), tree)
    assert (logits_of(half, tree).double() - right).abs().max() < 2e-4
    stored = [
        {layer.inward.number for layer in model.described.layers[: model.layers]} | {model.described.output.number}
        for model in (half, single)
    ]
    assert stored[0] == stored[1] == {1 if dtype is torch.bfloat16 else 2}


def test_hidden_rows_and_layer_inputs_are_those_of_the_torch_form() -> None:
    model, right = compiled("llama"), native_of(made("llama"))
    tree, found, expected = at_random(2, 5), dict[int, Tensor](), dict[int, Tensor]()

    def noted(into: dict[int, Tensor]) -> Any:
        return {number: lambda rows, _, at: into.update({at: rows.clone()}) for number in (0, 1)}

    hidden, logits = model.with_hidden(after_text(model), tree.tokens, tree.positions, tree.visible, 3)
    rows, _ = right.with_hidden(after_text(right), tree.tokens, tree.positions, tree.visible)
    torch.testing.assert_close(hidden, rows, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits, logits_of(model, tree)[3:])
    assert torch.equal(logits_of(model.noting(noted(found)), tree), logits_of(model, tree))
    logits_of(right.noting(noted(expected)), tree)
    for number in (0, 1):
        torch.testing.assert_close(found[number], expected[number], rtol=1e-4, atol=1e-4)


LEVEL = """
import torch
from decoder.forward.compiled.library import machine, library
from tests.decoder.forward import test_compiled_passes as tests
assert machine() == {machine!r} and library()
for name in ("neox", "llama", "llama with biases and wide heads", "mistral, windows of 8", "qwen3"):
    tests.test_a_row_has_the_bits_of_plain_text_among_any_others(name)
    tests.test_logits_are_those_of_torch_in_float64(name, 16)
for dtype in (torch.bfloat16, torch.float16):
    tests.test_weights_in_half_precision_are_stored_so_and_give_the_logits_of_float32("llama", dtype)
"""


@pytest.mark.parametrize(("capability", "machine"), [("default", "x86_64_v2"), ("avx2", "x86_64_v3")])
def test_the_passes_of_lower_levels_of_the_instruction_set_are_right_too(capability: str, machine: str) -> None:
    if torch.backends.cpu.get_cpu_capability() not in {"AVX2", "AVX512"}:
        pytest.skip("this CPU has no such levels")
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", LEVEL.format(machine=machine)], env=environment, check=True)


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a thread choose its CPUs")


def in_a_thread(work: list[set[int]], cpu: int) -> None:
    def run() -> None:
        leave_cpu(cpu)
        work.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


@on_linux
def test_a_thread_leaves_a_cpu_for_the_others_of_the_process() -> None:
    allowed, found = os.sched_getaffinity(os.getpid()), list[set[int]]()
    cpu = min(allowed)
    in_a_thread(found, cpu)
    assert found == [allowed - {cpu} or allowed]


@on_linux
def test_a_process_with_one_cpu_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.sched_getaffinity(0)
    cpu = min(allowed)
    with monkeypatch.context() as patched:
        patched.setattr(os, "sched_getaffinity", lambda _: {cpu})
        leave_cpu(cpu)
    assert os.sched_getaffinity(0) == allowed


class Functions:
    """Functions of the library in a helper that runs on CPU `cpu`."""

    def __init__(self, cpu: int) -> None:
        self.dynatui_cpu = lambda: cpu
        self.helped = threading.Event()

    def dynatui_help(self, _address: int, _number: int) -> None:
        self.helped.set()


@pytest.mark.parametrize(
    ("cpu", "caller", "left"), [(3, 3, [3]), (3, 2, []), (-1, -1, [])], ids=["same", "another", "unknown"]
)
def test_a_helper_leaves_the_callers_cpu_before_it_helps(
    monkeypatch: pytest.MonkeyPatch, cpu: int, caller: int, left: list[int]
) -> None:
    moved: list[int] = []
    monkeypatch.setattr(team, "leave_cpu", moved.append)
    functions: Any = Functions(cpu)
    helper = Helper(functions, 1)
    helper.start()
    limit = time.monotonic() + 10
    while not helper.asleep and time.monotonic() < limit:
        time.sleep(0.001)
    helper.wake(PassStruct(), caller)
    assert functions.helped.wait(10)
    assert moved == left


@on_linux
def test_the_library_knows_the_cpu_of_a_thread() -> None:
    found = library()
    if not found:
        pytest.skip("there is no library for this CPU")
    assert isinstance(found.functions, ctypes.CDLL)
    assert found.functions.dynatui_cpu() in os.sched_getaffinity(0)


def forget() -> None:
    libraries.library.cache_clear()
    libraries.missing.cache_clear()


@pytest.fixture
def _searched_anew() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.usefixtures("_searched_anew")
def test_the_package_was_built_for_this_cpu_from_the_present_source() -> None:
    assert libraries.missing() == ""
    assert libraries.library() is not None


@pytest.mark.usefixtures("_searched_anew")
def test_native_models_use_it_up_to_float32() -> None:
    forms = {
        dtype: type(LanguageModel.of_module(made("llama", dtype), "llama").runs_by)
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    }
    assert forms == dict.fromkeys(list(forms)[:3], CompiledModel) | {torch.float64: NativeModel}


@pytest.mark.usefixtures("_searched_anew")
def test_without_it_torch_computes_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libraries, "library_path", lambda: tmp_path / "passes-z80.so")
    assert "passes-z80.so is missing" in libraries.missing()
    assert isinstance(LanguageModel.of_module(made("llama"), "llama").runs_by, NativeModel)


@pytest.mark.usefixtures("_searched_anew")
def test_a_library_of_another_source_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "passes.c"
    changed.write_text("int changed;", encoding="utf-8")
    number = libraries.source_number(tmp_path)
    monkeypatch.setattr(libraries, "source_number", lambda: number)
    assert libraries.missing().endswith("was built from other C files")
    assert libraries.library() is None


NUMBERS = st.one_of(st.sampled_from([-math.inf, -2.0, 0.0, 1.0, 1.0]), st.floats(-40, 40, width=32))
OFFSETS = st.one_of(st.sampled_from([-96.0, 0.0, 1.0]), st.floats(-4, 40, width=32))


def built() -> PassLibrary:
    found = library()
    assert found is not None
    return found


def sorted_tokens(row: torch.Tensor, count: int) -> list[int]:
    """Of equal tokens, the one with the lower id comes first."""
    return sorted(range(len(row)), key=lambda token: (-float(row[token]), token))[:count]


def drawn_rows(data: st.DataObject, numbers: st.SearchStrategy[float], rows: int, width: int) -> torch.Tensor:
    row = st.lists(numbers, min_size=width, max_size=width)
    return torch.tensor(data.draw(st.lists(row, min_size=rows, max_size=rows)))


@given(
    width=st.integers(1, 70), rows=st.integers(1, 3), count=st.integers(1, 5), estimated=st.booleans(), data=st.data()
)
@settings(max_examples=100, deadline=None)
def test_they_are_those_of_a_sort_with_the_logprobs_of_torch(
    *, width: int, rows: int, count: int, estimated: bool, data: st.DataObject
) -> None:
    logits, count, estimate = drawn_rows(data, NUMBERS, rows, width), min(count, width), Estimate([1.0] * rows)
    if estimated:
        factors = data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=rows, max_size=rows))
        estimate = Estimate(factors, [*drawn_rows(data, OFFSETS, rows, width)])
    before, scores = logits.clone(), estimate.scores(logits)
    given_estimate = estimate if estimated else None
    chosen = ranked(logits, Ranking(count, given_estimate, own=True))
    for row, (tokens, logprobs, owns) in enumerate(zip(*chosen, strict=True)):
        if logits[row].isfinite().any():
            right, own = (each.log_softmax(-1)[tokens] for each in (scores[row], logits[row]))
            possible = sum(map(math.isfinite, logprobs))
            assert tokens[:possible] == sorted_tokens(scores[row], count)[:possible]
            assert possible == min(count, int(logits[row].isfinite().sum()))
            torch.testing.assert_close(torch.tensor(logprobs[:possible]), right[:possible], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(torch.tensor(owns[:possible]), own[:possible], rtol=1e-5, atol=1e-5)
            assert all(logprob == -math.inf for logprob in logprobs[possible:])
        else:
            assert all(map(math.isnan, logprobs))
    assert torch.equal(logits, before)
    assert ranked(logits, Ranking(count, given_estimate)).tokens == chosen.tokens


@given(width=st.integers(1, 70), rows=st.integers(1, 3), noisy=st.booleans(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_row_s_choice_has_the_largest_sum_of_logit_and_offset(
    *, width: int, rows: int, noisy: bool, data: st.DataObject
) -> None:
    logits = drawn_rows(data, NUMBERS, rows, width)
    offsets = drawn_rows(data, OFFSETS, rows, width) if noisy else torch.zeros(rows, width)
    for row, token in enumerate(chosen_tokens(built(), logits, [*offsets] if noisy else None)):
        choice = sorted_tokens(logits[row] + offsets[row], 1)[0]
        assert token == (choice if logits[row].isfinite().any() else -1)


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_row_with_a_number_that_is_none_has_no_logprobs_and_no_choice(strange: float) -> None:
    for place in (0, 20, 33):
        logits = torch.zeros(2, 34)
        logits[1, place] = strange
        good, bad = ranked(logits, Ranking(2)).logprobs
        assert not any(map(math.isnan, good))
        assert all(map(math.isnan, bad))
        assert chosen_tokens(built(), logits) == [0, -1]


def test_rows_may_be_part_of_wider_rows() -> None:
    wide = torch.arange(40.0).reshape(2, 20)
    assert ranked(wide[:, :7], Ranking(2)).tokens == [[6, 5], [6, 5]]
    assert chosen_tokens(built(), wide[:, :7]) == [6, 6]
