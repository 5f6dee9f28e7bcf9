"""What is asked of text that a terminal shows."""


def widest_of_tables(text: str) -> int:
    """Return the characters of the longest line of a table; sentences are folded by the terminal."""
    return max(len(line.rstrip()) for line in text.splitlines() if "  " in line.strip())
