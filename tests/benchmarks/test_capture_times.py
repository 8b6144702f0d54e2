"""Every graph that `auto` may use is captured once, and texts are timed with and without the captures."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.stages import captures
from benchmarks.stages.captures import Capture, Measurements, Size, by_kind, captured, measured, sizes, texts
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.methods import METHODS
from decoder.run.config import RunConfig
from decoder.session.cuda_graph.session import GraphSession
from tests.decoder.makers import TinyModels, graph_slots
from tests.decoder.session.cuda_graph.matching import recorded

TOKENS = 300


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    return recorded(tiny_models.loaded(tiny_models.pair("long"), "float32"))


def test_sizes_are_those_of_all_drafts_and_verifications_as_far_as_attention_reads() -> None:
    found = list(sizes(2000))
    assert len({(each.kind, each.size, each.slots) for each in found}) == len(found) == 24
    assert Counter(each.kind for each in found) == {"draft": 12, "verification": 12}
    assert {each.size for each in found if each.kind == "draft"} == {2, 5, 12}
    assert {each.size for each in found if each.kind == "verification"} == {1, 8, 64}
    assert Size("verification", 1, 256, captures.PROMPT) in found


def test_each_is_captured_once_in_a_slot_that_texts_do_not_get(engine: Engine) -> None:
    found = captured(engine, TOKENS)
    assert [(each.kind, each.size, each.slots) for each in found] == [
        (each.kind, each.size, each.slots) for each in sizes(TOKENS)
    ]
    assert all(each.seconds > 0 for each in found)
    assert graph_slots(engine)._free == []


def test_a_text_of_auto_asks_for_no_other(engine: Engine) -> None:
    prompt = [7 * place % 260 for place in range(captures.PROMPT)]
    session = METHODS["auto"].open(engine, prompt, RunConfig(max_new_tokens=TOKENS - captures.PROMPT))
    assert isinstance(session, GraphSession)
    session.prefill()
    while not session.step(()).finished:
        pass
    known = {(each.kind, each.size, each.slots) for each in sizes(TOKENS)}
    captured: Any = session._slot._captured
    asked = {
        ("verification", size, slots) if isinstance(size, int) else ("draft", size.deepest, slots)
        for size, slots, *_ in captured
    }
    assert asked <= known
    assert len(asked) > 2


def test_texts_are_timed_by_turns_and_the_first_with_its_captures(engine: Engine) -> None:
    found = measured(engine, 100, 2)
    assert (len(found.auto), len(found.ar)) == (2, 2)
    assert min(*found.auto, *found.ar) > 0
    assert 0 < found.first_captures_s < found.first_s


def test_tables_tell_how_many_how_long_and_how_fast() -> None:
    found = [Capture("draft", 1, 256, 0.5), Capture("draft", 2, 256, 0.1), Capture("verification", 1, 256, 0.25)]
    _, draft, verification, memory = by_kind(found, 2 * 10**9).splitlines()
    assert draft.split() == ["draft", "2", "0.60", "300.0", "500.0"]
    assert verification.split() == ["verification", "1", "0.25", "250.0", "250.0"]
    assert memory.endswith("2.00 GB")
    text = texts(Measurements(found, 0, 8.0, 3.0, [90.0, 99.0, 80.0], [100.0, 100.0, 80.0]))
    assert "auto took 8.00 s for its first text, of which graph capture took 3.00 s" in text
    assert "auto 90.0 tokens/s, ar 100.0 tokens/s; auto is 0.990 times" in text


def test_rounds_that_the_host_drives_have_no_captures(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="no CUDA graphs are captured"):
        measured(replace(engine, slots=None), 100, 1)
