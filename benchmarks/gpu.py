"""Tests and measurements on a GPU, step by step: correctness, speed, and where the time goes.

    python benchmarks/gpu.py --output DIR
    python benchmarks/gpu.py --output DIR --list
    python benchmarks/gpu.py --output DIR --dry-run

The first command runs steps that are not done yet, as many as fit into `--minutes`; each step runs in a process of its
own with a time limit. The second command lists all steps. The third command runs the same steps without a GPU, with
small models on the fake CUDA device of the tests: it shows that every step works, and measures nothing. Its steps have
names of their own, so a run on a GPU ignores their results.

After each step all results are written to DIR/results.tar.gz: status, output and files of each step. The same command
resumes an interrupted run; failed steps are repeated after all other steps. The exit code is 0 if all steps are done, 1
if some steps are not done, and 2 if the program cannot begin; in the last case the reason is printed. The program needs
torch with CUDA, transformers and a few small packages, but neither the screen's packages nor an installed dynatui.

On a machine that is available for ten minutes at a time and keeps no files:

1. Copy this checkout to the machine. Also copy wheels of the packages in `NEEDED` that the machine lacks; the program's
   first line of output names these packages.
2. Run `python benchmarks/gpu.py --output OUT`, where OUT is a folder whose files are copied back.
3. Keep OUT/results.tar.gz. The next time, copy results.tar.gz to the machine too (the same machine or another one), and
   run `python benchmarks/gpu.py --output OUT --earlier results.tar.gz`. Repeat this until the exit code is 0.

Each archive contains all earlier results, so only the last one has to be kept; `--earlier` also accepts several files
or folders. By default a run takes at most nine minutes, which leaves one minute for start-up and copying. If a run is
killed, the last complete archive remains, no process of the run survives, and OUT/running has the output of the step
that was running. OUT contains only results.tar.gz, a hidden file while results.tar.gz is being written, and two or
three files of the running step in OUT/running; results.tar.gz stays below 16 MiB.
"""

import argparse
import importlib.util
import math
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.archive import Results, latest_results
from benchmarks.dry_run import dry
from benchmarks.steps import FOLDER, Step, listing, pending, run_all
from decoder.errors import DecoderError

OF_TESTS = ("pytest", "hypothesis")
NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "jaxtyping", "msgspec", "typer", *OF_TESTS)
MINUTES = 9.0
MACHINE = """
import subprocess, sys, torch, transformers
print(sys.version, "torch", torch.__version__, "transformers", transformers.__version__)
print("CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())
print(torch.cuda.get_device_properties(0), flush=True)
sys.exit(subprocess.call(["nvidia-smi"]))
"""
PYTHIA, LLAMA = "pythia-2.8b:pythia-70m", "llama-3.1-8b:llama-3.2-1b"
LARGEST = PYTHIA, "float16", "256", "8x64"
SAMPLINGS = ("--sampling", "0", "1", "1,50,.95")
TRUNCATED = ("--temperature", "1", "--top-k", "50", "--top-p", "0.95")
TARGET = ("--target", "decoder/pretrained/books-16m")
HEAD = (*TARGET, "--draft", "decoder/pretrained/books-eagle3")
LOOKUP = (*TARGET, "--draft", "lookup")
CUDNN = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "0"}
GRAPHS = "tests/decoder/session/cuda_graph/test_graphs.py"
SAMPLED_GRAPHS = "tests/decoder/session/cuda_graph/test_graph_sampling.py"
SAMPLING = (
    "tests/decoder/sampling/test_on_device.py",
    "tests/decoder/verify/lossless/test_batched.py",
    "tests/decoder/session/test_independent.py",
)
PLAIN = "plain_calls or plain_functions"
WAITS = "hidden or captured_while or waits"


