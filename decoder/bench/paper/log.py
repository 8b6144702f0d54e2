"""The file from which a stopped measurement goes on: its beginning, then every block that is complete."""

from pathlib import Path
from typing import TypeAlias

import msgspec

from decoder.bench.paper.records import SCHEMA, Begun, Block
from decoder.bench.record_log import RecordLog

PaperLog: TypeAlias = RecordLog[Begun, Block]
_LINES: msgspec.json.Decoder[Begun | Block] = msgspec.json.Decoder(Begun | Block)


def paper_log(path: Path | None) -> PaperLog:
    """What was measured so far, to which blocks are added.

    Raises:
        ConfigError: The file cannot be read, or is another one's.
    """
    return RecordLog(path, _LINES, Begun, SCHEMA, "let --output name another folder")
