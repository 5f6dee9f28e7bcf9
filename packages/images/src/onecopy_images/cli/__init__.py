"""The verbs of `onecopy images`: the group, and one module each."""
