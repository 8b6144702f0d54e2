"""What a change of the code has changed: this checkout beside another one, on the same prompts and recordings.

    git worktree add ../before COMMIT
    python benchmarks/commits.py same ../before
    python benchmarks/commits.py speed ../before --repeats 12

`same` decodes the same prompts in both and compares every token of every method, and every figure that neither measures
time nor follows from one (log-probabilities up to rounding); then what both show of the recordings of the tests, and
the snapshots of the screen. `speed` holds the embedded pair in a process of each, lets them decode prompt by prompt and
method by method in turn, so that both see the same machine, and tells the ratio of their tokens a second. Equal
processes differ by several percent from start to start: a small difference needs many `--starts`. Both run in this
environment. Ends with 1 where anything differs, or where the whole interval of a ratio lies outside the bar.
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

from decoder.bench.statistics import estimate

HERE = Path(__file__).parents[1]
METHODS = "dynatree,auto,ar,linear,fixed,alg1,hf"
ADAPTS_TO_TIME = frozenset({"auto"})
"""Methods whose trees follow measured times: only their texts can be compared."""
TIMES = (
    *("t", "started_at", "speedup", "tokens_per_second", "peak_bytes", "version"),
    *("stalled_rounds", "left_out_rounds"),
)
"""Figures that differ from run to run; so do all whose names end in _s."""
RUNS = (
    ("--dtype", "float32"),
    ("--dtype", "float32", "--preset", "paper"),
    ("--dtype", "bfloat16"),
    ("--dtype", "bfloat16", "--exact"),
)
ROUNDING = 0.1
"""Of log-probabilities; in bfloat16 a logit of 16 is known to 1/16."""
BAR = 0.03
MEASURED = ("dynatree", "auto", "ar", "linear")
WORKER = """
import sys
from decoder import RunConfig, decode, load_pair
from dynatui.prompts.load import embedded
dtype, tokens = sys.argv[1:]
loaded, prompts = load_pair(device="cpu", dtype=dtype), sorted(embedded())
print(len(prompts), flush=True)
for line in sys.stdin:
    method, prompt = line.split()
    config = RunConfig(methods=(method,), max_new_tokens=int(tokens))
    *_, summary = decode(loaded, prompts[int(prompt)], config)
    print(summary.methods[method].tokens_per_second, flush=True)
