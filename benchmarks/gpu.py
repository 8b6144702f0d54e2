"""The first 45 minutes on a GPU: tests, speed and where the time goes, step by step.

    python benchmarks/gpu.py --output DIR

runs what is not done yet, each step in a process of its own and no longer than its limit, and keeps what it said and
measured in DIR, one folder a step. The same command goes on where it was stopped; steps that failed are tried again
after all others. Needs torch with CUDA, transformers and a few small packages, but neither the screen's nor an
installed dynatui. Ends with 0 when all steps are done.
"""

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "jaxtyping", "msgspec", "typer", "pytest")
MINUTES = 45
GRACE_S = 20.0
"""Of a step's limit, for it to tell what it has measured by then."""
FOLDER = "{folder}"
"""In a command, where the step leaves files."""
STATUS, OUTPUT = "status.json", "output.txt"
State = Literal["done", "failed", "timed out"]


@dataclass(frozen=True)
class Step:
    """Something to find out."""

    name: str
    about: str
    command: tuple[str, ...]
    """Arguments of Python."""
    limit_s: float
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """How a step ended."""

    state: State
    exit_code: int | None
    """None: it was killed."""
    seconds: float
    began_at: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


MACHINE = """
import subprocess, sys, torch, transformers
print(sys.version, "torch", torch.__version__, "transformers", transformers.__version__)
print("CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version())
print(torch.cuda.get_device_properties(0), flush=True)
sys.exit(subprocess.call(["nvidia-smi"]))
"""


def _tests(*selected: str) -> tuple[str, ...]:
    """The tests that need a GPU; the project's own options of pytest ask for plugins that these do without."""
    options = ("-m", "pytest", "-o", "addopts=", "-W", "ignore:Unknown config option", "-q", "-m", "gpu")
    return (*options, *selected, "--durations=10", "tests/decoder/session/cuda_graph")


def _rounds(shapes: str, dtype: str, context: str, trees: str, *others: str) -> tuple[str, ...]:
    """Rounds of random weights."""
    measured = ("--shapes", shapes, "--dtype", dtype, "--context", context, "--trees", trees, "--repeats", "3")
    return _bench(*measured, *others)


def _bench(*options: str) -> tuple[str, ...]:
    return ("-m", "dynatui", "bench", "speed", "--device", "cuda", *options, "--json", f"{FOLDER}/result.jsonl")


def _embedded(dtype: str) -> tuple[str, ...]:
    book = ("--prompt-file", "dynatui/prompts/1-lighthouse.txt", "--max-new-tokens", "256")
    return _bench("--dtype", dtype, *book, "--no-baselines", "--repeats", "2")


