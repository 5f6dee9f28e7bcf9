"""The interface of the package ``safetensors``, implemented with mappings. Programs need only change their imports.

    from onecopy.safetensors.torch import load_file     # instead of: from safetensors.torch import load_file
    from onecopy.safetensors import safe_open           # instead of: from safetensors import safe_open

`onecopy.safetensors.numpy` provides ``load_file``, ``save_file``, ``load`` and ``save``; `onecopy.safetensors.torch`
also provides ``load_model`` and ``save_model``. Signatures are those of safetensors 0.8. The package ``safetensors``
need not be installed.

Arrays, and tensors on the CPU, are views of a copy-on-write mapping. Data is read on first access, and all processes on
the machine share one copy. Code may write to loaded data: a written page becomes private to its process, and the file
never changes. ``save_file`` writes a file that is laid out for mapping (`onecopy.save`).

**When not to use it.** In new programs, use `onecopy.open` and `onecopy.torch`, which offer more. In programs that
must not be edited, use ``onecopy run`` (`onecopy.auto`). docs/howto/coming-from.md lists the differences.
"""

from onecopy.safetensors.files import SafetensorError, safe_open

__all__ = ["SafetensorError", "safe_open"]
