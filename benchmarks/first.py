"""Evidence from a GPU, stage by stage: are texts right, how fast are rounds, does the app run, where does the time go?

    python benchmarks/first.py --output DIR
    python benchmarks/first.py --output DIR --list
    python benchmarks/first.py --output DIR --dry

The first command runs the stages that are not done yet, the most valuable first, as many as fit into `--minutes`. They
share one process; if a stage crashes it, a new process goes on without Triton kernels. The second command lists the
stages, their states, and the packages that each of them lacks. The third command runs the same stages without a GPU,
with small models on the fake CUDA device of the tests: it shows that every stage works, and measures nothing. A run on
a GPU ignores its results.

Each result is written to DIR/first.jsonl as soon as it is known, one line each. DIR/log.txt has all output,
DIR/profile.txt the kernels of rounds, DIR/app.txt the screens of the app. On a machine that keeps no files, start with
an earlier DIR/first.jsonl: stages that are done are left out. The exit code is 0 if all chosen stages are done, 1 if
some are not, and 2 if the program cannot begin; in the last case the reason is printed. dynatui need not be installed.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import say
from benchmarks.stages.journal import JOURNAL, Journal, Line
from benchmarks.stages.packages import lacking, remedy
from benchmarks.stages.plan import STAGES, Stage
from benchmarks.stages.supervisor import supervise
from benchmarks.stages.worker import start
from decoder.errors import ConfigError, DecoderError
from decoder.system.whole_files import made_folder

MINUTES = 9.0


def main(command_line: Sequence[str] | None = None, stages: Sequence[Stage] = STAGES) -> int:
    """Runs or lists the stages; returns 0 if all chosen stages are done, 1 if not, 2 if the program cannot begin."""
    arguments = _options().parse_args(command_line)
    journal = Journal(arguments.output / JOURNAL, time.monotonic(), arguments.dry)
    try:
        chosen = _chosen(stages, arguments.only)
        if not arguments.list:
            _run(chosen, arguments, journal)
        say(listing(chosen, journal))
    except DecoderError as error:
        say(f"first.py: {error}")
        return 2
    return 0 if all(journal.states().get(stage.name) == "done" for stage in chosen) else 1


def _chosen(stages: Sequence[Stage], names: Sequence[str] | None) -> Sequence[Stage]:
    known = [stage.name for stage in stages]
    if unknown := [name for name in names or () if name not in known]:
        raise ConfigError(f"there is no stage {', '.join(unknown)}; choose from {', '.join(known)}")
    return [stage for stage in stages if stage.name in (names or known)]


def _run(chosen: Sequence[Stage], arguments: argparse.Namespace, journal: Journal) -> None:
    """Runs the chosen stages, but not those that are done, unless they were named.

    Raises:
        ConfigError: No stage can run, since packages are missing, or a file cannot be read or written.
    """
    made_folder(arguments.output)
    journal.repair()
    states = journal.states()
    todo = [stage for stage in chosen if arguments.only or states.get(stage.name) != "done"]
    missing = {stage: lacking(stage.packages) for stage in todo}
    if every := sorted({requirement for requirements in missing.values() for requirement in requirements}):
        say(f"first.py: not installed: {', '.join(every)}; {remedy(every)}")
    able = [stage for stage in todo if not missing[stage]]
    if todo and not able:
        raise ConfigError("no stage can run without these packages")
    minutes = arguments.minutes or MINUTES
    if arguments.dry:  # a busy CPU takes any time
        minutes, able = arguments.minutes or math.inf, [replace(stage, limit_s=math.inf) for stage in able]
    supervise(able, journal, 60 * minutes, partial(start, journal), show)


def listing(stages: Sequence[Stage], journal: Journal) -> str:
    """Table of the stages, one line each: name, state, limit, subject, and missing packages."""
    states, width = journal.states(), max(len(stage.name) for stage in stages)
    return "\n".join(
        f"{stage.name:<{width}} {states.get(stage.name, 'not run'):<9} {stage.limit_s:>4.0f} s  {stage.about}"
        + (f"; not installed: {', '.join(missing)}" if (missing := lacking(stage.packages)) else "")
        for stage in stages
    )


def show(line: Line) -> None:
    state = f"{line['state']} " if "state" in line else ""
    say(f"{line['at_s']:>6.1f} {line['stage']}: {state}{line['text'][:400]}")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")
    parser.add_argument("--only", metavar="STAGE", nargs="+", help="run these stages, even if they are done")
    parser.add_argument("--minutes", type=float, help=f"time limit of this run (default: {MINUTES:g}; none with --dry)")
    parser.add_argument("--list", action="store_true", help="list the stages without running any")
    parser.add_argument("--dry", action="store_true", help="small models on a fake CUDA device, which measures nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
