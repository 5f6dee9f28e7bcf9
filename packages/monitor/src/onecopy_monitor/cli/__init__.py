"""The verbs that this package adds to the command `onecopy`, one module each, and what they share."""
