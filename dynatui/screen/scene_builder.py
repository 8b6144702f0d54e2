"""Updates states from a source's records and builds the scene that panels draw; caches its expensive parts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from decoder.analysis.bottleneck import plain_pass_s
from decoder.analysis.what_if import WhatIf, what_if
from decoder.events import Knob, Round, Run
from decoder.knobs import KnobName
from decoder.session.steering import Stage
from decoder.tree_rules import Rules
from dynatui.gpu import GpuLoad, open_meters
from dynatui.knobs import rules_in_force
from dynatui.render.scene import Scene
from dynatui.screen.knob_editor import KnobEditor
from dynatui.sources.engine import EngineSource
from dynatui.sources.follow import FollowSource
from dynatui.sources.playback import TraceSource
from dynatui.state.run_state import Failure, Prompt, RunState
from dynatui.state.session_log import SessionLog, opening_of
from dynatui.state.timeline import Viewpoint
from dynatui.state.tokens import hits

Source: TypeAlias = EngineSource | TraceSource | FollowSource

_FORESEEN = 200
"""Largest number of events that one call of `read` reads ahead of a playback, to limit the time of a frame."""


@dataclass(frozen=True)
class News:
    failed: bool = False
    any: bool = False
    important: bool = False
    """Whether any new record is neither a round nor a knob change."""


class EventReader:
    def __init__(self, source: Source) -> None:
        self.viewpoint = Viewpoint()
        self.knob_editor = KnobEditor(source.controls) if source.controls else None
        self.session_log = SessionLog()
        self._source = source
        self._cursor = 0

    def read(self) -> News:
        records, any_new, failed, important = self._source.records, False, False, False
        while self._cursor < len(records):
            record = records[self._cursor]
            self._cursor += 1
            any_new = True
            important |= not isinstance(record, Round | Knob)
            failed = isinstance(record, Failure) or (failed and not isinstance(record, Run))
            if isinstance(record, Run):
                del records[: self._cursor - 1]
                self._cursor = 1
            self.viewpoint.take(record)
            self.session_log = self.session_log.apply(record, self.viewpoint.work.state)
            if self.knob_editor:
                self.knob_editor.take(record)
        if playback := self._source.playback:
            self.viewpoint.foresee(playback.events, Prompt(playback.number + 1, playback.count), _FORESEEN)
        return News(failed, any_new, important)


_GPU_S, _WHATIF_S, ADVICE_S = 1.0, 1.0, 5.0
"""Seconds between readings of the GPUs, between what-if estimates, and between estimates that only advice uses."""
_LOOKED_UP = 100
"""Largest number of prompts of a recording that are read for one scene, to limit the time of a frame."""
_IN_ROUNDS: frozenset[KnobName] = frozenset(("tau_h", "tau_l", "d0", "history"))
"""After a change of one of these knobs, earlier rounds still count in the what-if estimate: every round records tau_h,
tau_l and d0, and `history` switches a rule that changes only tau_h and d0."""


_ADVISED = frozenset({"whatif", "race", "work"})
"""Panels that show the what-if tables or advice from them."""


class SceneBuilder:
    def __init__(self, source: Source, event_reader: EventReader) -> None:
        self._source = source
        self._event_reader = event_reader
        self._began: float | None = None
        self._meters: Callable[[], Mapping[int, GpuLoad]] | None = None
        self._gpus = lru_cache(maxsize=1)(lambda _period: self._read_gpus())
        self._recorded = list[str]()
        self._opened = lru_cache(maxsize=1)(lambda prompts: tuple(map(opening_of, prompts)))
        self._estimate = lru_cache(maxsize=1)(lambda _period: self._what_if())

    def scene(self, before: Scene, now: float, *, visible: Collection[str]) -> Scene:
        """The scene at time `now`; parts that are expensive are computed only if a visible panel shows them."""
        source, viewpoint, editor = self._source, self._event_reader.viewpoint, self._event_reader.knob_editor
        controls, playback, state, whole = source.controls, source.playback, viewpoint.state, viewpoint.whole
        self._began = now if self._began is None else self._began
        return replace(
            before,
            state=state,
            whole=None if whole is state else whole,
            place=viewpoint.place(playback.length(state.watched)[0] if playback else 0),
            waited_s=now - self._began if state.run is None else 0.0,
            speed=source.speed,
            paused=source.paused,
            frozen=not viewpoint.live,
            recording=source.recorded is not None,
            replaying=playback is not None,
            following=controls is None and playback is None,
            hits=hits(before.query, [token.text for token in whole.lane.tokens]) if before.mode == "search" else (),
            pending=editor.pending(viewpoint.newest) if editor else {},
            stage=_stage(controls, state) if controls and viewpoint.live else None,
            broke=controls.broke if controls else "",
            preparing=controls.preparing if controls else "",
            pairs=self._event_reader.session_log.pairs,
            results=self._event_reader.session_log.results,
            gpus=self._gpus(now // _GPU_S),
            whatif=self._estimated(now, state, visible),
            openings=self._openings() if "prompts" in visible else (),
        )

    def _estimated(self, now: float, state: RunState, visible: Collection[str]) -> WhatIf | None:
        if _ADVISED.isdisjoint(visible):
            return None
        # A paused recording shows the estimate of the displayed round; during playback, an estimate for every round
        # would cost as much as the rest of the screen.
        at_rest = self._source.playback and (self._source.paused or not self._event_reader.viewpoint.live)
        seconds = _WHATIF_S if "whatif" in visible else ADVICE_S
        return self._estimate((now // seconds, len(state.lane.turns), state.rounds if at_rest else 0))

    def _openings(self) -> Sequence[str]:
        """Beginnings of the prompts; each call reads at most `_LOOKED_UP` further prompts of a recording."""
        if controls := self._source.controls:
            return self._opened(controls.session.prompts)
        if playback := self._source.playback:
            count = len(self._recorded)
            self._recorded += map(playback.opening, range(count, min(count + _LOOKED_UP, playback.count)))
        return tuple(self._recorded)

    def _read_gpus(self) -> Mapping[int, GpuLoad]:
        run = self._event_reader.viewpoint.work.state.run
        if self._meters is None and run is not None:
            self._meters = open_meters(run.ranks or [run.device])
        return self._meters() if self._meters else {}

    def _what_if(self) -> WhatIf | None:
        state = self._event_reader.viewpoint.state
        rules = rules_in_force(state)
        if not isinstance(rules, Rules):
            return None
        # The estimate holds only for the present rules, so rounds before the last change of any other knob are omitted.
        changes = state.lane.changes
        turned = [change.round for change in changes if change.by_user and change.name not in _IN_ROUNDS]
        rounds = state.lane.past[max(turned, default=0) :]
        return what_if(rounds, rules, plain_pass_s(state.race.tallies.get("ar")))


def _stage(controls: EngineSource, state: RunState) -> Stage | None:
    """The stage at which decoding is paused; None if it is not paused, or if the state lags behind the stage."""
    stage = controls.stage
    if stage is None:
        return None
    folded = state.watched, state.rounds - (stage.name == "committed")
    return stage if (stage.event.method, stage.event.round) == folded else None
