"""Dry runs: the commands of the GPU steps, on the fake CUDA device of the tests and with small models.

A dry run shows whether a step works from its options to its files of results, and measures nothing. Its steps have
names and commands of their own, so their results never count as results of the steps on a GPU.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from benchmarks.steps import Step

PREFIX = "dry-run."
ON_FAKE_DEVICE = ("-m", "tests.fake_cuda.run")
NEOX, LLAMA = (f"tests/fake_cuda/small-{family}.json" for family in ("neox", "llama"))
SMALLER: Mapping[str, Mapping[str, str]] = {
    "--shapes": {"pythia-2.8b:pythia-70m": f"{NEOX}:{NEOX}", "llama-3.1-8b:llama-3.2-1b": f"{LLAMA}:{LLAMA}"},
    "--context": {"256": "16", "256,1024,1900": "16,24,32", "256,1900": "16,32", "1024,4096,16384": "24,32,64"},
    "--repeats": {"2": "1", "3": "1"},
    "--max-new-tokens": {"256": "8"},
    "--tokens": {"1900": "72"},
}
"""Option -> value on a GPU -> value in a dry run."""
FEWER_TESTS = ("pytest", "-p", "tests.fake_cuda.few_cases")
LIMIT_S = 3600.0
"""Time limit of each step, since a CPU that is busy with other work may be slow."""


def dry(step: Step) -> Step:
    """The step on the fake device."""
    words = [SMALLER.get(option, {}).get(value, value) for option, value in pairwise(("", *step.command))]
    if "pytest" in words:
        place = words.index("pytest")
        words[place : place + 1] = FEWER_TESTS
    return replace(
        step,
        name=f"{PREFIX}{step.name}",
        about=f"{step.about} (dry run: no measurement)",
        command=(*ON_FAKE_DEVICE, *words),
        limit_s=LIMIT_S,
        environment={**step.environment, "OMP_NUM_THREADS": "1"},
    )
