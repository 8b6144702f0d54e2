"""pytest plugin that runs one case of each test, the first or the last in turn: all take an hour on the fake device."""

from itertools import groupby

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the other cases."""
    by_test = [list(cases) for _, cases in groupby(items, lambda item: item.nodeid.partition("[")[0])]
    kept = {cases[-(number % 2)] for number, cases in enumerate(by_test)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
