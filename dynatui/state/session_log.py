"""Totals of one session of the monitor, in bounded memory: runs, prompts, and tokens and times under each setting.

Events that are played again after a step back in a recording count once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from decoder.analysis.metrics import times_of_round
from decoder.analysis.paired import Comparison
from decoder.analysis.stalls import Stalls, Times, left_out_from
from decoder.events import End, Figures, Knob, Round, Run, Start, Summary
from decoder.knobs import KnobName
from decoder.prompt import AnyPrompt, as_prompt, with_category
from decoder.sampling.settings import Sampling
from dynatui.clean import clean_line
from dynatui.state.ab_comparison import KnobSetting, Measured, Pairs, measured, with_run
from dynatui.state.run_state import Prompt, Record, RunState

OPENING = 60
_MOST_LINES = 20
_MOST_SETTINGS = 64
_LEAST_ROUNDS = 5
"""A setting with fewer rounds does not count as tried: the user only passed it on the way to another knob value."""
_SHARED = frozenset(knob.name for knob in Sampling.knobs)
Results = Mapping[int, "Result"]
"""Results by prompt number, from 1."""


@dataclass(frozen=True)
class Result:
    """The figures of one run of the watched method."""

    opening: str
    method: str
    figures: Figures
    started_at: str = ""
    number: int = 1
    """Number of the prompt."""
    done: bool = False
    counted: int = 0
    """Number of the run's rounds that the totals for each setting already include."""

    def tells(self, other: "Result") -> bool:
        """Whether both results are of the same run, which a replay may show several times."""
        return (self.started_at, self.opening) == (other.started_at, other.opening)


@dataclass(frozen=True)
class Tried:
    tokens: int = 0
    times: Times = field(default_factory=Times)
    stalls: Stalls = field(default_factory=Stalls)

    @property
    def rounds(self) -> int:
        return self.times.rounds

    @property
    def rate(self) -> float:
        """Tokens per second, without the stalled rounds that `left_out_from` excludes."""
        left_out = self.stalls.from_level(left_out_from([self.stalls], self.rounds))
        return self.times.without(left_out).tokens_per_second or 0.0


@dataclass(frozen=True)
class SettingRow:
    """One setting that was tried. `alone` has the totals over all its rounds, on any text."""

    setting: KnobSetting
    alone: Tried
    measured: Measured | None
    """None for the baseline, and for settings that were never compared with the baseline on the same text."""
    is_baseline: bool = False

    @property
    def comparison(self) -> Comparison | None:
        return self.measured.comparison if self.measured else None

    @property
    def tokens_per_round(self) -> float | None:
        """Mean over the tokens that were compared with the baseline; without a comparison, over all rounds."""
        if self.comparison:
            return self.comparison.b.tokens / self.comparison.b.rounds
        return self.alone.tokens / self.alone.rounds if self.alone.rounds else None

    @property
    def tokens_per_second(self) -> float | None:
        """Rate over the same tokens as `tokens_per_round`."""
        return self.comparison.b.tokens / self.comparison.b.seconds if self.comparison else self.alone.rate or None


@dataclass(frozen=True)
class SettingsTried:
    baseline: KnobSetting
    """Side A of the latest comparison, else the first setting."""
    rows: tuple[SettingRow, ...]
    """The baseline first, then the other settings in the order in which they were tried."""

    @property
    def fastest(self) -> KnobSetting | None:
        """The fastest setting; None if no setting is clearly faster than the baseline."""
        found = {row.setting: row.comparison for row in self.rows if row.comparison}
        faster = {setting: each.rate.value for setting, each in found.items() if each.verdict == "faster"}
        return max(faster, key=faster.__getitem__, default=None)


