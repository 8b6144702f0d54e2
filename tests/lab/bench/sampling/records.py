"""Made-up records of a measurement."""

from collections.abc import Mapping
from typing import Any

from decoder.sampling.settings import Sampling
from decoder.verify.lossless.verifiers import SOLVERS
from dynatui.lab.bench.sampling.records import (
    BOUND,
    SCHEMA,
    Expected,
    Header,
    RoundCosts,
    SamplingRequest,
    TextKey,
)
from tests.lab.bench.makers import MACHINE, PAIR

COSTS = RoundCosts(first_s=1.0, level_s=(0.0, 1.0, 1.5), verify_s=(0.0, 4.0, 4.0, 5.0, 5.0, 6.0))


def request(**changes: Any) -> SamplingRequest:
    given: dict[str, Any] = {
        "samplings": (Sampling(0.6),),
        "tasks": {"one": ("a", "b")},
        "verifiers": ("naive", "specinfer", "block", "traversal"),
        "k": 2,
        "length": 2,
        "max_new_tokens": 8,
        "roots_every": 4,
        "decoded": 1,
        "repeats": 1,
    }
    return SamplingRequest(**PAIR | given | changes)


def header(those: SamplingRequest) -> Header:
    return Header(schema=SCHEMA, started_at="2026-01-01T00:00:00Z", machine=MACHINE, request=those, costs=COSTS)


def expected(
    those: SamplingRequest, place: TextKey, tokens: Mapping[str, Mapping[tuple[int, int, int], float]]
) -> Expected:
    """Expected tokens on one text: 1 for every shape, except those in `tokens`."""
    return Expected(
        place=place,
        roots=1,
        tokens={
            verifier: tuple(
                tokens.get(verifier, {}).get((shape.k, shape.l1, shape.l2), 1.0) for shape in those.shapes(verifier)
            )
            for verifier in those.verifiers
        },
        selected={contest.verifier: 1.5 for contest in those.selecting()},
        distance=(0.5, 1.0),
        acceptance={**dict.fromkeys(SOLVERS, (0.8, 0.4)), BOUND: (0.9, 0.5)},
    )
