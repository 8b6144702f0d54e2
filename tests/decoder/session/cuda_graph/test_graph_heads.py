"""Which heads and attention windows decode on the device: EAGLE-3 heads of native targets, and windows larger than
trees; the host drives all other rounds.
"""

from dataclasses import replace

import pytest

from decoder.draft.tree_size.plan import TreePlan
from decoder.forward.layer_kinds import SLIDING, Windows
from decoder.heads.eagle3 import UNTAPPED
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.run.decoding_path import decoding_path
from decoder.session.cuda_graph.self_test import prepare_rounds
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import CHUNKED, DEEPEST, SHORT, uncaptured
from decoder.session.host import HostSession
from decoder.session.steering import KnobState
from tests.decoder.any_family import built, config_of, engine_of
from tests.decoder.makers import host_session
from tests.decoder.session.cuda_graph.matching import LIVELY, Devices, match, prepared, refused
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes
from tests.eagle3_checkpoints import name


@pytest.mark.parametrize("rest", [3, 28, 30, 32, 40])
def test_after_rounds_without_a_draft_a_head_has_read_all_tokens(devices: Devices, rest: int) -> None:
    engine = devices.recorded(name("neox", "flat"))
    sizes = RandomSizes.scripted([*[TreePlan(4, 32)] * 3, *[None] * rest, *[TreePlan(3, 8)] * 40])
    session = devices.begun(engine, WIDE, rest + 20, sizes)
    committed = [len(session.step(()).committed) for _ in range(3 + rest)]
    assert committed[2] > 3
    bounds = {each: getattr(WIDE, each) for each in ("branching", "rho_stop", "rho_deep", "tau")}
    best = DynaTree(**bounds, d0=2, d_max=3, history=False, n_max=7, selection="best")
    host = host_session(engine, session.text, 9, best)
    host.prefill()
    found, expected = session.step(()).tree, host.step(()).tree
    assert (found.tokens, found.parents) == (expected.tokens, expected.parents)
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-6)
    assert len(found) == 8


@pytest.mark.parametrize(("family", "dtype"), [("neox", "bfloat16"), ("llama", "float64")])
def test_the_self_test_trusts_rounds_with_a_head(devices: Devices, family: str, dtype: str) -> None:
    """Afterwards, the host can drive rounds that fit no tensors with the same form of the target."""
    engine = devices.plain(name(family, "nested"), dtype)
    engine = replace(engine, pair=replace(engine.pair, target=engine.pair.target.inexact()))
    assert prepared(engine) is None
    assert engine.pair.target.runs_without_module
    session = engine.session(devices.prompt(), 4, KnobState(LIVELY))
    assert isinstance(session, GraphSession)
    session.close()
    if dtype == "float64":
        match(engine, devices.prompt(), 16, LIVELY)


def test_a_target_that_runs_as_a_module_is_driven_by_the_host(devices: Devices) -> None:
    engine = devices.plain(name("gpt2", "flat"), "float32")
    engine = replace(engine, pair=replace(engine.pair, target=engine.pair.target.inexact()))
    assert engine.slots is not None
    engine.slots.refused = prepared(engine)
    assert engine.slots.refused == UNTAPPED
    assert isinstance(engine.session(devices.prompt(), 4, KnobState(LIVELY)), HostSession)


def test_heads_without_a_static_form_are_driven_by_the_host(devices: Devices) -> None:
    engine = devices.recorded(name("llama", "P-EAGLE"))
    assert isinstance(engine.session(devices.prompt(), 4, KnobState(Auto())), HostSession)
    assert decoding_path(engine).name == "host"


def test_texts_of_windows_are_tried_before_rounds_are_trusted(devices: Devices) -> None:
    assert refused(devices.plain("windows", "float32")) is None


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({}, ""),
        ({SLIDING: DEEPEST + 1}, ""),
        ({SLIDING: DEEPEST}, SHORT),
        ({"chunked_attention": 8192}, CHUNKED),
    ],
)
def test_a_graph_takes_windows_in_which_each_tree_lies_whole(sizes: dict[str, int], reason: str) -> None:
    assert uncaptured(Windows(sizes, tuple(sizes))) == reason


@pytest.mark.parametrize(("family", "reason"), [("mistral", SHORT), ("gemma3_text", SHORT), ("llama4_text", CHUNKED)])
def test_the_host_drives_rounds_of_models_with_other_windows(family: str, reason: str) -> None:
    module = built(config_of(family))
    assert prepare_rounds(engine_of(module, module).pair, GraphSlots(graphs=False), [None]) == reason