"""
"""Uses nothing but what every version of the library has."""


def said(checkout: Path, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of dynatui from this checkout."""
    command = [sys.executable, "-m", "dynatui", *arguments]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "120"}
    found = subprocess.run(  # noqa: S603 - the program that is compared
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    return found.returncode, found.stdout, found.stderr


def lasting(value: Any) -> Any:
    """A decoded event without what differs from run to run."""
    if isinstance(value, dict):
        return {
            name: None if name in ADAPTS_TO_TIME else lasting(inner)
            for name, inner in value.items()
            if name not in TIMES and not name.endswith("_s")
        }
    return [lasting(inner) for inner in value] if isinstance(value, list) else value


def figures(recording: Path) -> dict[str, list[Any]]:
    """What must be alike, by name: the events of each method, whose order between methods is the race's; its texts."""
    found: dict[str, list[Any]] = defaultdict(list)
    run = -1
    for line in recording.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        run += event["type"] == "run"
        method = event.get("method", "")
        if event["type"] == "round":
            found[f"run {run}, {method} text"] += event["committed"]
        if method not in ADAPTS_TO_TIME:
            name = " ".join(str(part) for part in (method, event["type"], event.get("round", "")) if part != "")
            found[f"run {run}, {name}"].append(lasting(event))
    return dict(found)


def differences(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The names under which two sets of figures are not alike."""
    return [name for name in {**other, **mine} if not alike(mine.get(name), other.get(name))]


def alike(one: Any, two: Any) -> bool:
    """Equal, but for log-probabilities that another order of sums rounds otherwise."""
    match one, two:
        case list(), list():
            return len(one) == len(two) and all(map(alike, one, two))
        case {"logprobs": [*mine], **rest}, {"logprobs": [*other], **others}:
            near = all(abs(first - second) <= ROUNDING for first, second in zip(mine, other, strict=False))
            return rest == others and len(mine) == len(other) and near
        case _:
            return bool(one == two)


def decoded(other: Path, prompts: Sequence[str], tokens: int) -> Iterator[tuple[str, int, list[str]]]:
    """For each kind of run: how many figures were compared, and which differ."""
    for options in RUNS:
        recordings = []
        with tempfile.TemporaryDirectory() as folder:
            for name, checkout in (("mine", HERE), ("other", other)):
                file = Path(folder) / f"{name}.jsonl"
                given = ["--headless", "--methods", METHODS, "--max-new-tokens", str(tokens), "--record", str(file)]
                code, _, errors = said(checkout, [*given, *options, *prompts])
                if code:
                    raise SystemExit(f"{checkout}: dynatui ended with {code}: {errors}")
                recordings.append(figures(file))
        yield " ".join(options), sum(map(len, recordings[0].values())), differences(*recordings)


def replayed(other: Path) -> Iterator[tuple[str, int, list[str]]]:
    """The same for what both say about each recording of the tests, to people and to programs."""
    for trace in sorted((HERE / "tests" / "traces").glob("*.jsonl")):
        for form in ("--headless", "--json"):
            mine, theirs = (said(checkout, ["replay", str(trace), form]) for checkout in (HERE, other))
            lines = list(zip_longest(*("\n".join(map(str, each)).splitlines() for each in (mine, theirs))))
            differ = [f"line {number}" for number, (one, two) in enumerate(lines, 1) if one != two]
            yield f"replay {trace.name} {form}", len(lines), differ


def snapshots(other: Path) -> tuple[str, int, list[str]]:
    """The same for the pictures that the tests of the screen compare, by file name."""
    mine, theirs = (
        {file.name: file.read_bytes() for file in (checkout / "tests").rglob("*.svg")} for checkout in (HERE, other)
    )
    return "snapshots", len(mine), differences(mine, theirs)


class Worker:
    """A process that has a checkout's embedded pair in memory and decodes on demand."""

    def __init__(self, checkout: Path, dtype: str, tokens: int) -> None:
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(checkout)}
        command = [sys.executable, "-c", WORKER, dtype, str(tokens)]
        self._process = subprocess.Popen(  # noqa: S603 - the program that is compared
            command, cwd=checkout, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._asked, self._answers = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        self.prompts = int(self._line())

    def tokens_per_second(self, method: str, prompt: int) -> float:
        """Speed of one method on one prompt, prefill left out."""
        self._asked.write(f"{method} {prompt}\n")
        self._asked.flush()
        return float(self._line())

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def _line(self) -> str:
        if not (line := self._answers.readline()):
            raise SystemExit(f"a process that decodes ended with {self._process.wait()}")
        return line


def ratios(mine: Worker, other: Worker, repeats: int) -> dict[str, list[list[float]]]:
    """Tokens a second of one over the other's: by method, one group a prompt with one ratio a repeat."""
    found: dict[str, list[list[float]]] = {name: [[] for _ in range(mine.prompts)] for name in MEASURED}
    # The first round warms both up.
    for repeat, prompt, method in product(range(repeats + 1), range(mine.prompts), MEASURED):
        order = (mine, other) if repeat % 2 else (other, mine)
        speeds = {worker: worker.tokens_per_second(method, prompt) for worker in order}
        if repeat:
            found[method][prompt].append(speeds[mine] / speeds[other])
    return found


def show_same(other: Path, prompts: Sequence[str], tokens: int) -> int:
    """Prints what was compared; 1 where anything differs."""
    worst = 0
    for name, count, differ in (*replayed(other), snapshots(other), *decoded(other, prompts, tokens)):
        shown = ", ".join(differ[:8]) + (", ..." if len(differ) > 8 else "")
        sys.stdout.write(
            f"{name}: {count} compared, {f'{len(differ)} differ: {shown}' if differ else 'all the same'}\n"
        )
        worst |= bool(differ)
    return int(worst)


def show_speed(other: Path, dtype: str, tokens: int, repeats: int, starts: int) -> int:
    """Prints each method's ratio; 1 where its whole interval lies outside the bar."""
    groups: dict[str, list[list[float]]] = {name: [] for name in MEASURED}
    for start in range(starts):
        # Of two equal processes the one that starts first decodes a few percent slower here.
        places = (HERE, other) if start % 2 == 0 else (other, HERE)
        workers = [Worker(place, dtype, tokens) for place in places][:: 1 if start % 2 == 0 else -1]
        for name, by_prompt in ratios(workers[0], workers[1], repeats).items():
            groups[name] += [list(chain.from_iterable(by_prompt))] if starts > 1 else by_prompt
        for worker in workers:
            worker.close()
    outside = False
    for name, measured in ((name, estimate(each, seed=0)) for name, each in groups.items()):
        if measured is None or measured.low is None or measured.high is None:
            raise SystemExit("nothing was measured; give --repeats 1 or more")
        sys.stdout.write(f"{name:10} {measured.value:.3f}  {measured.low:.3f}-{measured.high:.3f}\n")
        outside |= measured.high < 1 - BAR or measured.low > 1 + BAR
    return int(outside)


def main() -> int:
    """Compares; 1 where the two checkouts differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    same, speed = kinds.add_parser("same"), kinds.add_parser("speed")
    for kind in (same, speed):
        kind.add_argument("other", type=Path, help="the other checkout")
        kind.add_argument("--tokens", type=int, default=96)
    speed.add_argument("--dtype", default="bfloat16")
    speed.add_argument("--repeats", type=int, default=12)
    speed.add_argument("--starts", type=int, default=1, help="of both processes")
    wanted, rest = parser.parse_known_args()
    other: Path = wanted.other.resolve()
    if not (other / "dynatui").is_dir():
        parser.error(f"{other} is no checkout of dynatui")
    if wanted.kind == "same":
        return show_same(other, rest, wanted.tokens)
    return show_speed(other, wanted.dtype, wanted.tokens, wanted.repeats, wanted.starts)


if __name__ == "__main__":
    sys.exit(main())
