"""All that is to be found out on a GPU: tests, speed, and where the time goes, step by step.

    python benchmarks/gpu.py --output DIR
    python benchmarks/gpu.py --output DIR --list

runs what is not done yet, each step in a process of its own and no longer than its limit, as far as that fits into
`--minutes`, and writes all that is known to DIR/results.tar.gz after each step: how it ended, what it said, what it
measured. The same command goes on where it was stopped. Steps that failed are tried again after all others. Ends with 0
when all are done, with 1 while some are not, and with 2, having run nothing, where it says what is in the way. Needs
torch with CUDA, transformers and a few small packages, but neither the screen's nor an installed dynatui.

On a machine that is lent for ten minutes at a time, and is bare each time:

1. Bring this checkout, and as wheels what such a machine lacks (`NEEDED`; the first line says what that is).
2. Run `python benchmarks/gpu.py --output OUT`, OUT being the folder whose files come back.
3. Keep OUT/results.tar.gz, bring it along, and run `python benchmarks/gpu.py --output OUT --earlier results.tar.gz`, on
   the same machine or on another one, until that ends with 0.

Each file holds all that the earlier ones held, so the last one is all there is to keep; `--earlier` takes several, or
folders of them, too. No run takes longer than nine minutes, which leaves one for the start and the way back. One that
is killed leaves the last whole file, nothing of it goes on, and in OUT/running stands what its last step had said.
DIR never holds more than results.tar.gz, one hidden file beside it while that is written, and a step's two or three in
DIR/running; results.tar.gz stays under 16 MiB.
"""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.archive import Results, known
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
CUDNN = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "0"}
GRAPHS = "tests/decoder/session/cuda_graph/test_graphs.py"
SAMPLED_GRAPHS = "tests/decoder/session/cuda_graph/test_graph_sampling.py"
SAMPLING = (
    "tests/decoder/sampling/test_on_device.py",
    "tests/decoder/verify/lossless/test_batched.py",
    "tests/decoder/session/test_independent.py",
)
WAITS = "hidden or captured_while or waits"


def _tests(name: str, about: str, limit_s: float, selected: str, *files: str) -> Step:
    """Tests that need a GPU, without pytest's plugins: they need none, and a plugin's warning would be an error."""
    options = ("-m", "pytest", "-o", "addopts=", "-W", "ignore:Unknown config option", "-q", "-m", "gpu")
    command = (*options, "--maxfail=15", "--durations=10", "-k", selected, *files)
    return Step(name, about, command, limit_s, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def _rounds(shapes: str, dtype: str, context: str, trees: str, *others: str) -> tuple[str, ...]:
    """Rounds of random weights, drawn on the device itself; one pair for all lengths and trees."""
    measured = ("--shapes", shapes, "--dtype", dtype, "--context", context, "--trees", trees, "--repeats", "3")
    return _bench(*measured, *others)


def _bench(*options: str) -> tuple[str, ...]:
    return ("-m", "dynatui", "bench", "speed", "--device", "cuda", *options, "--json", f"{FOLDER}/result.jsonl")


def _embedded(dtype: str, *others: str) -> tuple[str, ...]:
    book = ("--prompt-file", "dynatui/prompts/4-lighthouse.txt", "--max-new-tokens", "256")
    return _bench("--dtype", dtype, *book, "--no-baselines", "--repeats", "2", *others)


def _program(name: str, *options: str) -> tuple[str, ...]:
    shapes = ("--shapes", PYTHIA, "--dtype", "float16")
    return (f"benchmarks/{name}.py", *shapes, *options, "--json", f"{FOLDER}/result.json")


STEPS = (
    Step("machine", "what this is", ("-c", MACHINE), 60),
    _tests("waits", "graphs wait nowhere", 120, WAITS, GRAPHS, SAMPLED_GRAPHS),
    _tests("calls", "graphs compute what plain calls do", 240, "plain_calls", GRAPHS),
    Step("shapes", "rounds as a text grows", _rounds(PYTHIA, "float16", "256,1024,1900", "1x2,4x16,8x64"), 260),
    Step("profile", "kernels, graph nodes and gaps of rounds of 8x64", _program("kernels", *SAMPLINGS), 160),
    Step("truncated", "rounds at temperature 1 with top-k and top-p", _rounds(*LARGEST, *TRUNCATED), 140),
    Step("auto", "what its graphs take to capture, and its speed", _program("captures", "--tokens", "1900"), 240),
    Step("cudnn", "rounds with cuDNN's attention first", _rounds(*LARGEST), 150, CUDNN),
    Step("embedded-bf16", "the embedded pair: refused, and why?", _embedded("bfloat16"), 110),
    Step("embedded-f32", "the same in float32", _embedded("float32"), 110),
    Step("embedded-sampled", "and sampled", _embedded("float32", *TRUNCATED), 120),
    Step("llama", "rounds of Llama 8B", _rounds(LLAMA, "bfloat16", "256", "2x4,4x16"), 200),
    _tests("rounds", "rounds are those of the host", 240, f"not ({WAITS} or plain_calls or compiled)", GRAPHS),
    _tests("sampling", "so are sampled ones", 240, f"not ({WAITS})", SAMPLED_GRAPHS, *SAMPLING),
    _tests("compiled", "compiled passes are captured, too", 200, "compiled", GRAPHS),
    Step("compile", "torch.compile on 8x64", _rounds(*LARGEST, "--compile"), 420),
)


def missing(needed: Sequence[str] = NEEDED) -> str:
    """One line about packages that are not installed, and what to do; nothing where all are."""
    absent = " ".join(name for name in needed if importlib.util.find_spec(name) is None)
    if not absent:
        return ""
    return (
        f"gpu.py: not installed: {absent}; where there is a network, pip download -d wheels {absent}; "
        f"here, pip install --no-index -f wheels {absent}"
    )


def main(arguments: Sequence[str] | None = None, steps: Sequence[Step] = STEPS) -> int:
    """Runs, or lists; 0 when all that was asked for is done, 1 when not, 2 when it cannot begin."""
    wanted = _options().parse_args(arguments)
    try:
        results = known([*wanted.earlier, *([wanted.output] if wanted.output.exists() else [])])
        if wanted.list:
            say(listing(steps, results))
            return 0
        return _run(steps, results, wanted)
    except DecoderError as error:
        say(f"gpu.py: {error}")
        return 2


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the file of results")
    parser.add_argument("--earlier", type=Path, nargs="+", default=[], help="files of earlier runs, or their folders")
    parser.add_argument("--list", action="store_true", help="show all steps and their state, and run none")
    parser.add_argument("--only", metavar="NAME", action="append", help="run this step, whatever its state")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="end by then (default: %(default)g)")
    return parser


def _run(steps: Sequence[Step], results: Results, wanted: argparse.Namespace) -> int:
    if lack := missing():
        say(lack)
        return 2
    names = [step.name for step in steps]
    if unknown := [name for name in wanted.only or () if name not in names]:
        say(f"gpu.py: there is no step {', '.join(unknown)}; choose from {', '.join(names)}")
        return 2
    chosen = [step for step in steps if step.name in (wanted.only or names)]
    todo = chosen if wanted.only else pending(chosen, results)
    results = run_all(todo, wanted.output, results, wanted.minutes, say)
    say(listing(steps, results))
    return 1 if pending(chosen, results) else 0


def say(line: str) -> None:
    """To whoever started this."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
