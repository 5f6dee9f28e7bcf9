"""A worker of Celery that loads the model where `$LOADED` says: "import", or "process" (worker_process_init).

The broker and the results are files in `$BROKER`. `python tasks.py COUNT` asks until COUNT processes have answered.
"""

import json
import os
import sys
import time
from pathlib import Path

import model
from celery import Celery, group
from celery.signals import worker_process_init
from kombu.transport.filesystem import Channel

folder = Path(os.environ["BROKER"])
for name in ("queue", "unsent", "processed", "results", "control"):
    (folder / name).mkdir(exist_ok=True)


def put(_, queue, payload, **__):
    """Send a message: kombu shows the file before it has written it, so that a worker may read nothing."""
    name = f"{time.monotonic_ns()}.{queue}.msg"
    (folder / "unsent" / name).write_text(json.dumps(payload))
    (folder / "unsent" / name).rename(folder / "queue" / name)


Channel._put = put
app = Celery("tasks")
app.conf.update(
    broker_url="filesystem://",
    broker_transport_options={
        "data_folder_in": str(folder / "queue"),
        "data_folder_out": str(folder / "queue"),
        "control_folder": str(folder / "control"),
        "polling_interval": 0.05,
    },
    result_backend=f"file://{folder / 'results'}",
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    worker_proc_alive_timeout=60,  # processes that load a model take longer than the default of 4 s to start
)
loaded = [model.load()] if os.environ["LOADED"] == "import" and __name__ != "__main__" else []


@worker_process_init.connect
def load_in_process(**_):
    if not loaded:
        loaded.append(model.load())


@app.task(name="answer")
def answer():
    time.sleep(0.2)  # so that the other processes get the other tasks
    return model.answer(loaded[0])


if __name__ == "__main__":
    count, answers = int(sys.argv[1]), {}
    while len(answers) < count:
        for each in group(answer.s() for _ in range(count))().get(timeout=90):
            answers[each["pid"]] = each
    print(json.dumps(list(answers.values())))
