"""Functions that `onecopy run` replaces. `onecopy.run.hooks` loads one module per framework after its import."""
