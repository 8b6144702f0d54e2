"""Log from which a stopped measurement resumes: a header, then complete blocks."""

from pathlib import Path
from typing import TypeAlias

import msgspec

from decoder.bench.paper.records import SCHEMA, Block, Header, Resumed
from decoder.bench.record_log import RecordLog

REMEDY = "let --output name another folder"
Record: TypeAlias = Block | Resumed
_LINES: msgspec.json.Decoder[Header | Record] = msgspec.json.Decoder(Header | Record)


class PaperLog(RecordLog[Header, Record]):
    """Header and records; in a file, where a path is given."""

    def __init__(self, path: Path | None) -> None:
        """Reads the file.

        Raises:
            ConfigError: The file cannot be read, is damaged, or holds something else.
        """
        super().__init__(path, _LINES, Header, SCHEMA, REMEDY)

    @property
    def blocks(self) -> list[Block]:
        """Blocks, each once even where two processes measured it."""
        blocks: dict[tuple[int, int, int], Block] = {}
        for record in self.records:
            if isinstance(record, Block):
                blocks.setdefault((record.experiment, record.prompt, record.repeat), record)
        return list(blocks.values())

    @property
    def resumed(self) -> list[Resumed]:
        """Resumptions by another commit or version."""
        return [record for record in self.records if isinstance(record, Resumed)]
