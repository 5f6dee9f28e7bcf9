"""The scenarios: each with its options, its ways, its samples, its tables, and its command.

A scenario makes turns, lets `engine.rounds` take the samples and returns a record. What is read by people (tables,
sentences, pictures) is computed from the record alone, so that an old record can be shown again.
"""
