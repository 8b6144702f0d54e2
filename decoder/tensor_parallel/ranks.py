"""Rank of this process among the processes of torchrun, from environment variables. Imports no torch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from decoder.errors import ConfigError, quoted

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""Environment variables that torchrun sets for each process; torch itself reads the variables for address and port."""


@dataclass(frozen=True)
class Ranks:
    rank: int
    """Rank of the process; 0 is the leader, which drafts, accepts tokens and displays the run."""
    count: int
    """Number of ranks on all machines."""
    local: int
    """Rank of the process among the processes on this machine, and index of its device."""
    local_count: int

    @property
    def leads(self) -> bool:
        return self.rank == 0


def ranks_here(environment: Mapping[str, str] = os.environ) -> Ranks | None:
    """Rank of this process; None if this process runs alone. Raises ConfigError for a variable that is not a number."""
    if not all(name in environment for name in VARIABLES):
        return None
    ranks = Ranks(*(_number(name, environment[name]) for name in VARIABLES))
    return ranks if ranks.count > 1 else None


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{name} is {quoted(text)}, which is not a number; let torchrun set it")
    return int(text)
