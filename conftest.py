"""Plugins of all tests; pytest accepts `pytest_plugins` in the top folder only."""

pytest_plugins = [
    "tests.support.isolation",
    "tests.support.ledger",
    "tests.support.children",
    "tests.support.kernel",
    "tests.support.page_cache",
    "tests.support.small_disks",
    "tests.support.programs",
    "tests.support.safetensors_files",
    "tests.support.leaks",
]
