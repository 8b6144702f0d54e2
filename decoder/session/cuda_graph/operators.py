"""Small parts of drafts and verifications as function values: plain functions, or kernels that a trial has chosen.

This module knows neither the kernels nor the trial (`kernel_trial.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from decoder.sampling.device_truncation import DeviceTruncation, Truncating
from decoder.session.cuda_graph.draft import DraftOperators
from decoder.session.cuda_graph.verify import VerificationOperators


@dataclass(frozen=True)
class Operators(VerificationOperators, DraftOperators):
    """The functions that rounds on the device use."""

    truncating: Truncating = DeviceTruncation.of
    """Makes the truncation of both drafts and verifications."""
    in_layers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For each part of the models' layers that kernels compute (see `part_of`): the numbers of rows of the passes in
    which they do; empty for all passes.
    """
    verdicts: Mapping[str, str] = field(default_factory=dict)
    """For each part that was tried as a kernel: the result in words."""

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the parts that kernels compute."""
        names = (part.name for part in fields(self) if part.name not in ("in_layers", "verdicts"))
        parts = (name for name in names if getattr(self, name) is not getattr(PLAIN, name))
        return *parts, *self.in_layers

    def told(self, name: str, verdict: str) -> "Operators":
        """The same functions, with the verdict on a part."""
        return replace(self, verdicts={**self.verdicts, name: verdict})

    def without_kernels(self, reason: str) -> "Operators":
        """The plain functions, because of this reason."""
        dropped = dict.fromkeys(self.kernels, f"not kept, since {reason}")
        return Operators(verdicts={**self.verdicts, **dropped})

    def __str__(self) -> str:
        """The parts that kernels compute, and why kernels do not compute the other parts; empty if none was tried."""
        if not self.verdicts:
            return ""
        some = {name: f"{name} ({', '.join(map(str, rows))} rows)" for name, rows in self.in_layers.items() if rows}
        whole = [name for name in self.kernels if name not in some]
        plain = [f"{name} {verdict}" for name, verdict in self.verdicts.items() if name not in whole]
        return "; ".join([f"kernels: {', '.join([*whole, *some.values()]) or 'none'}", *plain])


def part_of(role: str, part: str) -> str:
    """Name of a part of a model's layers as a part of rounds."""
    return f"{part} of the {role}"


PLAIN = Operators()
