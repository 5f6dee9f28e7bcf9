"""The command `onecopy import`, and the listing of records files by `onecopy ls`."""
