"""Rows of a dataset: what holds them (`peers`), what is read (`data`), and the scenarios `share` and `records`."""
