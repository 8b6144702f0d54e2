"""The input of all panels in one value: what a panel shows is a function of a scene and a size."""

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
"""Property of a token that determines its colour in the text."""
HEATS: tuple[Heat, ...] = get_args(Heat)
LEAST_TOP = 4.0
"""Smallest upper end of the axis of tokens per round."""


@dataclass(frozen=True)
class Scale:
    """Upper ends of the axes of a run's charts. If two runs are shown side by side, both runs get the larger ends."""

    tokens: int
    """Upper end of the x axis: the maximum length of the text in tokens."""
    deepest: float
    """Largest number of levels of a tree."""
    newest: int = 0
    """Number of tokens in the text so far; once it is longer than the window, the window ends at the newest token."""

    @property
    def top(self) -> float:
        """Upper end of the axis of tokens per round."""
        return max(LEAST_TOP, self.deepest + 1)

    def joined(self, other: "Scale") -> "Scale":
        """For each axis, the larger of the two upper ends."""
        return Scale(max(self.tokens, other.tokens), max(self.deepest, other.deepest), max(self.newest, other.newest))


@dataclass(frozen=True)
class Meters:
    """Resources that the screen itself uses."""

    fps: float = 0.0
    """Frames per second that the terminal can take."""
    slow_line: bool = False
    """Whether frames were skipped for a slow terminal."""
    ui_share: float | None = None
    """CPU time of the screen as a share of one core."""
    bytes_per_s: float | None = None
    """Bytes written to the terminal per second."""


@dataclass(frozen=True)
class Scene:
    """State of the run, and the user's view of it."""

    state: RunState = field(default_factory=RunState)
    whole: RunState | None = None
    """The newest state of the run; None if `state` is the newest."""
    panel: PanelName = "text"
    maximised: bool = False
    mode: Mode = "watch"
    heat: Heat = "origin"
    mask: bool = False
    """Whether the tree is drawn as its attention mask."""
    cursor: int | None = None
    """Index of the inspected token among the tokens of the newest state; None while no token is inspected."""
    query: str = ""
    """The search words, while search hits are shown."""
    hits: tuple[range, ...] = ()
    """Search hits, as ranges of token indices."""
    log_end: int = 0
    """Number of log lines below the shown lines."""
    openings: Sequence[str] = ()
    """Beginnings of the first prompts, as far as known, without control characters; empty unless prompts are listed."""
    chosen_prompt: int | None = None
    """Number of the prompt under the cursor of the list; None stands for the shown prompt."""
    prompt_filter: str = ""
    """Words that a prompt must contain near its beginning to be listed; if empty, all prompts are listed."""
    symbols: Symbols = "braille"
    keys: Keymap = field(default=KEYMAP, repr=False)
    waited_s: float = 0.0
    """Seconds since the start while there is no run to show; 0 once there is a run."""
    speed: float = 1.0
    frozen: bool = False
    paused: bool = False
    recording: bool = False
    replaying: bool = False
    following: bool = False
    """Whether the recording is still being written by another process."""
    pending: Mapping[KnobName, float] = field(default_factory=dict)
    """New values of turned knobs, by knob name; contains only values that are not in force yet."""
    slider: KnobName = "tau_h"
    """The chosen slider in the drawer."""
    typed: str = ""
    place: Place = field(default_factory=Place)
    meters: Meters = field(default_factory=Meters)
    results: Results = field(default_factory=dict)
    preparing: str = ""
    """Progress of the engine's work in idle time, in words; empty if there is no such work."""
    stage: Stage | None = None
    """The stage of a round at which decoding is paused; None if decoding is not paused at a stage."""
    touring: bool = False
    """Whether the tour is on, which shows the second round in slow motion; the user can end it with a key."""
    broke: str = ""
    """Reason of an automatic pause, without control characters; empty if decoding has not been paused automatically."""
    pinned: Pin | None = None
    scale: Scale | None = None
    """Upper ends of the axes of all charts; None stands for the upper ends computed for the watched method."""
    whatif: WhatIf | None = None
    """Estimates for other values of the knobs; None while no panel shows them."""
    gpus: Mapping[int, GpuLoad] = field(default_factory=dict)
    """Load of each GPU that reports it, by device number."""
    note: str = ""
    """Message on what the last key press did, if nothing else on the screen shows it; control characters are already
    removed.
    """

    @property
    def next_symbols(self) -> Symbols:
        """The next set of symbols."""
        return SYMBOLS[(SYMBOLS.index(self.symbols) + 1) % len(SYMBOLS)]

    @property
    def held_stage(self) -> Stage | None:
        """The stage at which decoding is paused, if the screen shows it; None while a token is inspected."""
        return self.stage if self.inspected is None else None

    @property
    def number(self) -> int | None:
        """Number of the shown round, counted from 1; None before the first round."""
        if self.held_stage is not None:
            return nth(self.held_stage.event.round)
        return self.place.round or None

    @property
    def newest_state(self) -> RunState:
        """The newest state of the run, even if an earlier round is shown."""
        return self.state if self.whole is None else self.whole

    @property
    def inspected(self) -> Token | None:
        """The token under the cursor."""
        tokens = self.newest_state.lane.tokens
        return tokens[self.cursor] if self.cursor is not None and 0 <= self.cursor < len(tokens) else None
