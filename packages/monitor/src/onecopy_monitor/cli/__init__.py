"""The verbs that this package adds to the `onecopy` command, one module each, and code that they share."""
