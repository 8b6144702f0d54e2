"""Everything that the panels are drawn from, in one value: a picture is a function of it and of a size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from decoder.analysis.what_if import WhatIf
from decoder.knobs import KnobName
from decoder.session.steering import Stage
from dynatui.gpu import GpuLoad
from dynatui.keymap import KEYMAP, Keymap, Mode, PanelName
from dynatui.number_format import nth
from dynatui.session import SYMBOLS, Symbols
from dynatui.state.ab_comparison import Pin
from dynatui.state.run_state import RunState
from dynatui.state.session_log import Results
from dynatui.state.timeline import Place
from dynatui.state.tokens import Token

Heat: TypeAlias = Literal["origin", "probability", "round", "time"]
"""What the text's inks stand for."""
HEATS: tuple[Heat, ...] = get_args(Heat)
LEAST_TOP = 4.0
"""Tokens a round that every scale reaches."""


@dataclass(frozen=True)
class Scale:
    """What the axes of a run's charts reach; two runs side by side share the larger of both."""

    tokens: int
    """Of the text."""
    deepest: float
    """Levels of a tree."""
    newest: int = 0
    """Tokens that the text has so far: a window that rolls ends there."""

    @property
    def top(self) -> float:
        """Tokens a round."""
        return max(LEAST_TOP, self.deepest + 1)

    def joined(self, other: "Scale") -> "Scale":
        """Axes that hold both."""
        return Scale(max(self.tokens, other.tokens), max(self.deepest, other.deepest), max(self.newest, other.newest))


@dataclass(frozen=True)
class Meters:
    """What the screen itself costs."""

    fps: float = 0.0
    """Frames a second that the terminal keeps up with."""
    slow_line: bool = False
    """Whether frames were left out because the terminal does not keep up."""
    ui_share: float | None = None
    """Share of one core that the screen takes."""
    bytes_per_s: float | None = None
    """Written to the terminal."""


@dataclass(frozen=True)
class Scene:
    """What is known about the work, and how the user looks at it."""

    state: RunState = field(default_factory=RunState)
    whole: RunState | None = None
    """All that is known of the run, where that is more than what is shown of it."""
    panel: PanelName = "text"
    maximised: bool = False
    mode: Mode = "watch"
    heat: Heat = "origin"
    mask: bool = False
    """Whether the tree is drawn as the matrix of who sees whom."""
    cursor: int | None = None
    """Index into the tokens of all that is known, while the text is inspected."""
    query: str = ""
    """What was searched for, while its hits are shown."""
    hits: tuple[range, ...] = ()
    """Where it stands: places in these tokens."""
    log_end: int = 0
    """Lines of the log that are below what is shown of it."""
    openings: Sequence[str] = ()
    """How each prompt begins, cleaned, from the first on, as far as that is known; filled where prompts are listed."""
    chosen_prompt: int | None = None
    """Number of the prompt that the cursor of the list is on; None: it follows the one that is shown."""
    prompt_filter: str = ""
    """Words that the listed prompts begin with or hold near their beginning; empty: all are listed."""
    symbols: Symbols = "braille"
    keys: Keymap = field(default=KEYMAP, repr=False)
    waited_s: float = 0.0
    """Since the start, while there is no run to show."""
    speed: float = 1.0
    frozen: bool = False
    paused: bool = False
    recording: bool = False
    replaying: bool = False
    following: bool = False
    """Whether another process writes what is shown."""
    wanted: Mapping[KnobName, float] = field(default_factory=dict)
    """Knobs that were turned and are not in force yet."""
    slider: KnobName = "tau_h"
    """The chosen slider in the drawer."""
    typed: str = ""
    place: Place = field(default_factory=Place)
    meters: Meters = field(default_factory=Meters)
    results: Results = field(default_factory=dict)
    stage: Stage | None = None
    """Where in a round decoding is held, while it is stepped."""
    touring: bool = False
    """Whether one of the first rounds is shown slowly, and any key goes on."""
    broke: str = ""
    """Why decoding paused by itself; cleaned."""
    pinned: Pin | None = None
    scale: Scale | None = None
    """Axes that are settled for all charts; None: those of the watched method."""
    whatif: WhatIf | None = None
    """What other knobs would have done, when that is shown."""
    gpus: Mapping[int, GpuLoad] = field(default_factory=dict)
    """How busy each device is, by its number, where it says so."""
    note: str = ""
    """What the last key did, where nothing else shows it; cleaned."""

    @property
    def next_symbols(self) -> Symbols:
        """The set of signs after the present one."""
        return SYMBOLS[(SYMBOLS.index(self.symbols) + 1) % len(SYMBOLS)]

    @property
    def held(self) -> Stage | None:
        """The stage in the middle of a round at which decoding is held and which is shown."""
        return self.stage if self.inspected is None else None

    @property
    def number(self) -> int | None:
        """The round that the picture is of, counted from 1; None before the first."""
        if self.held is not None:
            return nth(self.held.event.round)
        return self.place.round or None

    @property
    def known(self) -> RunState:
        """All that is known of the run, beyond the place that is shown too."""
        return self.state if self.whole is None else self.whole

    @property
    def inspected(self) -> Token | None:
        """The token under the cursor."""
        tokens = self.known.lane.tokens
        return tokens[self.cursor] if self.cursor is not None and 0 <= self.cursor < len(tokens) else None
