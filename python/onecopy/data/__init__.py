"""Python data in mapped files: rows, objects, results of functions, orders of examples."""