@dataclass(frozen=True)
class SessionLog:
    state: RunState = field(default_factory=RunState)
    peak_bytes_by_rank: tuple[int, ...] = ()
    runs: tuple[Result, ...] = ()
    dropped: int = 0
    """Number of older runs that `runs` no longer contains."""
    tried: Mapping[KnobSetting, Tried] = field(default_factory=dict)
    pairs: Pairs = field(default_factory=dict)
    results: Results = field(default_factory=dict)
    counted: int = 0
    """Number of the present run's rounds that the totals already include, because the run was played before."""

    @property
    def watched(self) -> str:
        return next(iter(self.state.lanes), "")

    def apply(self, record: Record, state: RunState) -> "SessionLog":
        """`state` is the fold of all records so far, including `record`."""
        match record:
            case Prompt():
                return replace(self, results=noted(self.results, self.state))
            case Run():
                return self._begin(state)
            case Start() | Round() | Knob() | End() | Summary():
                return replace(self._advance(record, state), state=state)
            case _:
                return self

    def all_runs(self) -> tuple[Result, ...]:
        """The newest runs, including the run in progress once it has a round."""
        line = result_of(self.state, self.counted)
        if line is None or not line.counted:
            return self.runs
        return (*(run for run in self.runs if not run.tells(line)), line)

    def settings_tried(self) -> SettingsTried | None:
        """Tried settings of the method that was compared last, else of the watched method; None if there are none."""
        pairs = with_run(self.pairs, self.state)
        latest = [*pairs][-1] if pairs else None
        method = latest.b.method if latest else self.watched
        compared = (each for pair in pairs for each in pair if latest and pair.a == latest.a)
        lane = self.state.lanes.get(self.watched)
        present = KnobSetting.of(self.watched, lane.user_settings) if lane else None
        alone = (each for each, tried in self.tried.items() if tried.rounds >= _LEAST_ROUNDS or each == present)
        settings = [*(each for each in alone if each.method == method), *compared]
        if not settings:
            return None
        baseline = latest.a if latest else settings[0]
        found = {pair.b: measured(pairs, pair) for pair in pairs if pair.a == baseline != pair.b}
        rows = (
            SettingRow(setting, self.tried.get(setting, Tried()), found.get(setting), is_baseline=setting == baseline)
            for setting in dict.fromkeys((baseline, *settings))
        )
        return SettingsTried(baseline, tuple(rows))

    def _begin(self, state: RunState) -> "SessionLog":
        runs = self.all_runs()
        fresh = SessionLog(
            state=state,
            peak_bytes_by_rank=self.peak_bytes_by_rank,
            runs=runs[-_MOST_LINES:],
            dropped=self.dropped + len(runs[:-_MOST_LINES]),
            tried=self.tried,
            pairs=with_run(self.pairs, self.state),
            results=self.results,
        )
        begun = result_of(state)
        return replace(fresh, counted=max((line.counted for line in runs if begun and line.tells(begun)), default=0))

    def _advance(self, event: Start | Round | Knob | End | Summary, state: RunState) -> "SessionLog":
        if isinstance(event, Summary):
            return replace(self, peak_bytes_by_rank=state.peak_bytes_by_rank, results=noted(self.results, state))
        if clean_line(event.method) != self.watched:
            return self
        if isinstance(event, Round) and state.lanes[self.watched].settings.keys() - _SHARED:
            return self._count(event, state.lanes[self.watched].user_settings)
        return self

    def _count(self, event: Round, user_settings: Mapping[KnobName, float]) -> "SessionLog":
        if event.round < self.counted:
            return self
        setting = KnobSetting.of(self.watched, user_settings)
        before = self.tried.get(setting, Tried())
        round_times = times_of_round(event, event.t - self.state.race.tallies[self.watched].decode_s)
        after = Tried(
            before.tokens + len(event.committed),
            before.times.plus(round_times),
            before.stalls.with_round(event.stalled_s, round_times) if event.stalled_s else before.stalls,
        )
        tried = {**self.tried, setting: after}
        if len(tried) > _MOST_SETTINGS:
            del tried[min(self.tried, key=lambda key: self.tried[key].rounds)]
        return replace(self, tried=tried)


def result_of(state: RunState, counted: int = 0) -> Result | None:
    """The result so far of the run in `state`, of which `counted` rounds were counted before; None without a run."""
    run, watched = state.run, state.watched
    tally, figures = state.race.tallies.get(watched), state.figures().get(watched) or state.race.figures().get(watched)
    if run is None or tally is None or figures is None:
        return None
    done = state.done and all(end.reason not in ("stopped", "error") for end in state.ends.values())
    number, rounds = state.prompt.number if state.prompt else 1, max(counted, tally.rounds)
    return Result(opening_of(prompt_of(run)), watched, figures, run.started_at, number, done, rounds)


def noted(results: Results, state: RunState) -> Results:
    """`results` with the present figures of the run in `state` added, whether or not this run is finished."""
    result = result_of(state)
    if state.prompt is None or result is None or not result.figures.rounds:
        return results
    return {**results, result.number: result}


def prompt_of(run: Run) -> AnyPrompt:
    return with_category(run.prompt, run.category or "")


def opening_of(prompt: AnyPrompt) -> str:
    """The beginning of a prompt, after its category if it has one, on one line and without control characters."""
    whole = as_prompt(prompt)
    category = f"[{whole.category}] " if whole.category else ""
    return clean_line(" ".join(f"{category}{whole.text[: 4 * OPENING]}".split()))[:OPENING]
