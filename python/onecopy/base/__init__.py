"""Code that all other folders use: sizes as text, checks of arguments, names of environment variables, load reports."""
