"""Errors of onecopy. The system refused: OSError and its built-in classes. The bytes are wrong: FormatError."""


class FormatError(ValueError):
    """The bytes of a file are not what its format asks for.

    The message names the file, the array or the byte, what was expected and what was found.
    """


class DataLost(OSError):
    """A mapped file lost bytes: it was truncated by another program, or the device failed.

    ``filename`` is the path, ``errno`` is EIO. Raised by calls that would otherwise have died of SIGBUS.
    """


class FileChanged(OSError):
    """The path leads to another file than the one that was opened or pickled, or the file was written since.

    ``filename`` is the path, ``errno`` is ESTALE.
    """
