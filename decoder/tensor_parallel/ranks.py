"""Which of the processes that share a target this one is, as torchrun's variables tell. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from decoder.errors import ConfigError, LostRankError, quoted

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""What torchrun tells each process; and where they meet, which torch reads by itself."""

LIFELINE = "TENSOR_PARALLEL_LIFELINE"
"""Variable with the number of a pipe that is closed when the process that started the ranks ends, if it has one."""
LOST = LostRankError.exit_code
"""Exit code of a rank that has lost another: a follower whose leader is gone without a word, or a leader whose follower
is."""


@dataclass(frozen=True)
class Ranks:
    """One process among those that share a target."""

    rank: int
    """0 leads."""
    count: int
    """Number of ranks on all machines."""
    local: int
    """Its number on this machine, and that of its device."""
    local_count: int
    """Processes on this machine."""

    @property
    def leads(self) -> bool:
        """Whether this one drafts, decides and shows."""
        return self.rank == 0

    def variables(self) -> dict[str, str]:
        """Environment variables of this rank, as torchrun sets them."""
        told = (self.rank, self.count, self.local, self.local_count)
        return dict(zip(VARIABLES, map(str, told), strict=True))


def told(environment: Mapping[str, str]) -> bool:
    """Whether a process was started as one of several."""
    return all(name in environment for name in VARIABLES)


def started(environment: Mapping[str, str]) -> Ranks:
    """This process among all that were started with it, as it was told; raises ConfigError for what are no numbers."""
    return Ranks(*(_number(name, environment[name]) for name in VARIABLES))


def ranks_of(asked: int, environment: Mapping[str, str]) -> Ranks:
    """This process among as many as were asked for.

    Raises:
        ConfigError: The variables are missing, or speak of another number of processes.
    """
    if not told(environment):
        raise ConfigError(
            f"tensor_parallel is {asked}, and nobody has started so many processes; start the program by torchrun "
            f"--nproc-per-node {asked}, or by dynatui --tensor-parallel {asked}"
        )
    found = started(environment)
    if found.count != asked:
        raise ConfigError(
            f"--tensor-parallel is {asked}, and WORLD_SIZE says that {found.count} processes were started; give both "
            "the same number"
        )
    return found


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{name} is {quoted(text)}, which is no number; let torchrun set it")
    return int(text)
