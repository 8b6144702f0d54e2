"""Measures how every causal language model of transformers is decoded, and writes `docs/models.md`.

    python -m tests.decoder.survey --output DIR

Each family runs in a process of its own with a time limit. DIR has the log, from which the same command resumes. With
--families nothing but the log is written.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from decoder.bench.record_log import RecordLog, header_now, opened
from decoder.errors import DecoderError
from decoder.system.whole_files import made_folder
from tests.decoder.survey.results import FORMAT, GREEDY, SAMPLED, Header, Request, Survey, result, write
from tests.decoder.survey.tiny_models import FAMILIES
from tests.decoder.survey.trial import Trial, isolated


def main(command_line: Sequence[str] | None = None) -> int:
    """Runs the survey; returns 0, or 2 if the output is unusable."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder of the log, from which a later run resumes")
    parser.add_argument("--families", help="names of model types, with commas; default: all")
    parser.add_argument("--limit-s", type=float, default=120.0, help="seconds after which a family's process is killed")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no family begins after this time")
    arguments = parser.parse_args(command_line)
    families = arguments.families.split(",") if arguments.families else FAMILIES
    torch.set_num_threads(1)
    until = time.monotonic() + 60 * arguments.minutes
    try:
        made_folder(arguments.output)
        with opened(arguments.output / "results.jsonl", FORMAT) as log:
            request = Request(transformers=transformers.__version__)
            log.begin(header_now(log, request, torch.device("cpu"), lambda: None, say), complete=True)
            for temperature in (GREEDY, SAMPLED):
                measure(log, families, temperature, arguments.limit_s, until)
            if not arguments.families:
                write(Survey(transformers=transformers.__version__, trials=tuple(sorted(log.records, key=_place))))
    except DecoderError as error:
        say(f"survey: {error}")
        return 2
    return 0


def measure(
    log: RecordLog[Header, Trial], families: Sequence[str], temperature: float, limit_s: float, until: float
) -> None:
    """Adds the trials that are missing; at a temperature, those of families that write a text."""
    done = {trial.family for trial in log.records if trial.temperature == temperature}
    decoded = {trial.family for trial in log.records if trial.route}
    for family in families:
        if time.monotonic() < until and family not in done and (temperature == GREEDY or family in decoded):
            began = time.monotonic()
            log.add(trial := isolated(family, temperature, limit_s))
            say(f"{family}, T = {temperature:g}: {result(trial)} ({time.monotonic() - began:.1f} s)")


def _place(trial: Trial) -> tuple[float, str]:
    return trial.temperature, trial.family


def say(line: str) -> None:
    """Prints a progress line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
