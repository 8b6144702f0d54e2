"""How properties are tried: always the same examples, shrunk where one fails, and nothing is kept between runs."""

from hypothesis import HealthCheck, Phase, settings


def examples(count: int) -> settings:
    """So many of them; an example may take as long as it takes."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
