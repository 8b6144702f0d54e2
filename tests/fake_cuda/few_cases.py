"""pytest plugin that runs only the first case of each test, since all cases take an hour on the fake device."""

from itertools import groupby

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the other cases."""
    kept = {next(cases) for _, cases in groupby(items, lambda item: item.nodeid.partition("[")[0])}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
