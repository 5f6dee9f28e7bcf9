"""What all other folders use: sizes as text, checked arguments, names of environment variables, reports of a load."""
