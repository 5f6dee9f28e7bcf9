"""Code that all other folders use: sizes as text, argument checks, names of environment variables, and load reports."""
