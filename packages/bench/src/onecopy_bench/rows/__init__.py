"""The scenario `share`: rows of a dataset (`data`), what holds them (`peers`), and the measured jobs (`share`)."""
