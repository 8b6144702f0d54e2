"""Everything that the panels are drawn from, in one value: a picture is a function of it and of a size."""

from dataclasses import dataclass, field

from decoder.config import KnobName
from dynatui.session import Symbols
from dynatui.state import RunState


@dataclass(frozen=True)
class Scene:
    """What is known about the work, and how the user looks at it."""

    state: RunState = field(default_factory=RunState)
    tab: str = "text"
    symbols: Symbols = "braille"
    speed: float = 1.0
    frozen: bool = False
    paused: bool = False
    recording: bool = False
    replaying: bool = False
    wanted: tuple[tuple[KnobName, float], ...] = ()
    """Knobs that were turned and are not in force yet."""