PYTHIA = "pythia-2.8b:pythia-70m"
CUDNN = "TORCH_CUDNN_SDPA_DEPRIORITIZED"
STEPS = (
    Step("machine", "what this is", ("-c", MACHINE), 60),
    Step("waits", "graphs wait nowhere", _tests("-x", "-k", "hidden or captured_while or waits"), 180),
    Step("tests", "graphs compute what plain calls do", _tests("--maxfail=15", "-k", "not compiled"), 420),
    Step("shapes", "rounds of Pythia 2.8B", _rounds(PYTHIA, "float16", "256", "1x2,4x16,8x64"), 280),
    Step(
        "profile",
        "kernels, graph nodes and gaps of 20 rounds of 8x64",
        ("benchmarks/kernels.py", "--shapes", PYTHIA, "--dtype", "float16", "--json", f"{FOLDER}/kernels.json"),
        160,
    ),
    Step(
        "cudnn", "the same with cuDNN's attention first", _rounds(PYTHIA, "float16", "256", "8x64"), 160, {CUDNN: "0"}
    ),
    Step("cudnn-last", "and with cuDNN's last", _rounds(PYTHIA, "float16", "256", "8x64"), 160, {CUDNN: "1"}),
    Step("context", "how rounds grow with the text", _rounds(PYTHIA, "float16", "256,1024,1900", "8x64"), 240),
    Step("embedded-bf16", "the embedded pair: refused, and why?", _embedded("bfloat16"), 120),
    Step("embedded-f32", "the same in float32", _embedded("float32"), 120),
    Step("llama", "rounds of Llama 8B", _rounds("llama-3.1-8b:llama-3.2-1b", "bfloat16", "256", "2x4,4x16"), 280),
    Step("compile", "torch.compile on 8x64", _rounds(PYTHIA, "float16", "256", "8x64", "--compile"), 480),
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


def status(step: Step, output: Path) -> Status | None:
    """How a step ended when it last ran; None: it never did, or was stopped with this program."""
    try:
        found = json.loads((output / step.name / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Status(**found | {"command": tuple(found["command"])})


def run(step: Step, output: Path, say: Callable[[str], object], limit_s: float) -> Status:
    """Runs a step and keeps all that came of it, at once: a folder of its name is whole or is not there."""
    work, kept = output / f".{step.name}", output / step.name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    say(f"{step.name}: {step.about}, at most {limit_s:.0f} s")
    found = _ended(step, work, limit_s)
    (work / STATUS).write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(kept, ignore_errors=True)
    work.rename(kept)
    code = "" if found.exit_code is None else f", exit code {found.exit_code}"
    say(f"{step.name}: {found.state} after {found.seconds:.0f} s{code}; see {kept / OUTPUT}")
    return found


def _ended(step: Step, work: Path, limit_s: float) -> Status:
    command = tuple(argument.replace(FOLDER, str(work.resolve())) for argument in step.command)
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    given = {"DYNATUI_CONFIG": os.devnull, "PYTHONUNBUFFERED": "1", "PYTHONPATH": paths, **step.environment}
    began, began_at = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with (
        (work / OUTPUT).open("wb") as said,
        subprocess.Popen(  # noqa: S603 - a step of ours
            [sys.executable, *command],
            cwd=ROOT,
            env=os.environ | given,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            code, in_time = _waited(process, limit_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whoever is left of it
    state: State = "timed out" if not in_time else "failed" if code else "done"
    return Status(state, code, round(time.monotonic() - began, 1), began_at, step.command, dict(step.environment))


def _waited(process: "subprocess.Popen[bytes]", limit_s: float) -> tuple[int | None, bool]:
    """The exit code, and whether it came in time; interrupted before the limit, a step may still tell what it knows."""
    grace_s = min(GRACE_S, limit_s / 4)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(limit_s - grace_s), True
    os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(grace_s), False
    return None, False


def pending(steps: Sequence[Step], output: Path) -> list[Step]:
    """Steps that are not done: first those that never ran, then those that ended otherwise."""
    found = [(step, status(step, output)) for step in steps]
    never = [step for step, ended in found if ended is None]
    return [*never, *(step for step, ended in found if ended is not None and ended.state != "done")]


def run_all(
    steps: Sequence[Step],
    output: Path,
    minutes: float,
    say: Callable[[str], object],
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Runs steps, in their order, as far as their limits fit into the time; returns whether all are done."""
    ends, left = clock() + 60 * minutes, list(steps)
    while left and clock() + left[0].limit_s <= ends:
        step = left.pop(0)
        run(step, output, say, step.limit_s)
    if left:
        say(f"no time for {', '.join(step.name for step in left)}; run the same command again")
    return not pending(steps, output)


def listing(steps: Sequence[Step], output: Path) -> list[str]:
    """One line a step, with its state and limit."""
    found = [(step, status(step, output)) for step in steps]
    states = [(step, ended.state if ended else "not run", ended.seconds if ended else 0) for step, ended in found]
    return [
        f"{step.name:<14} {state:<10} {seconds:>4.0f} of {step.limit_s:>3.0f} s  {step.about}"
        for step, state, seconds in states
    ]


def main(arguments: Sequence[str] | None = None, steps: Sequence[Step] = STEPS) -> int:
    """Runs, or lists; 0 when all that was asked for is done, 1 when not, 2 when it cannot begin."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for results, kept from start to start")
    parser.add_argument("--list", action="store_true", help="show all steps and their state, and run none")
    parser.add_argument("--only", metavar="NAME", action="append", help="run this step, whatever its state")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="begin no step that might end later than that")
    wanted = parser.parse_args(arguments)
    if wanted.list:
        say("\n".join(listing(steps, wanted.output)))
        return 0
    if lack := missing():
        say(lack)
        return 2
    names = [step.name for step in steps]
    if unknown := [name for name in wanted.only or () if name not in names]:
        say(f"gpu.py: there is no step {', '.join(unknown)}; choose from {', '.join(names)}")
        return 2
    chosen = [step for step in steps if step.name in (wanted.only or names)]
    todo = chosen if wanted.only else pending(chosen, wanted.output)
    return 0 if run_all(todo, wanted.output, wanted.minutes, say) else 1


def say(line: str) -> None:
    """To whoever started this."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
