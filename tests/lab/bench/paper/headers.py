"""A made-up first line and blocks of a measurement log."""

from typing import Any

from decoder.events import Figures
from dynatui.lab.bench.data_sets.prompts import TextSet
from dynatui.lab.bench.paper.records import SCHEMA, Block, CostCurve, Header, Lane, PaperExperiment, PaperRequest, Turn
from tests.lab.bench.machines import MACHINE


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
            PaperExperiment(
                name="main", data_set="wikitext", most=8, prompts=2, lanes=("ar", "phase 1"), lengths=(4, 8)
            ),
        ),
    }
    return Header(
        schema=SCHEMA,
        started_at="2026-01-01T00:00:00Z",
        commit=None,
        machine=MACHINE,
        request=PaperRequest(**given | changes),
        costs=CostCurve(rows=(1,), verify_s=(2.0,), draft_s=(1.0,)),
        context=64,
    )


def block(prompt: int) -> Block:
    turn = Turn(lane="ar", at=(Figures(rounds=4, committed=4),), kv_bytes=None, waited=0.0)
    return Block(experiment=0, prompt=prompt, repeat=0, prompt_tokens=3, turns=(turn,))
