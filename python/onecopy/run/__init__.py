"""`onecopy run` and `onecopy hold`: replaced functions, their snapshots, what was called, what is kept in memory.

Importing this package loads none of its modules: it is imported before each program that is run.
"""
