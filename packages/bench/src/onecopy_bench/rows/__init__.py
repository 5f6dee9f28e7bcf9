"""The scenario `share`: rows of a dataset (`data`), ways to hold them (`share_peers`), and the jobs (`share`)."""
