"""The interface of the package ``safetensors`` on mappings of onecopy: change the import, and keep the program.

    from onecopy.safetensors.torch import load_file     # instead of: from safetensors.torch import load_file
    from onecopy.safetensors import safe_open           # instead of: from safetensors import safe_open

`onecopy.safetensors.numpy` has ``load_file``, ``save_file``, ``load`` and ``save``; `onecopy.safetensors.torch` has
these, ``load_model`` and ``save_model``. Signatures are those of safetensors 0.8. The package ``safetensors`` need not
be installed.

Arrays, and tensors on the CPU, are views of a copy-on-write mapping: nothing is read before it is used, all processes
of the machine share one copy, and code may write to what it loaded: a page that is written becomes private to its
process, and the file never changes. ``save_file`` writes a file that is laid out for mapping (`onecopy.save`).

**When not to use it.** In new programs: `onecopy.open` and `onecopy.torch` do more, with reports. Where the programs
must not be edited: ``onecopy run`` (`onecopy.auto`). docs/howto/coming-from.md lists what differs.
"""

from onecopy.safetensors.files import SafetensorError, safe_open

__all__ = ["SafetensorError", "safe_open"]