def _tests(name: str, about: str, limit_s: float, selected: str, *files: str) -> Step:
    """Step that runs tests from `files`: those that need a GPU and match the pytest expression `selected`.

    No pytest plugin is loaded, since the tests need no plugin. Warnings are no errors, since nobody knows which
    harmless ones the libraries of another machine give.
    """
    warned = ("-W", "default", "-W", "ignore:Unknown config option")
    options = ("-m", "pytest", "-o", "addopts=", *warned, "-q", "-m", "gpu")
    command = (*options, "--maxfail=15", "--durations=10", "-k", selected, *files)
    return Step(name, about, command, limit_s, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def _rounds(shapes: str, dtype: str, context: str, trees: str, *options: str) -> tuple[str, ...]:
    """Command that measures rounds with random weights, for each text length in `context` and each tree in `trees`."""
    measured = ("--shapes", shapes, "--dtype", dtype, "--context", context, "--trees", trees, "--repeats", "3")
    return _bench(*measured, *options)


def _bench(*options: str) -> tuple[str, ...]:
    return ("-m", "dynatui", "bench", "speed", "--device", "cuda", *options, "--json", f"{FOLDER}/result.jsonl")


def _embedded(dtype: str, *options: str) -> tuple[str, ...]:
    book = ("--prompt-file", "dynatui/prompts/4-lighthouse.txt", "--max-new-tokens", "256")
    return _bench("--dtype", dtype, *book, "--no-baselines", "--repeats", "2", *options)


def _program(name: str, *options: str) -> tuple[str, ...]:
    shapes = ("--shapes", PYTHIA, "--dtype", "float16")
    return (f"benchmarks/{name}.py", *shapes, *options, "--json", f"{FOLDER}/result.json")


STEPS = (
    Step("machine", "versions and GPU of this machine", ("-c", MACHINE), 60),
    _tests("waits", "tests: CUDA graphs never make the host wait", 120, WAITS, GRAPHS, SAMPLED_GRAPHS),
    _tests("calls", "tests: CUDA graphs and kernels compute the same as plain calls", 240, PLAIN, GRAPHS),
    Step(
        "shapes",
        "rounds after texts of three lengths",
        _rounds(PYTHIA, "float16", "256,1024,1900", "1x2,4x16,8x64"),
        260,
    ),
    Step("profile", "kernels, graph nodes and gaps in rounds with 8x64 trees", _program("kernels", *SAMPLINGS), 160),
    Step(
        "plain",
        "rounds by plain operators, without Triton kernels",
        _rounds(PYTHIA, "float16", "256,1900", "4x16,8x64", "--no-kernels"),
        180,
    ),
    Step("bfloat16", "rounds in bfloat16", _rounds(PYTHIA, "bfloat16", "256", "4x16,8x64"), 150),
    Step("truncated", "rounds at temperature 1 with top-k and top-p", _rounds(*LARGEST, *TRUNCATED), 140),
    Step("llama", "rounds of Llama 8B", _rounds(LLAMA, "bfloat16", "256", "4x16,8x64"), 200),
    Step("auto", "method auto: capture times of its graphs, and speed", _program("captures", "--tokens", "1900"), 240),
    Step(
        "growth",
        "rounds of Llama 8B after texts of up to 16,384 tokens, and memory",
        _rounds(LLAMA, "bfloat16", "1024,4096,16384", "4x16,8x64"),
        300,
    ),
    Step(
        "llama-truncated",
        "rounds of Llama 8B at temperature 1 with top-k and top-p",
        _rounds(LLAMA, "bfloat16", "256", "4x16,8x64", *TRUNCATED),
        200,
    ),
    _tests(
        "rounds",
        "tests: CUDA graphs and the host compute the same rounds",
        240,
        f"not ({WAITS} or {PLAIN} or compiled)",
        GRAPHS,
    ),
    _tests(
        "sampling",
        "tests: CUDA graphs and the host compute the same sampled rounds",
        240,
        f"not ({WAITS})",
        SAMPLED_GRAPHS,
        *SAMPLING,
    ),
    Step("embedded-bf16", "the embedded pair in bfloat16", _embedded("bfloat16"), 110),
    Step("embedded-f32", "the embedded pair in float32", _embedded("float32"), 110),
    Step(
        "embedded-sampled", "the embedded pair in float32, with sampled tokens", _embedded("float32", *TRUNCATED), 120
    ),
    Step("embedded-head", "the embedded target in float32 with its EAGLE-3 head", _embedded("float32", *HEAD), 110),
    Step("embedded-lookup", "the embedded target in float32 with lookups", _embedded("float32", *LOOKUP), 110),
    Step("cudnn", "rounds in which torch prefers cuDNN's attention", _rounds(*LARGEST), 150, CUDNN),
    _tests("compiled", "tests: CUDA graphs also capture compiled passes", 200, "compiled", GRAPHS),
    Step("compile", "torch.compile on 8x64", _rounds(*LARGEST, "--compile"), 420),
)


def missing(needed: Sequence[str] = NEEDED) -> str:
    """Line that names missing packages and says how to install them; empty if all packages are installed."""
    absent = " ".join(name for name in needed if importlib.util.find_spec(name) is None)
    if not absent:
        return ""
    return (
        f"gpu.py: not installed: {absent}; on a machine that has a network, run pip download -d wheels {absent}, then "
        f"copy the folder wheels to this machine and run pip install --no-index -f wheels {absent}"
    )


def main(command_line: Sequence[str] | None = None, steps: Sequence[Step] = STEPS) -> int:
    """Runs or lists the steps; returns 0 if all chosen steps are done, 1 if not, 2 if the program cannot begin."""
    arguments = _options().parse_args(command_line)
    if arguments.dry_run:
        steps = [dry(step) for step in steps]
    try:
        results = latest_results([*arguments.earlier, *([arguments.output] if arguments.output.exists() else [])])
        if arguments.list:
            say(listing(steps, results))
            return 0
        return _run(steps, results, arguments)
    except DecoderError as error:
        say(f"gpu.py: {error}")
        return 2


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the archive of results")
    parser.add_argument(
        "--earlier", type=Path, nargs="+", default=[], help="archives of earlier runs, or their folders"
    )
    parser.add_argument("--list", action="store_true", help="list all steps and their states without running any")
    parser.add_argument(
        "--dry-run", action="store_true", help="run small models on a fake CUDA device, which measures nothing"
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="run this step even if it is done")
    parser.add_argument(
        "--minutes",
        type=float,
        help=f"time limit of this run, in minutes (default: {MINUTES:g}, or none for a dry run)",
    )
    return parser


def _run(steps: Sequence[Step], results: Results, arguments: argparse.Namespace) -> int:
    if lack := missing():
        say(lack)
        return 2
    names = [step.name for step in steps]
    if unknown := [name for name in arguments.only or () if name not in names]:
        say(f"gpu.py: there is no step {', '.join(unknown)}; choose from {', '.join(names)}")
        return 2
    chosen = [step for step in steps if step.name in (arguments.only or names)]
    todo = chosen if arguments.only else pending(chosen, results)
    minutes = arguments.minutes or (math.inf if arguments.dry_run else MINUTES)
    results = run_all(todo, arguments.output, results, minutes, say)
    say(listing(steps, results))
    return 1 if pending(chosen, results) else 0


def say(line: str) -> None:
    """Prints a progress line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
