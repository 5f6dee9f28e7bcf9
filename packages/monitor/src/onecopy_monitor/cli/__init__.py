"""The subcommands that this package adds to `onecopy`, with a module for each, and code that they share."""
