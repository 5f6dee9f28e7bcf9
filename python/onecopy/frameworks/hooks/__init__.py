"""Replacements for functions under `onecopy run`. `onecopy.run.hooks` loads a framework's module after its import."""
