"""How long torch's idle CPU threads spin before they sleep.

By default, GNU's OpenMP, which torch uses on Linux, lets a thread spin for about 5 ms after each product. On a busy
machine, spinning threads take processor time from the threads that compute, and the program starts much more slowly.
OpenMP reads `GOMP_SPINCOUNT` when torch is loaded, so the variable must be set before. This module imports no torch.
"""

import os

VARIABLE = "GOMP_SPINCOUNT"
"""Environment variable: how many times an idle thread looks for new work before it sleeps."""
SPIN_COUNT = 10_000
"""About 0.2 ms: longer than the pauses within a forward pass, and shorter than another process's time slice."""


def spin_briefly() -> None:
    """Sets the variable for this process and its children, unless the user has decided how threads wait."""
    if VARIABLE not in os.environ and "OMP_WAIT_POLICY" not in os.environ:
        os.environ[VARIABLE] = str(SPIN_COUNT)


def waiting_words() -> str:
    name = VARIABLE if VARIABLE in os.environ else "OMP_WAIT_POLICY"
    given = f"{name}={os.environ[name]}" if name in os.environ else f"{VARIABLE} is not set"
    return f"idle CPU threads of torch spin before they sleep: {given}"
