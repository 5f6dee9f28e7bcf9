"""A pipeline of Dagster with an IO manager of onecopy: one step builds a table, four processes read one copy of it.

PIPELINE_FOLDER=outputs python examples/io_manager/pipeline.py
"""

import os
import time
from pathlib import Path

import dagster as dg
import numpy as np
from onecopy_io import OnecopyIOManager

import onecopy as oc
from onecopy.memory import proc

READERS, MEGABYTES = 4, 64
FOLDER = Path(os.environ["PIPELINE_FOLDER"]).absolute()


@dg.asset
def table() -> dict[str, np.ndarray]:
    """Build the table."""
    return {"weights": np.ones(MEGABYTES * 1_000_000 // 4, np.float32)}


def reader(number: int) -> dg.AssetsDefinition:
    """Return an asset that needs the table; its value is the share of this process in the memory of the table."""

    @dg.asset(name=f"share_{number}")
    def share(table: dict[str, np.ndarray]) -> float:
        table["weights"].sum()  # reads every page
        (FOLDER / f"ready-{number}").touch()
        while len(list(FOLDER.glob("ready-*"))) < READERS:
            time.sleep(0.01)
        found = sum(region.memory.pss for region in proc.regions_of(os.getpid(), FOLDER / "table.oc")) / 1e6
        (FOLDER / f"measured-{number}").touch()
        while len(list(FOLDER.glob("measured-*"))) < READERS:
            time.sleep(0.01)
        return found

    return share


def job() -> dg.JobDefinition:
    """Return the job, whose steps are processes."""
    return dg.Definitions(
        assets=[table, *map(reader, range(READERS))],
        resources={"io_manager": OnecopyIOManager(FOLDER)},
        jobs=[dg.define_asset_job("shares")],
        executor=dg.multiprocess_executor.configured({"max_concurrent": READERS}),
    ).resolve_job_def("shares")


def main() -> None:
    """Run the job, and add up."""
    with dg.DagsterInstance.local_temp() as instance:
        dg.execute_job(dg.reconstructable(job), instance, raise_on_error=True)
    total = sum(oc.load_object(FOLDER / f"share_{number}.oc", trusted=True) for number in range(READERS))
    print(f"{READERS} steps hold {total:.0f} MB of a table of {MEGABYTES} MB")


if __name__ == "__main__":
    main()
