"""A terminal line with a limited number of frames per second; tests set its time."""

from dataclasses import dataclass, field

from dynatui.render.scene import Meters
from dynatui.screen.panel_app import FrameRate

FPS = 10.0


@dataclass
class SlowLine:
    frames_per_second: float
    frame_rate: FrameRate = field(default_factory=lambda: FrameRate(FPS))
    now: float = 0.0
    free_at: float = 0.0

    def run(self, seconds: float) -> int:
        drawn = 0
        for _ in range(round(seconds * FPS)):
            self.now += 1 / FPS
            if self.frame_rate.due(self.now, busy=self.now < self.free_at):
                drawn += 1
                self.free_at = self.now + 1 / self.frames_per_second
        return drawn

    def meters(self) -> Meters:
        self.now += 2.0
        return self.frame_rate.meters(self.now, cpu_s=0.0, sent_bytes=0)
