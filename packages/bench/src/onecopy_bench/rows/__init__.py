"""The scenario `share`: rows of a dataset (`data`), their holders (`peers`), and the measured jobs (`share`)."""
