"""Comparison of this checkout with another one: texts, figures, screen snapshots and speeds.

    git worktree add ../before COMMIT
    python benchmarks/commits.py same ../before
    python benchmarks/commits.py speed ../before --repeats 12

`same` decodes the same prompts in both checkouts. It compares every token of every method, every figure that does not
depend on time (log-probabilities up to rounding), the replay of the tests' recordings, and the tests' snapshots of the
screen. `speed` loads the embedded pair in one process of each checkout. The two processes decode in turns, prompt by
prompt and method by method, so that changes of the machine's load affect both processes alike. The ratio of their
speeds in tokens per second is printed. Even if two processes run the same code, their speeds differ by several percent,
and by another amount after each start, so a small difference can only be detected with many `--starts`. Both checkouts
run in this Python environment. The exit code is 1 if anything differs (`same`), or if a ratio's whole confidence
interval is outside the tolerance (`speed`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import IO, Any, cast

sys.path.append(str(Path(__file__).parents[1]))

from dynatui.lab.frame import estimate

HERE = Path(__file__).parents[1]
METHODS = "dynatree,auto,ar,linear,fixed,alg1,hf"
ADAPTS_TO_TIME = frozenset({"auto"})
"""Methods whose trees depend on measured times, so that only their texts can be compared."""
TIMES = (
    *("t", "started_at", "speedup", "tokens_per_second", "peak_bytes", "version"),
    *("stalled_rounds", "left_out_rounds", "speedup_low", "speedup_high", "speedup_reason"),
)
"""Names of figures that differ from run to run, in addition to all names that end in "_s"."""
RUNS = (
    ("--dtype", "float32"),
    ("--dtype", "float32", "--preset", "paper"),
    ("--dtype", "bfloat16"),
    ("--dtype", "bfloat16", "--exact"),
)
ROUNDING = 0.1
"""Largest accepted difference of log-probabilities; bfloat16 represents a logit of 16 to within 1/16."""
BAR = 0.03
MEASURED = ("dynatree", "auto", "ar", "linear")
WORKER = """
import sys
from decoder import RunConfig, decode, load_pair
from dynatui.prompts import embedded
dtype, tokens, temperature = sys.argv[1:]
loaded, prompts = load_pair(device="cpu", dtype=dtype), sorted(embedded())
print(len(prompts), flush=True)
for line in sys.stdin:
    method, prompt = line.split()
    config = RunConfig(methods=(method,), max_new_tokens=int(tokens), temperature=float(temperature))
    *_, summary = decode(loaded, prompts[int(prompt)], config)
    print(summary.methods[method].tokens_per_second, flush=True)
