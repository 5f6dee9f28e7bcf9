"""The verbs that this package adds to `onecopy images`, one module each."""
