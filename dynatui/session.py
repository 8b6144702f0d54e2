"""What the command line asked for, in one value: the only thing that it hands to the screen or to a headless run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from decoder.config import RunConfig
from dynatui.keymap import KEYMAP, Keymap

Symbols: TypeAlias = Literal["braille", "block", "ascii"]
SYMBOLS: tuple[Symbols, ...] = get_args(Symbols)
EMBEDDED_TEMPERATURE = 0.6
"""At which the screen shows the embedded pair where none is given: greedy, so small a model repeats itself."""
EMBEDDED_SEED = 7
"""With which it does, chosen among 48 for our first prompt: text of few passes that reads well."""


@dataclass(frozen=True)
class Models:
    """Which pair runs where; None is the embedded pair."""

    target: str | None = None
    draft: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"
    exact: bool = False
    """Whether methods must agree bit for bit in half precision too."""
    compiled: bool = False
    """Whether torch.compile is tried on both models' passes; for CUDA."""

    @property
    def embedded(self) -> bool:
        """Whether it is the pair that the program brings along."""
        return self.target is None


@dataclass(frozen=True)
class View:
    """How the screen looks and moves."""

    speed: float | None = None
    """Speed of the show; None: chosen so that the text can be read."""
    fps: int | None = None
    """Frames a second; None: 10, or 5 over SSH."""
    theme: str | None = None
    symbols: Symbols = "braille"
    color: bool = True
    mouse: bool = True
    """Whether clicks and the wheel are taken; without, the terminal itself can select and copy."""
    tour: bool = False
    """Whether the first round is shown slowly, stage by stage."""
    log: Path | None = None
    """Where messages of libraries and faults go; None: the user's log folder."""
    keys: Keymap = field(default=KEYMAP, repr=False)


@dataclass(frozen=True)
class Session:
    """One start of the program."""

    prompts: tuple[str, ...]
    models: Models = field(default_factory=Models)
    config: RunConfig = field(default_factory=RunConfig)
    record: Path | None = None
    """Where the events are written as they happen."""
    metrics_port: int | None = None
    """Where its totals are served to Prometheus; 0: any free port."""
    view: View = field(default_factory=View)
    files: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of the files that the first prompts were read from, each with its prompts."""
    set_for_good: frozenset[str] = frozenset()
    """Options that a settings file or a variable sets: a command line for this session has to write them all out."""
    tensor_parallel: int = 1
    """Processes that the target is spread over."""