"""
"""Source of a worker process; it uses only functions that every version of the library has."""


def run_dynatui(checkout: Path, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of dynatui from this checkout."""
    command = [sys.executable, "-m", "dynatui", *arguments]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "120"}
    process = subprocess.run(  # noqa: S603 - the program that is compared
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    return process.returncode, process.stdout, process.stderr


def without_times(value: Any) -> Any:
    """Decoded event without the fields that differ from run to run."""
    if isinstance(value, dict):
        return {
            name: None if name in ADAPTS_TO_TIME else without_times(inner)
            for name, inner in value.items()
            if name not in TIMES and not name.endswith("_s")
        }
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


def figures(recording: Path) -> dict[str, list[Any]]:
    """Values that must be equal in both checkouts, by name: the events of each method and round, and the texts.

    Events are grouped by method, since the order of events of different methods depends on time.
    """
    values: dict[str, list[Any]] = defaultdict(list)
    run = -1
    for line in recording.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        run += event["type"] == "run"
        method = event.get("method", "")
        if event["type"] == "round":
            values[f"run {run}, {method} text"] += event["committed"]
        if method not in ADAPTS_TO_TIME:
            name = " ".join(str(part) for part in (method, event["type"], event.get("round", "")) if part != "")
            values[f"run {run}, {name}"].append(without_times(event))
    return dict(values)


def differences(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [name for name in {**other, **mine} if not alike(mine.get(name), other.get(name))]


def alike(one: Any, two: Any) -> bool:
    """Whether two values are equal; log-probabilities may differ by rounding."""
    match one, two:
        case list(), list():
            return len(one) == len(two) and all(map(alike, one, two))
        case {"logprobs": [*mine], **rest}, {"logprobs": [*other], **others}:
            near = all(abs(first - second) <= ROUNDING for first, second in zip(mine, other, strict=False))
            return rest == others and len(mine) == len(other) and near
        case _:
            return bool(one == two)


def decoded(other: Path, prompts: Sequence[str], tokens: int) -> Iterator[tuple[str, int, list[str]]]:
    """For each kind of run, yields the kind's name, the number of compared values, and the names of unequal values."""
    for options in RUNS:
        recordings = []
        with tempfile.TemporaryDirectory() as folder:
            for name, checkout in (("mine", HERE), ("other", other)):
                file = Path(folder) / f"{name}.jsonl"
                common = ["--headless", "--methods", METHODS, "--max-new-tokens", str(tokens), "--record", str(file)]
                code, _, errors = run_dynatui(checkout, [*common, *options, *prompts])
                if code:
                    raise SystemExit(f"dynatui in {checkout} ended with exit code {code}: {errors}")
                recordings.append(figures(file))
        yield " ".join(options), sum(map(len, recordings[0].values())), differences(*recordings)


def replayed(other: Path) -> Iterator[tuple[str, int, list[str]]]:
    """For each recording of the tests, compares what `dynatui replay` prints as text and as JSON.

    Yields the same kind of tuples as `decoded`.
    """
    for trace in sorted((HERE / "tests" / "traces").glob("*.jsonl")):
        for form in ("--headless", "--json"):
            mine, theirs = (run_dynatui(checkout, ["replay", str(trace), form]) for checkout in (HERE, other))
            lines = list(zip_longest(*("\n".join(map(str, output)).splitlines() for output in (mine, theirs))))
            differ = [f"line {number}" for number, (one, two) in enumerate(lines, 1) if one != two]
            yield f"replay {trace.name} {form}", len(lines), differ


def snapshots(other: Path) -> tuple[str, int, list[str]]:
    """Compares the tests' screen snapshots: returns "snapshots", the number of files, and names of differing files."""
    mine, theirs = (
        {file.name: file.read_bytes() for file in (checkout / "tests").rglob("*.svg")} for checkout in (HERE, other)
    )
    return "snapshots", len(mine), differences(mine, theirs)


class Worker:
    def __init__(self, checkout: Path, dtype: str, tokens: int, temperature: float) -> None:
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(checkout)}
        command = [sys.executable, "-c", WORKER, dtype, str(tokens), str(temperature)]
        self._process = subprocess.Popen(  # noqa: S603 - the program that is compared
            command, cwd=checkout, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._requests, self._answers = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        self.prompts = int(self._line())

    def tokens_per_second(self, method: str, prompt: int) -> float:
        """Speed of one method on one prompt, in tokens per second, without prefill."""
        self._requests.write(f"{method} {prompt}\n")
        self._requests.flush()
        return float(self._line())

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        if not (line := self._answers.readline()):
            raise SystemExit(f"a worker process ended with exit code {self._process.wait()}")
        return line


def ratios(mine: Worker, other: Worker, repeats: int) -> dict[str, list[list[float]]]:
    """Ratios of this checkout's speed to the other checkout's: for each method, a list of ratios per prompt."""
    ratios_of: dict[str, list[list[float]]] = {name: [[] for _ in range(mine.prompts)] for name in MEASURED}
    # The first repeat is a warm-up of both processes, so its ratios do not count.
    for repeat, prompt, method in product(range(repeats + 1), range(mine.prompts), MEASURED):
        order = (mine, other) if repeat % 2 else (other, mine)
        speeds = {worker: worker.tokens_per_second(method, prompt) for worker in order}
        if repeat:
            ratios_of[method][prompt].append(speeds[mine] / speeds[other])
    return ratios_of


def show_same(other: Path, prompts: Sequence[str], tokens: int) -> int:
    """Prints the results of the command `same`; returns 1 if anything differs."""
    worst = 0
    for name, count, differ in (*replayed(other), snapshots(other), *decoded(other, prompts, tokens)):
        names = ", ".join(differ[:8]) + (", ..." if len(differ) > 8 else "")
        sys.stdout.write(
            f"{name}: {count} compared, {f'{len(differ)} differ: {names}' if differ else 'all the same'}\n"
        )
        worst |= bool(differ)
    return int(worst)


def show_speed(other: Path, dtype: str, tokens: int, temperature: float, repeats: int, starts: int) -> int:
    """Prints each method's ratio of speeds; returns 1 if a whole confidence interval is outside the tolerance."""
    groups: dict[str, list[list[float]]] = {name: [] for name in MEASURED}
    for start in range(starts):
        # In measurements of two equal processes, the process that started first was a few percent slower. So the order
        # alternates.
        places = (HERE, other) if start % 2 == 0 else (other, HERE)
        workers = [Worker(place, dtype, tokens, temperature) for place in places][:: 1 if start % 2 == 0 else -1]
        for name, by_prompt in ratios(workers[0], workers[1], repeats).items():
            groups[name] += [list(chain.from_iterable(by_prompt))] if starts > 1 else by_prompt
        for worker in workers:
            worker.close()
    outside = False
    for name, measured in ((name, estimate(ratios_of_prompts, seed=0)) for name, ratios_of_prompts in groups.items()):
        if measured is None or measured.low is None or measured.high is None:
            raise SystemExit("nothing was measured; give --repeats 1 or more")
        sys.stdout.write(f"{name:10} {measured.value:.3f}  {measured.low:.3f}-{measured.high:.3f}\n")
        outside |= measured.high < 1 - BAR or measured.low > 1 + BAR
    return int(outside)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    same, speed = kinds.add_parser("same"), kinds.add_parser("speed")
    for kind in (same, speed):
        kind.add_argument("other", type=Path, help="the other checkout")
        kind.add_argument("--tokens", type=int, default=96)
    speed.add_argument("--dtype", default="bfloat16")
    speed.add_argument("--temperature", type=float, default=0)
    speed.add_argument("--repeats", type=int, default=12)
    speed.add_argument("--starts", type=int, default=1, help="number of times that both processes are started")
    arguments, prompts = parser.parse_known_args()
    other: Path = arguments.other.resolve()
    if not (other / "dynatui").is_dir():
        parser.error(f"{other} is not a checkout of dynatui; give the folder of a checkout")
    if arguments.kind == "same":
        return show_same(other, prompts, arguments.tokens)
    return show_speed(
        other, arguments.dtype, arguments.tokens, arguments.temperature, arguments.repeats, arguments.starts
    )


if __name__ == "__main__":
    sys.exit(main())
