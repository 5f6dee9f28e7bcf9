"""Files at URLs, which are fetched into a store once per machine and mapped by all processes.

    model = oc.open("s3://bucket/model.safetensors")        # also gs://, az://, https:// and file://
    path = onecopy.remote.fetch("https://host/model.gguf")   # a local path, for other libraries

The first process on the machine to open a URL fetches it with parallel requests; the others wait and map the same file.
The file's key in the store consists of the URL, the entity tag and the size, so that a changed object is fetched again.
Credentials are neither stored nor logged. If a fetch fails or is killed, the next one resumes it. Connections are
made by obstore. `oc.ray`, the module `onecopy_remote.ray`, passes files to the tasks and actors of a Ray cluster.

The distribution onecopy-remote installs this package as ``onecopy_remote``, which is also available as
``onecopy.remote``.
"""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy_remote.fetching import fetch
    from onecopy_remote.origin import shown
    from onecopy_remote.transfer import CONNECTIONS

_HOMES = {"fetching": ("fetch",), "origin": ("shown",), "transfer": ("CONNECTIONS",)}
__all__ = ["CONNECTIONS", "fetch", "shown"]


if not TYPE_CHECKING:  # a type checker would accept every attribute name
    __getattr__ = lazy.attributes(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
