"""Functions that `onecopy run` replaces: one module per framework, which `onecopy.run.hooks` loads after its import."""
