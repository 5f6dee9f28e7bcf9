"""Plugins of all tests, which pytest accepts in the top folder only, and how properties are tested."""

from hypothesis import HealthCheck, settings

# No deadline: the machine is shared. Fixtures that hold a folder serve all examples of a property.
settings.register_profile(
    "onecopy", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
settings.load_profile("onecopy")

pytest_plugins = [
    "tests.support.isolation",
    "tests.support.ledger",
    "tests.support.order",
    "tests.support.children",
    "tests.support.kernel",
    "tests.support.page_cache",
    "tests.support.small_disks",
    "tests.support.programs",
    "tests.support.safetensors_files",
    "tests.support.object_server",
    "tests.support.mounts",
    "tests.support.run_server",
    "tests.support.leaks",
    "tests.support.tested",
]
