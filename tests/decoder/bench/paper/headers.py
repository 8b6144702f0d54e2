"""The first line of a measurement that nobody made, and its blocks."""

from typing import Any

from decoder.bench.data_sets.text_set import TextSet
from decoder.bench.machine import Machine
from decoder.bench.paper.records import Block, Header, RoundCosts, Turn
from decoder.bench.paper.request import Experiment, Lane, Request
from decoder.events import Figures

MACHINE = Machine(
    system="Linux",
    processor="a processor",
    cores=2,
    threads=1,
    accelerator=None,
    versions={"dynatui": "0"},
    load_before=0.5,
    copy_bytes_per_s=None,
)


def header(**changes: Any) -> Header:
    given: dict[str, Any] = {
        "target": "target",
        "draft": "draft",
        "device": "cpu",
        "dtype": "float32",
        "draft_dtype": "float32",
        "seed": 0,
        "temperature": 0.0,
        "top_p": 1.0,
        "stops_at_eos": False,
        "warm_up": 1,
        "text_sets": (TextSet(name="wikitext", title="W", prompts=("one", "two")),),
        "lanes": (Lane(name="phase 1", method="dynatree", family="dynatree", parameters={"branching": [1, 2, 3]}),),
        "experiments": (
            Experiment(name="main", data_set="wikitext", most=8, prompts=2, lanes=("ar", "phase 1"), lengths=(4, 8)),
        ),
    }
    return Header(
        started_at="2026-01-01T00:00:00Z",
        commit=None,
        machine=MACHINE,
        request=Request(**given | changes),
        costs=RoundCosts(rows=(1,), verify_s=(2.0,), draft_s=(1.0,)),
        context=64,
    )


def block(prompt: int) -> Block:
    turn = Turn(lane="ar", at=(Figures(rounds=4, committed=4),), kv_bytes=None, waited=0.0)
    return Block(experiment=0, prompt=prompt, repeat=0, prompt_tokens=3, turns=(turn,))
