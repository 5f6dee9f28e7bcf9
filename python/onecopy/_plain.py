"""Text that came from elsewhere, shown so that it cannot do anything.

A name out of a file, or of a process, may hold anything, an escape sequence that repaints the terminal among it.
"""

from __future__ import annotations

import unicodedata

_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def plain(text: str) -> str:
    r"""Return text in which control, invisible and undecodable characters are written as escapes.

    Examples
    --------
    >>> plain("a\x1b[31mb\nc")
    'a\\x1b[31mb\\nc'
    """
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in _UNSAFE else character
        for character in text
    )
