"""Time of one form of some work relative to another form, on the device."""

from statistics import median

import torch

from decoder.session.cuda_graph.slots import Work
from decoder.system.device import Mark

REPEATS = 30


def relative_time(work: Work, plain: Work, device: torch.device) -> float:
    """Median time of `work` as a share of the median time of `plain`; both run in turn."""
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(REPEATS):
        for repeated, times in zip((plain, work), seconds, strict=True):
            begun = Mark(device)
            repeated()
            end = Mark(device)
            end.wait()
            times.append(end.seconds_since(begun))
    return median(seconds[1]) / median(seconds[0])
