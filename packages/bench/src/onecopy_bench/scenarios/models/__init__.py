"""Models in ONNX Runtime and torch, loaded by several processes.

`scenario` has the command; processes that are measured do not import it.
"""
