"""Costs are measured as rounds meet them: a pass after one of about its own size."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.models.pair import Pair
from tests.decoder.makers import TinyModels

ROW_S, COLD_S = 1e-6, 1e-3


@dataclass
class Machine:
    """A clock, and a CPU whose caches hold no weights after a much larger pass: a pass takes longer then."""

    time_s: float = 0.0
    latest_rows: int = 1

    def now(self) -> float:
        return self.time_s

    def compute(self, rows: int) -> torch.Tensor:
        self.time_s += ROW_S * rows + COLD_S * (self.latest_rows >= 4 * rows)
        self.latest_rows = rows
        return torch.zeros(rows, 2)


class Cache:
    length = 0

    def assume(self, length: int) -> None:
        self.length = length


@dataclass
class Model:
    """A model without weights on the machine."""

    machine: Machine
    context: int = 4096

    def new_cache(self, _capacity: int) -> Cache:
        return Cache()

    def read(self, _cache: Cache, tokens: Sequence[int]) -> torch.Tensor:
        return self.machine.compute(len(tokens))[-1]

    def forward(self, _cache: Cache, tokens: Sequence[int], *_: object) -> torch.Tensor:
        return self.machine.compute(len(tokens))


def test_no_size_is_measured_right_after_a_much_larger_one(tiny_models: TinyModels) -> None:
    machine = Machine()
    model: Any = Model(machine)
    pair: Pair = replace(tiny_models.loaded(tiny_models.pair("neox"), "float32").pair, target=model, draft=model)
    costs = measure_costs(pair, 100, machine)
    for rows in range(2, 14):
        for curve in (costs.catch_up, costs.draft, costs.verify):
            assert curve.seconds(rows) < COLD_S / 2
