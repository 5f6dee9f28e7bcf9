"""The command group `onecopy images`, and a module for each subcommand."""
