"""Settings of property tests: fixed examples, shrunk on failure, with nothing stored between runs."""

from hypothesis import HealthCheck, Phase, settings


def examples(count: int) -> settings:
    """Settings with `count` examples and no time limit per example."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
