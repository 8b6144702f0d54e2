"""The package exports the names that scripts import, and loads each on first use; a run of the embedded pair imports
only the modules it needs, so that it starts soon after torch is loaded.
"""

import os
import subprocess
import sys
import time
from math import inf

import pytest

import decoder


@pytest.mark.parametrize("name", decoder.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(decoder, name).__name__ == name


def test_there_is_nothing_else() -> None:
    with pytest.raises(AttributeError, match="module 'decoder' has no attribute 'warp'"):
        decoder.warp  # noqa: B018 - the access is the test


def test_parameters_steering_and_bounds_are_had_without_torch() -> None:
    light = "from decoder import DecoderError, DynaTree, RunConfig, Stage, Steering, bounds; import sys"
    subprocess.run([sys.executable, "-c", f"{light}; assert 'torch' not in sys.modules"], check=True)


ROUND = """
from decoder import RunConfig, decode, load_pair
from decoder.events import Round
events = decode(load_pair(device="cpu"), "It was", RunConfig(("dynatree",), 8))
next(event for event in events if isinstance(event, Round))
"""
BAR = 1.8
"""Largest ratio of the time until the first round of the embedded pair to the time of importing torch alone."""
PAIRS = 2


def imported(*command: str) -> set[str]:
    """All modules that a Python command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True, env=os.environ
    )
    lines = [line.rsplit("|", 1) for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {name.strip() for _, name in lines}


def of(package: str, modules: set[str]) -> list[str]:
    return sorted(name for name in modules if f"{name}.".startswith(f"{package}."))


UNUSED = (
    *("transformers", "huggingface_hub", "torch._dynamo", "torch._inductor"),
    *("decoder.session.cuda_graph", "decoder.forward.static"),
)
"""Packages that a run from a folder on a CPU does not need."""


@pytest.fixture(scope="module")
def modules() -> set[str]:
    """Modules imported by a whole run on the command line."""
    arguments = "--json --device cpu --methods dynatree,ar --max-new-tokens 8 --prompt It"
    return imported("-m", "dynatui", *arguments.split())


def test_a_run_of_the_embedded_pair_imports_neither_transformers_nor_the_hub_nor_a_compiler_nor_graphs(
    modules: set[str],
) -> None:
    assert of("torch", modules)
    assert of("decoder.session", modules)
    for unused in UNUSED:
        assert of(unused, modules) == []


def seconds(script: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", script], check=True)
    return time.perf_counter() - start


@pytest.mark.wall_time
def test_the_first_round_comes_soon_after_torch_s_import_alone_would_end() -> None:
    """Both are timed in turn, again if the ratio is too large, because a busy machine slows both."""
    shares: list[float] = []
    while len(shares) < PAIRS and min(shares, default=inf) > BAR:
        shares.append(seconds(ROUND) / seconds("import torch"))
    assert min(shares) <= BAR, shares
