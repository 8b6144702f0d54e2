"""Rank of this process in the tensor-parallel group, from torchrun's environment variables. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.errors import ConfigError, LostRankError, quoted

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""Environment variables that torchrun sets for each process; torch itself reads the variables for address and port."""

LIFELINE = "TENSOR_PARALLEL_LIFELINE"
"""Optional environment variable: descriptor of a pipe, which closes when the program that started the ranks ends."""
LOST = LostRankError.exit_code
"""Exit code of a leader that has lost a follower, and of a follower that has lost the leader."""


@dataclass(frozen=True)
class Ranks:
    """Rank of a process in the tensor-parallel group of a target."""

    rank: int
    """Rank of the process in the group; 0 is the leader."""
    count: int
    """Number of ranks on all machines."""
    local: int
    """Rank of the process among the processes on this machine, and index of the process's device."""
    local_count: int
    """Number of ranks on this machine."""

    @property
    def leads(self) -> bool:
        """Whether this rank is the leader, which drafts, decides and displays."""
        return self.rank == 0

    def variables(self) -> dict[str, str]:
        """Environment variables of this rank, as torchrun sets them."""
        numbers = (self.rank, self.count, self.local, self.local_count)
        return dict(zip(VARIABLES, map(str, numbers), strict=True))


def in_group(environment: Mapping[str, str]) -> bool:
    """Whether the environment has torchrun's variables, which means that this process is one of several."""
    return all(name in environment for name in VARIABLES)


def group_rank(environment: Mapping[str, str]) -> Ranks:
    """Rank of this process from torchrun's variables; raises ConfigError for a value that is not a number."""
    return Ranks(*(_number(name, environment[name]) for name in VARIABLES))


def ranks_of(count: int, environment: Mapping[str, str]) -> Ranks:
    """Rank of this process in a group of `count` processes.

    Raises:
        ConfigError: torchrun's variables are missing, or WORLD_SIZE is not `count`.
    """
    if not in_group(environment):
        raise ConfigError(
            f"tensor_parallel is {count}, but only one process was started; start the program by torchrun "
            f"--nproc-per-node {count}, or by dynatui --tensor-parallel {count}"
        )
    ranks = group_rank(environment)
    if ranks.count != count:
        raise ConfigError(
            f"--tensor-parallel is {count}, but WORLD_SIZE says that {ranks.count} processes were started; give both "
            "the same number"
        )
    return ranks


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{name} is {quoted(text)}, which is not a number; let torchrun set it")
    return int(text)
