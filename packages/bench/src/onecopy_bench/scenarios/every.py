"""All scenarios, by name, and their commands."""

from __future__ import annotations

from onecopy_bench.scenarios import open as opening
from onecopy_bench.scenarios import programs, structs
from onecopy_bench.scenarios.images import scenario as images
from onecopy_bench.scenarios.models import scenario as models
from onecopy_bench.scenarios.monitor import scenario as monitor
from onecopy_bench.scenarios.nodes import scenario as nodes
from onecopy_bench.scenarios.open import keys
from onecopy_bench.scenarios.passes import crossover, warm
from onecopy_bench.scenarios.rows import records, share
from onecopy_bench.scenarios.start import scenario as start
from onecopy_bench.scenarios.unchanged import scenario as unchanged

MODULES = (
    opening, keys, programs, warm, crossover, structs, share, records, monitor, images, models, start, nodes, unchanged,
)  # fmt: skip
SCENARIOS = {module.NAME: module.SCENARIO for module in MODULES}
COMMANDS = tuple(module.command for module in MODULES)
