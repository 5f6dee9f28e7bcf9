"""Code that all packages use: sizes as text, argument checks, names of environment variables, and load reports."""
