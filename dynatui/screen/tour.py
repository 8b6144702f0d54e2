"""The first round in slow motion, once: decoding is held at each of its stages, as in step mode, and then let go.

Knows the controls of a source and the clock, and nothing of how a stage is shown.
"""

from collections.abc import Mapping

from decoder.session.steering import StageName
from dynatui.sources.source import Source

HELD_S: Mapping[StageName, float] = {"drafted": 1.1, "verified": 1.1, "committed": 1.3}
"""How long each stage stands; under four seconds in all."""


class Tour:
    """Holds decoding from before its first round on."""

    def __init__(self, source: Source) -> None:
        self.running = True
        self._source = source
        self._begun = False
        self._stage: StageName | None = None
        self._since = 0.0
        source.set_paused(paused=True)

    def tick(self, now: float, *, decoding: bool) -> None:
        """Goes on to the next stage when it is time to; `decoding` once there is a run."""
        controls = self._source.controls
        if not self.running or controls is None:
            return
        if not self._source.paused:
            self.running = False
            return
        stage = controls.stage
        if stage is None:
            if decoding and not self._begun:
                self._begun = True
                controls.step()
        elif stage.name != self._stage:
            self._stage, self._since = stage.name, now
        elif now - self._since >= HELD_S[stage.name]:
            if stage.name == "committed":
                self.end()
            else:
                controls.step()

    def end(self) -> None:
        """Lets decoding go on."""
        if self.running:
            self.running = False
            self._source.set_paused(paused=False)
