"""The file from which a stopped measurement goes on: its beginning, then every block that is complete."""

from pathlib import Path
from typing import TypeAlias

import msgspec

from decoder.bench.paper.records import SCHEMA, Block, Header, Resumed
from decoder.bench.record_log import RecordLog

REMEDY = "let --output name another folder"
Record: TypeAlias = Block | Resumed
_LINES: msgspec.json.Decoder[Header | Record] = msgspec.json.Decoder(Header | Record)


class PaperLog(RecordLog[Header, Record]):
    """What was measured so far, to which blocks are added; in a file, where one is named."""

    def __init__(self, path: Path | None) -> None:
        """Reads what is there.

        Raises:
            ConfigError: The file cannot be read, is damaged, or is another one's.
        """
        super().__init__(path, _LINES, Header, SCHEMA, REMEDY)

    @property
    def blocks(self) -> list[Block]:
        """Each block once, though it was taken twice."""
        found: dict[tuple[int, int, int], Block] = {}
        for record in self.records:
            if isinstance(record, Block):
                found.setdefault((record.experiment, record.prompt, record.repeat), record)
        return list(found.values())

    @property
    def resumed(self) -> list[Resumed]:
        """Where it went on by another commit."""
        return [record for record in self.records if isinstance(record, Resumed)]
