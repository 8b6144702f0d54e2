"""Dry run of all stages in which each stage is killed once: the first, which is short, at once, the others later.

    python tests/benchmarks/killed_dry_run.py DIR

The exit code is 0 if each stage has died once and is done in the end.
"""

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks import first
from benchmarks.stages.journal import JOURNAL, Journal
from benchmarks.stages.plan import STAGES


def main(folder: Path) -> int:
    """Runs all stages, and kills the worker in each of them once."""
    journal = Journal(folder / JOURNAL, 0.0, dry=True)
    Thread(target=_kill_each_stage_once, args=[journal], daemon=True).start()
    code = first.main(["--output", str(folder), "--dry"])
    ends = Counter((line["stage"], line["state"]) for line in journal.lines() if "state" in line)
    once = all(ends[stage.name, "died"] == ends[stage.name, "done"] == 1 for stage in STAGES)
    return code if once else 1


def _kill_each_stage_once(journal: Journal) -> None:
    killed = set[str]()
    while True:
        running = journal.running()
        if running and running[0] not in killed:
            time.sleep(1.0 if killed else 0.0)
            killed.add(running[0])
            for worker in _children():
                os.killpg(worker, signal.SIGKILL)
        time.sleep(0.01)


def _children() -> list[int]:
    """Process ids of this process's children."""
    threads = Path("/proc/self/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
