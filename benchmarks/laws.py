"""Long statistical tests of whether sampled texts follow the target's distribution, case by case.

    python benchmarks/laws.py run --output DIR
    python benchmarks/laws.py report --output DIR

The command `run` samples and counts outcomes for all incomplete cases. It writes the counts to DIR every few seconds,
one file for each case, so the same command resumes even within a case. The command `report` prints verdicts on the
counts as Markdown. Both commands return exit code 0 if every case is complete and passes, else 1. They need a checkout
that includes the tests. Cases of the embedded pair also need the environment variable DYNATUI_DATA.
"""

import argparse
import gc
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import torch

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import say
from decoder.errors import DecoderError
from decoder.system.whole_files import write_whole
from tests.decoder.laws.case import Case, Group
from tests.decoder.laws.cases import GROUPS

COMMAND = "python benchmarks/laws.py run --output DIR && python benchmarks/laws.py report --output DIR"


class State(msgspec.Struct):
    setting: str
    """Setting of the case when it was counted; if the case's setting is now another one, the counts are discarded."""
    done: int = 0
    """Number of units of the case, such as texts, that are already counted."""
    seconds: float = 0.0
    counts: dict[str, float] = {}


def file_of(group: Group, case: Case, output: Path) -> Path:
    return output / (re.sub(r"\W+", "-", f"{group.title} {case.name}".lower()).strip("-") + ".json")


def state(group: Group, case: Case, output: Path) -> State:
    """State of a case from its file; empty if there is no file or the case has changed."""
    try:
        saved = msgspec.json.decode(file_of(group, case, output).read_bytes(), type=State)
    except FileNotFoundError:
        saved = State(case.setting)
    return saved if saved.setting == case.setting and saved.done <= case.units else State(case.setting)


def run(group: Group, case: Case, output: Path) -> State:
    """Counts the remaining units of a case, a few units at a time."""
    case_state = state(group, case, output)
    while case_state.done < case.units:
        end = min(case_state.done + case.block, case.units)
        began = time.perf_counter()
        counts = Counter(case_state.counts)
        counts.update(case.count(range(case_state.done, end)))
        seconds = case_state.seconds + time.perf_counter() - began
        case_state = State(case.setting, end, seconds, dict(counts))
        write_whole(file_of(group, case, output), msgspec.json.encode(case_state))
    return case_state


def run_all(groups: Sequence[Group], output: Path, only: str, say: Callable[[str], object]) -> bool:
    """Runs every case whose name contains `only`; returns whether all these cases pass."""
    output.mkdir(parents=True, exist_ok=True)
    right = True
    for group, case in _cases(groups):
        if only not in f"{group.title}: {case.name}":
            continue
        case_state = run(group, case, output)
        verdict = case.judge(case_state.counts)
        say(f"{group.title}: {case.name}: {', '.join(verdict.figures)}{'' if verdict.right else '  WRONG'}")
        right &= verdict.right
    return right


def report(groups: Sequence[Group], output: Path) -> tuple[list[str], bool]:
    """Lines of the report, and whether every case is complete and passes."""
    tables = [list(table(group, output)) for group in groups]
    cases = [(case, state(group, case, output)) for group, case in _cases(groups)]
    complete = [(case, case_state) for case, case_state in cases if case_state.done == case.units]
    right = [case for case, case_state in complete if case.judge(case_state.counts).right]
    seconds = sum(case_state.seconds for _, case_state in cases)
    lines = [
        "# Laws of sampled texts",
        "",
        f"`{COMMAND}`, {seconds / 60:.0f} minutes in all on one thread of {platform.machine()}, Python "
        f"{platform.python_version()}, torch {torch.__version__}.",
        "",
        f"{len(complete)} of {len(cases)} cases are done; {len(right)} of these pass.",
    ]
    return [*lines, *(line for lines_of_table in tables for line in lines_of_table)], len(right) == len(cases)


def _cases(groups: Sequence[Group]) -> list[tuple[Group, Case]]:
    return [(group, case) for group in groups for case in group.cases]


def table(group: Group, output: Path) -> Iterator[str]:
    """Lines of a Markdown table with one row for each case of a group."""
    yield from ("", f"## {group.title}", "", group.about, "", _line(group.columns), _line(["---"] * len(group.columns)))
    for case in group.cases:
        case_state = state(group, case, output)
        if case_state.done < case.units:
            yield _line([case.name, f"{case_state.done} of {case.units} done", *[""] * (len(group.columns) - 2)])
        else:
            verdict = case.judge(case_state.counts)
            *figures, last = verdict.figures
            yield _line([case.name, *figures, last if verdict.right else f"**{last}**"])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(command_line: Sequence[str] | None = None, groups: Sequence[Group] = GROUPS) -> int:
    """Runs the cases or reports their results; returns 0 if all cases pass, 1 if not, 2 if the run cannot start."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name, help_text in (
        ("run", "sample the texts that no earlier run has sampled, and count them"),
        ("report", "print for each case whether its counts pass"),
    ):
        kind = kinds.add_parser(name, help=help_text)
        kind.add_argument(
            "--output", type=Path, required=True, help="folder of the counts, from which a later run resumes"
        )
    kinds.choices["run"].add_argument(
        "--only", metavar="TEXT", default="", help="run only cases whose names contain TEXT"
    )
    arguments = parser.parse_args(command_line)
    if arguments.kind == "report":
        lines, right = report(groups, arguments.output)
        say("\n".join(lines))
        return 0 if right else 1
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    gc.freeze()
    try:
        return 0 if run_all(groups, arguments.output, arguments.only, say) else 1
    except DecoderError as error:
        say(f"laws.py: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
