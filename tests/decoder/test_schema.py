"""Recordings of schema 1 are read like current ones."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import SCHEMA, Event, Knob, Round, Run, Start, Summary, Upgrade, decode_line
from decoder.methods.auto import Auto

TRACE = Path(__file__).parents[1] / "traces" / "schema-1-auto.jsonl"
"""Recorded with the last version of schema 1: DynaTree with an automatic number of nodes, ar and Algorithm 1."""


@pytest.fixture
def written() -> list[Event]:
    lines = TRACE.read_bytes().splitlines(keepends=True)
    return [decode_line(line, number) for number, line in enumerate(lines, 1)]


def upgraded(events: list[Event]) -> list[Event]:
    upgrade = Upgrade()
    return [upgrade.event(event) for event in events]


def first_run(events: list[Event]) -> Run:
    return next(event for event in events if isinstance(event, Run))


def test_an_automatic_dynatree_is_told_as_auto(written: list[Event]) -> None:
    run = first_run(upgraded(written))
    assert (run.schema, list(run.methods)) == (SCHEMA, ["auto", "ar", "alg1"])
    bounds = {**run.methods["auto"], "branching": tuple(run.methods["auto"]["branching"])}
    assert Auto(**bounds) == Auto(history=True)


def test_every_event_of_it_is(written: list[Event]) -> None:
    told = upgraded(written)
    assert len(told) == len(written)
    named = [event.method for event in told if isinstance(event, Start | Round | Knob)]
    assert set(named) == {"auto", "ar", "alg1"}
    (summary,) = [event for event in told if isinstance(event, Summary)]
    assert list(summary.methods) == ["auto", "ar", "alg1"]


def test_no_figure_changes(written: list[Event]) -> None:
    before, after = fold(written).figures(), fold(upgraded(written)).figures()
    assert after == {"auto" if name == "dynatree" else name: figures for name, figures in before.items()}


def test_what_it_did_not_record_is_not_known(written: list[Event]) -> None:
    assert {event.limited_by for event in upgraded(written) if isinstance(event, Round)} == {None}


@pytest.mark.parametrize("n_max", [64, None, False, "0", [0]])
def test_a_dynatree_with_a_number_of_nodes_stays_dynatree(written: list[Event], n_max: Any) -> None:
    run = first_run(written)
    numbered = structs.replace(run, methods={"dynatree": {**run.methods["dynatree"], "n_max": n_max}})
    told = first_run(upgraded([numbered]))
    assert told == structs.replace(numbered, schema=SCHEMA)


def test_each_run_of_a_file_is_read_by_its_own_schema(written: list[Event]) -> None:
    old = first_run(written)
    new = structs.replace(old, schema=SCHEMA, methods={"dynatree": {}, "auto": {}})
    start = Start(method="dynatree", prefill_s=0.0)
    assert upgraded([old, start, new, start])[1:] == [structs.replace(start, method="auto"), new, start]
