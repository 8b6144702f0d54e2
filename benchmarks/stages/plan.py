"""The plan of a session on a GPU: its stages, the most valuable first, and how large their measurements are.

This module imports neither torch nor the stages' work, so that a missing package stops no other stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass

HERE = "benchmarks.stages"
EMBEDDED = "decoder/pretrained/books-16m"
NEOX, LLAMA = (f"tests/fake_cuda/small-{family}.json" for family in ("neox", "llama"))


@dataclass(frozen=True)
class Stage:
    name: str
    about: str
    work: str
    """Function that does it, as MODULE:NAME; it takes a `worker.Work`."""
    limit_s: float
    """The stage is killed after this time."""
    least_s: float
    """The stage is not begun if less time is left."""
    packages: Sequence[str]
    """Packages that it needs, by their names in pyproject.toml."""


@dataclass(frozen=True)
class Setting:
    program: tuple[str, ...]
    """Arguments of the interpreter before those of a program that runs on the device."""
    test_options: tuple[str, ...]
    """Options of pytest."""
    launches: str
    """Context, as MODULE:NAME, in which Triton kernels can be launched."""

    tokens: int
    """New tokens of each decoded text."""
    prompts: int
    inflated: str
    """Number of parameters of the large target that writes the embedded pair's texts."""
    pythia: tuple[str, str]
    llama: tuple[str, str]
    contexts: tuple[int, ...]
    long_contexts: tuple[int, ...]
    rounds: int
    """Rounds of each turn."""
    auto_tokens: int
    """New tokens of the texts of method `auto`."""
    app_s: float
    """Seconds within which the app must decode."""
    watched_s: float
    """Seconds before each picture of the app."""


REAL = Setting(
    program=(),
    test_options=(),
    launches="contextlib:nullcontext",
    tokens=128,
    prompts=3,
    inflated="2.8B",
    pythia=("pythia-2.8b", "pythia-70m"),
    llama=("llama-3.1-8b", "llama-3.2-1b"),
    contexts=(256, 1900),
    long_contexts=(256, 4096, 16384),
    rounds=96,
    auto_tokens=1800,
    app_s=70.0,
    watched_s=4.0,
)
DRY = Setting(
    program=("-m", "tests.fake_cuda.run"),
    test_options=("-p", "tests.fake_cuda.few_cases"),
    launches="tests.fake_cuda.driver:without_values",
    tokens=5,
    prompts=1,
    inflated="24M",
    pythia=(NEOX, NEOX),
    llama=(LLAMA, LLAMA),
    contexts=(16, 32),
    long_contexts=(24, 64),
    rounds=6,
    auto_tokens=24,
    app_s=300.0,
    watched_s=1.0,
)
"""The fake CUDA device of the tests, whose work the CPU does."""
ENGINE = ("torch", "transformers", "safetensors", "huggingface-hub", "numpy", "msgspec", "jaxtyping", "platformdirs")
SCREEN = (*ENGINE, "textual", "rich", "click", "loky", "pyte")
TESTS = (*ENGINE, "pytest", "hypothesis")
STAGES = (
    Stage("machine", "versions and memory", f"{HERE}.machine:machine", 40, 5, ENGINE),
    Stage("embedded", "texts of the embedded pair, against ar and the CPU", f"{HERE}.texts:embedded", 150, 30, ENGINE),
    Stage("race", "real text at the cost of 2.8 billion weights", f"{HERE}.texts:large", 150, 60, ENGINE),
    Stage("app", "the app in a terminal", f"{HERE}.app:app", 100, 60, SCREEN),
    Stage("attention", "attention by parts, warps and pipeline stages", f"{HERE}.attention:attention", 90, 20, ENGINE),
    Stage("pythia", "rounds of Pythia 2.8B after short and long texts", f"{HERE}.rounds:pythia", 150, 60, ENGINE),
    Stage("kernels", "kernels of rounds of Pythia", f"{HERE}.rounds:by_kernel", 60, 20, ENGINE),
    Stage("truncated", "rounds of Pythia at temperature 1, top-k, top-p", f"{HERE}.rounds:truncated", 90, 20, ENGINE),
    Stage("llama", "rounds of Llama 8B after up to 16,384 tokens", f"{HERE}.rounds:llama", 180, 80, ENGINE),
    Stage("llama-sampled", "rounds of Llama 8B with sampled texts", f"{HERE}.rounds:llama_sampled", 90, 30, ENGINE),
    Stage("waits", "tests: graphs never make the host wait", f"{HERE}.gpu_tests:waits", 120, 40, TESTS),
    Stage("calls", "tests: graphs and kernels against plain calls", f"{HERE}.gpu_tests:calls", 180, 60, TESTS),
    Stage("auto", "captures of method auto, and its speed", f"{HERE}.rounds:auto", 180, 90, ENGINE),
    Stage("plain", "rounds of Pythia by plain operators", f"{HERE}.rounds:plain", 120, 60, ENGINE),
    Stage("bfloat16", "rounds of Pythia in bfloat16", f"{HERE}.rounds:bfloat16", 150, 60, ENGINE),
    Stage("rounds", "tests: graphs and the host write the same rounds", f"{HERE}.gpu_tests:rounds", 240, 60, TESTS),
    Stage("sampled", "tests: graphs and the host sample the same rounds", f"{HERE}.gpu_tests:sampled", 240, 60, TESTS),
    Stage("embedded-bfloat16", "texts of the embedded pair in bfloat16", f"{HERE}.texts:bfloat16", 90, 30, ENGINE),
    Stage("head", "texts with the embedded EAGLE-3 head", f"{HERE}.texts:head", 90, 30, ENGINE),
    Stage("lookup", "texts with suffix lookup", f"{HERE}.texts:lookup", 90, 30, ENGINE),
    Stage("cudnn", "rounds in which torch prefers cuDNN's attention", f"{HERE}.rounds:cudnn", 120, 60, ENGINE),
    Stage("compiled", "tests: graphs capture compiled passes", f"{HERE}.gpu_tests:compiled", 200, 60, TESTS),
    Stage("compile", "rounds of Pythia by torch.compile", f"{HERE}.rounds:compiled", 420, 120, ENGINE),
)
