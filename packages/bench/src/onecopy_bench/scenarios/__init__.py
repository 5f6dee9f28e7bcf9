"""The scenarios, a file each: options, samples, tables and sentences; what runs in their processes is in `workers`.

A scenario makes turns, lets `engine.rounds` take the samples and returns a record. What is read by people (tables,
sentences, pictures) is computed from the record alone, so that an old record can be shown again.
"""
