"""Imports `onecopy.auto` when a Python process under `onecopy run` starts.

`onecopy run` puts the folder of this file first in PYTHONPATH. If the environment contains another sitecustomize
module, it runs afterwards, as if this one did not exist. An error here must not end the program.
"""

import os
import sys


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes longer than the rest
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != here]  # noqa: PTH100
    try:
        import onecopy.auto  # noqa: F401
    except ImportError:  # another environment, without onecopy
        pass
    except Exception as error:
        sys.stderr.write(f"onecopy: process {os.getpid()} shares nothing: {type(error).__name__}: {error}\n")
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - the environment's own
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = _this


_this = sys.modules["sitecustomize"]
_start()
