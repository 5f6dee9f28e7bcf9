"""`onecopy bench SCENARIO`: a file for each scenario, and what their options, progress and tables share.

`group` is the command with everything below it; `data` and `passes` are the options and journals of two families of
scenarios, `tables` what is printed when they end.
"""
