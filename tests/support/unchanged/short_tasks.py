"""A scheduler that starts each task in a process of its own, four at the same time; the last four tasks answer."""

import subprocess
import sys

import model

if len(sys.argv) > 1:
    loaded = model.load()
    if sys.argv[1] == "answer":
        model.answer_together(loaded)
    sys.exit()
for task in "load", "answer":
    tasks = [subprocess.Popen([sys.executable, __file__, task]) for _ in range(4)]
    statuses = [each.wait() for each in tasks]
    if any(statuses):
        sys.exit("a task failed")
