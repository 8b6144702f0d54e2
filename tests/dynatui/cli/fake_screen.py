"""A fake screen that draws nothing and remembers what it should show, and the types of the fixtures of commands."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from decoder.events import Event
from dynatui.session import Session, View

Recording: TypeAlias = tuple[Path, Iterable[list[Event]]]
Asked: TypeAlias = Callable[..., Session]
Refused: TypeAlias = Callable[..., str]
Printed: TypeAlias = Callable[..., str]
Write: TypeAlias = Callable[[str], Path]


@dataclass
class FakeScreen:
    """Stands in for `dynatui.screen.run` and remembers the sessions and recordings that it should show."""

    sessions: list[Session] = field(default_factory=list)
    replays: list[tuple[list[list[Event]], View]] = field(default_factory=list)
    followed: list[tuple[Path, View]] = field(default_factory=list)
    compared: list[tuple[Recording, Recording, View]] = field(default_factory=list)

    def watch(self, session: Session) -> int:
        self.sessions.append(session)
        return 0

    def replay(self, runs: Iterable[list[Event]], view: View) -> int:
        self.replays.append((list(runs), view))
        return 0

    def follow(self, path: Path, view: View) -> int:
        self.followed.append((path, view))
        return 0

    def compare(self, left: Recording, right: Recording, view: View) -> int:
        left, right = ((path, list(runs)) for path, runs in (left, right))
        self.compared.append((left, right, view))
        return 0
