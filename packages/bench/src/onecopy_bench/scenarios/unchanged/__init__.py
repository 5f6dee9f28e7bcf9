"""Unmodified programs, as they are and with `onecopy.auto`.

`scenario` has the command; processes that are measured do not import it.
"""
