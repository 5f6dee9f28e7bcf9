"""The verbs that this package adds to the command `onecopy`, with a module each, and shared code."""
