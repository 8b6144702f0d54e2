"""The tour: shows the second round of the watched method with a pause at each stage of the round."""

from collections.abc import Mapping

from decoder.session.steering import StageName
from dynatui.sources.engine import EngineSource

HELD_S: Mapping[StageName, float] = {"drafted": 1.0, "verified": 1.0, "committed": 1.2}
_UNTIL_HELD = len(HELD_S) + 1
"""Number of steps from the start to the first stage of the second round."""


class Tour:
    def __init__(self, source: EngineSource) -> None:
        self.running = True
        self._source = source
        self._stage: StageName | None = None
        self._since = 0.0
        source.set_paused(paused=True)
        for _ in range(_UNTIL_HELD):
            source.step()

    def tick(self, now: float) -> None:
        if not self.running:
            return
        if not self._source.paused:
            self.running = False
            return
        stage = self._source.stage
        if stage is None:
            return
        if stage.name != self._stage:
            self._stage, self._since = stage.name, now
        elif now - self._since >= HELD_S[stage.name]:
            if stage.name == "committed":
                self.end()
            else:
                self._source.step()

    def end(self) -> None:
        if self.running:
            self.running = False
            self._source.set_paused(paused=False)
