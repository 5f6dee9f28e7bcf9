"""`silenced`: a context in which Pillow does not warn about large images."""

from __future__ import annotations

import threading
import warnings


class _Silenced:
    """Ignores Pillow's warning about large images while any thread is in the context. `max_bytes` limits their size.

    Warning filters belong to the process: if each thread saved and restored them, one thread could restore the filter
    that another had added, and the filter would then stay.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        """Add the filter, unless another thread has done so."""
        with self._lock:
            if not self._users:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.filterwarnings("ignore", "Image size .* could be decompression bomb")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        """Restore the filters, unless another thread is in the context."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._filters.__exit__(None, None, None)


silenced = _Silenced()
