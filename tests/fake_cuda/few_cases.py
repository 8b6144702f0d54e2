"""pytest plugin that runs only the first and the last case of each test, since all take an hour on the fake device."""

from collections import defaultdict

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the other cases."""
    by_test = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        by_test[item.nodeid.partition("[")[0]].append(item)
    kept = {ends for cases in by_test.values() for ends in (cases[0], cases[-1])}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
