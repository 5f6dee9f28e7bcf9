"""What runs in the processes that are measured: for each scenario its ways, and the steps of a process.

Nothing here imports the command line, tables or pictures: their memory would be that of the process.
"""
