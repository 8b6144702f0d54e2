"""Log from which an interrupted measurement resumes: a header, then one record per complete block."""

from pathlib import Path
from typing import TypeAlias

import msgspec

from decoder.bench.paper.records import SCHEMA, Block, Header, Resumed
from decoder.bench.record_log import RecordLog

REMEDY = "let --output name another folder"
Record: TypeAlias = Block | Resumed
_LINES: msgspec.json.Decoder[Header | Record] = msgspec.json.Decoder(Header | Record)


class PaperLog(RecordLog[Header, Record]):
    """Header and records of a measurement; kept in a file if a path is given, else only in memory."""

    def __init__(self, path: Path | None) -> None:
        """Reads the file, if there is one.

        Raises:
            ConfigError: The file cannot be read, is damaged, or is not a log of this benchmark.
        """
        super().__init__(path, _LINES, Header, SCHEMA, REMEDY)

    @property
    def blocks(self) -> list[Block]:
        """All blocks; if two processes measured the same block, only the first record of it."""
        blocks: dict[tuple[int, int, int], Block] = {}
        for record in self.records:
            if isinstance(record, Block):
                blocks.setdefault((record.experiment, record.prompt, record.repeat), record)
        return list(blocks.values())

    @property
    def resumed(self) -> list[Resumed]:
        """Records of resumptions by another commit or version of dynatui."""
        return [record for record in self.records if isinstance(record, Resumed)]
