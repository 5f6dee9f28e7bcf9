"""What `onecopy run` replaces: one file per framework, loaded by `onecopy.run.hooks` after the import of that."""
