"""The order of tests: `--order reverse`, or `--order 7` for a shuffle by that seed. No test depends on another."""

import random
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tiers").addoption("--order", metavar="reverse|SEED", help="run the tests in another order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reverse or shuffle modules, and the tests within each: fixtures of a module are made once."""
    order = config.getoption("--order")
    if order is None:
        return
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    mix = list[Any].reverse if order == "reverse" else random.Random(int(order)).shuffle
    groups = list(modules.values())
    for each in (groups, *groups):
        mix(each)
    items[:] = [item for group in groups for item in group]
