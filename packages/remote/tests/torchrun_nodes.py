"""Jobs of torchrun whose nodes are on this machine, each with a store of its own."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.children import descendants_of
from tests.support.served import free_port
from tests.support.waiting import until


class Nodes:
    """The agents of a job that runs a script with arguments: `count` nodes with `processes` processes each.

    The store of node K is in the folder `node-K` of `folder`; `environment` is added to that of every process.
    `elastic`: all processes are started again once if one fails.
    """

    def __init__(
        self,
        folder: Path,
        script: str,
        arguments: Sequence[str],
        count: int,
        processes: int = 1,
        *,
        elastic: bool = False,
        **environment: str,
    ) -> None:
        program = folder / "program.py"
        program.write_text(script)
        self.processes = processes
        self.outputs = [folder / f"output-{rank}" for rank in range(count)]
        port = free_port()
        restarts = ["--max-restarts=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=1"]
        static = ["--master-addr=127.0.0.1", f"--master-port={port}"]
        self.agents = []
        for rank, output in enumerate(self.outputs):
            own = {"ONECOPY_CACHE": str(folder / f"node-{rank}"), "OMP_NUM_THREADS": "1", **environment}
            command = [
                *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={count}", f"--nproc-per-node={processes}"),
                *(f"--node-rank={rank}", *(restarts if elastic else static)),
                *(str(program), *arguments),
            ]
            with output.open("w") as file:
                self.agents.append(
                    subprocess.Popen(
                        command, env=os.environ | own, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
                    )
                )

    def wait(self, done: str, only: int | None = None) -> list[str]:
        """Return the output of each agent when each of its processes has written `done`, or the agent has ended.

        An agent waits long for another one that failed, so that its end says little. `only`: one agent is waited for.
        """
        ranks = range(len(self.agents)) if only is None else [only]
        until(lambda: all(self._has(rank, done) for rank in ranks), "all nodes", seconds=300)
        return [output.read_text() for output in self.outputs]

    def _has(self, rank: int, done: str) -> bool:
        ended = self.agents[rank].poll() is not None  # before its output is read
        return ended or self.outputs[rank].read_text().count(done) >= self.processes

    def end(self) -> None:
        """End the agents that still run, and their processes, which have sessions of their own."""
        for agent in self.agents:
            for pid in (agent.pid, *descendants_of(agent.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            agent.wait()
