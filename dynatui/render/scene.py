"""The input of all panels in one value: what a panel shows depends only on a scene and a size."""

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
from dynatui.state.ab_comparison import Pairs
from dynatui.state.run_state import RunState
from dynatui.state.session_log import Results
from dynatui.state.timeline import TimelinePosition
from dynatui.state.tokens import Token

Heat: TypeAlias = Literal["origin", "probability", "round", "time"]
HEATS: tuple[Heat, ...] = get_args(Heat)
LEAST_TOP = 4.0
"""Smallest upper end of the axis of tokens per round."""


@dataclass(frozen=True)
class Scale:
    """Upper ends of the axes; two runs side by side both get the larger ends."""

    tokens: int
    """Upper end of the x axis: the maximum length of the text in tokens."""
    deepest: float
    """Upper end of the depth axis: the largest depth of a tree, in levels."""
    newest: int = 0
    """Number of tokens in the text so far; once it is longer than the window, the window ends at the newest token."""

    @property
    def top(self) -> float:
        return max(LEAST_TOP, self.deepest + 1)

    def joined(self, other: "Scale") -> "Scale":
        return Scale(max(self.tokens, other.tokens), max(self.deepest, other.deepest), max(self.newest, other.newest))


@dataclass(frozen=True)
class Meters:
    fps: float = 0.0
    slow_line: bool = False
    """Whether frames were skipped for a slow terminal."""
    ui_share: float | None = None
    """CPU time of the screen as a share of one core."""
    bytes_per_s: float | None = None


@dataclass(frozen=True)
class Scene:
    state: RunState = field(default_factory=RunState)
    whole: RunState | None = None
    """The newest state of the run; None if `state` is the newest."""
    panel: PanelName = "text"
    maximised: bool = False
    mode: Mode = "watch"
    heat: Heat = "origin"
    mask: bool = False
    beside: bool = True
    """Whether the text of plain decoding is shown beside the text of the watched method."""
    cursor: int | None = None
    """Index of the inspected token among the tokens of the newest state; None while no token is inspected."""
    query: str = ""
    hits: tuple[range, ...] = ()
    """Matches of the search, as ranges of token indices."""
    log_end: int = 0
    """Number of log lines below the shown lines."""
    openings: Sequence[str] = ()
    """Beginnings of the first prompts, without control characters; empty unless prompts are listed."""
    chosen_prompt: int | None = None
    """Number of the prompt under the cursor of the list; None stands for the shown prompt."""
    prompt_filter: str = ""
    symbols: Symbols = "braille"
    keys: Keymap = field(default=KEYMAP, repr=False)
    waited_s: float = 0.0
    """Seconds since the start; 0 once there is a run."""
    speed: float = 1.0
    frozen: bool = False
    paused: bool = False
    recording: bool = False
    replaying: bool = False
    following: bool = False
    """Whether the recording is still being written by another process."""
    pending: Mapping[KnobName, float] = field(default_factory=dict)
    slider: KnobName = "tau_h"
    typed: str = ""
    place: TimelinePosition = field(default_factory=TimelinePosition)
    meters: Meters = field(default_factory=Meters)
    results: Results = field(default_factory=dict)
    preparing: str = ""
    """Progress of idle-time work for later rounds, as text."""
    stage: Stage | None = None
    """Stage of a round at which decoding is paused; None if it is not paused within a round."""
    touring: bool = False
    broke: str = ""
    """Reason of an automatic pause, without control characters."""
    pairs: Pairs = field(default_factory=dict)
    """Results of earlier runs for each compared pair of settings."""
    scale: Scale | None = None
    """Upper ends of the axes of all charts; None stands for the upper ends computed for the watched method."""
    whatif: WhatIf | None = None
    whatif_choice: Mapping[KnobName, float] | None = None
    """Knobs of the chosen what-if cell; None stands for the fastest cell."""
    gpus: Mapping[int, GpuLoad] = field(default_factory=dict)
    """Load of each GPU that reports it, by device number."""
    note: str = ""
    """Message on the effect of the last key press, without control characters."""

    @property
    def next_symbols(self) -> Symbols:
        return SYMBOLS[(SYMBOLS.index(self.symbols) + 1) % len(SYMBOLS)]

    @property
    def held_stage(self) -> Stage | None:
        """Stage at which decoding is paused; None also while a token is inspected."""
        return self.stage if self.inspected is None else None

    @property
    def number(self) -> int | None:
        """Number of the shown round, from 1; None before the first round."""
        if self.held_stage is not None:
            return nth(self.held_stage.event.round)
        return self.place.round or None

    @property
    def newest_state(self) -> RunState:
        """The newest state of the run, even if an earlier round is shown."""
        return self.state if self.whole is None else self.whole

    @property
    def inspected(self) -> Token | None:
        tokens = self.newest_state.lane.tokens
        return tokens[self.cursor] if self.cursor is not None and 0 <= self.cursor < len(tokens) else None
