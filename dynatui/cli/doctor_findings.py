"""Input and findings of the probes of `dynatui doctor`. Knows no probe."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from dynatui.session import Models

Verdict: TypeAlias = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One result of a probe, with a remedy if one is needed."""

    verdict: Verdict
    """The finding's severity. problem: dynatui cannot run with these options; note: dynatui can run, but users should
    know of the finding; ok: all is well."""
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Case:
    """The models and options that the probes examine."""

    models: Models
    log: Path | None
    settings: Callable[[], str]
    """Returns one line about the sources of the settings; raises DecoderError if a setting is invalid."""
    strange_variables: Sequence[str] = ()


Probe: TypeAlias = Callable[[Case], Iterator[Finding]]


def size(count: int) -> str:
    """A number of bytes as text with a unit, such as 1.5 GiB."""
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    if count >= 10 * 2**20:
        return f"{count / 2**20:.0f} MiB"
    return f"{count / 2**10:.0f} KiB" if count >= 2**10 else f"{count} bytes"
