"""Journal of a session on a GPU: one JSON object a line, written as soon as something is known.

A line belongs to a stage. It says in words what was found, with the figures behind it, or how the stage began or ended.
This module does not depend on what a stage measures.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from decoder.errors import ConfigError, shortened

JOURNAL = "first.jsonl"
State = Literal["began", "done", "failed", "died", "timed out"]
Line = Mapping[str, Any]
"""`stage`, `at_s` (seconds since the session began), `text`; `state` where a stage begins or ends; `dry`; figures."""


@dataclass(frozen=True)
class Journal:
    """Journal file of one session; several processes may append to it, one at a time."""

    path: Path
    began_s: float
    """Time of the monotonic clock, which all processes share, when the session began."""
    dry: bool

    def now_s(self) -> float:
        return time.monotonic() - self.began_s

    def write(self, stage: str, text: str = "", **figures: object) -> None:
        """Appends a line; the figure `state` says how a stage began or ended."""
        at = {"stage": stage, "at_s": round(self.now_s(), 2), "text": text}
        line = json.dumps(at | ({"dry": True} if self.dry else {}) | figures)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def repair(self) -> None:
        """Removes an incomplete last line, which a process has left that was killed while it wrote."""
        content = self.path.read_bytes() if self.path.exists() else b""
        if content and not content.endswith(b"\n"):
            os.truncate(self.path, content.rfind(b"\n") + 1)

    def lines(self) -> Iterator[Line]:
        """All complete lines of sessions of this kind: a dry run and a run on a GPU ignore each other.

        Raises:
            ConfigError: The file is damaged.
        """
        text = self.path.read_text(encoding="utf-8", errors="replace") if self.path.exists() else ""
        try:
            lines = [json.loads(line) for line in text.split("\n")[:-1]]
            yield from (line for line in lines if bool(line.get("dry")) is self.dry and line["stage"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"{shortened(self.path)} is not a journal of stages; give another file or folder"
            ) from None

    def states(self) -> dict[str, State]:
        """Last state of each stage that has begun."""
        return {line["stage"]: line["state"] for line in self.lines() if "state" in line}

    def running(self) -> tuple[str, float] | None:
        """Name of the stage that has begun and not ended, and the time of the session at which it began."""
        last = next((line for line in reversed([*self.lines()]) if "state" in line), None)
        return (last["stage"], last["at_s"]) if last and last["state"] == "began" else None
