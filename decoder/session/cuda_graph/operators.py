"""Small parts of drafts and verifications as function values: plain functions, or kernels that a trial has chosen.

This module knows neither the kernels nor the trial (`kernel_trial.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from decoder.sampling.device_truncation import DeviceTruncation, Truncating
from decoder.session.cuda_graph.draft import DraftOperators
from decoder.session.cuda_graph.kept_verdicts import KeptVerdict
from decoder.session.cuda_graph.verify import VerificationOperators

ABOUT = frozenset({"in_layers", "verdicts", "earlier", "unsettled"})
"""Fields of `Operators` that are not functions."""


@dataclass(frozen=True)
class Operators(VerificationOperators, DraftOperators):
    truncating: Truncating = DeviceTruncation.of
    in_layers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Rows of the passes in which kernels compute a part of layers (see `part_of`); empty for all passes."""
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """The result in words for each part that was tried as a kernel."""
    earlier: frozenset[str] = frozenset()
    """Parts whose verdict is that of an earlier start."""
    unsettled: frozenset[str] = frozenset()
    """Parts whose trial gave no result: the next start tries them again."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Parts that kernels compute."""
        names = (part.name for part in fields(self) if part.name not in ABOUT)
        parts = (name for name in names if getattr(self, name) is not getattr(PLAIN, name))
        return *parts, *self.in_layers

    def told(self, name: str, verdict: str, *, settled: bool = True) -> "Operators":
        """`settled`: the next start needs no trial."""
        unsettled = self.unsettled if settled else self.unsettled | {name}
        return replace(self, verdicts={**self.verdicts, name: verdict}, unsettled=unsettled)

    def with_part(self, name: str, kernel: Callable[..., object]) -> "Operators":
        part: dict[str, Any] = {name: kernel}
        return replace(self, **part)

    @property
    def settled(self) -> dict[str, KeptVerdict]:
        return {
            name: KeptVerdict(verdict, name in self.kernels, self.in_layers.get(name, ()))
            for name, verdict in self.verdicts.items()
            if name not in self.unsettled
        }

    def without_kernels(self, reason: str) -> "Operators":
        dropped = dict.fromkeys(self.kernels, f"not kept, since {reason}")
        return Operators(verdicts={**self.verdicts, **dropped})

    def __str__(self) -> str:
        """The parts that kernels compute, and why they do not compute others; empty if none was tried."""
        if not self.verdicts:
            return ""
        some = {name: f"{name} ({', '.join(map(str, rows))} rows)" for name, rows in self.in_layers.items() if rows}
        whole = [name for name in self.kernels if name not in some]
        kernels = "kernels, tried at an earlier start" if self.verdicts.keys() <= self.earlier else "kernels"
        plain = [f"{name} {verdict}" for name, verdict in self.verdicts.items() if name not in whole]
        return "; ".join([f"{kernels}: {', '.join([*whole, *some.values()]) or 'none'}", *plain])


def part_of(role: str, part: str) -> str:
    return f"{part} of the {role}"


PLAIN = Operators()
