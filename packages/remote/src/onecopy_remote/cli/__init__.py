"""The command `onecopy fetch`."""
