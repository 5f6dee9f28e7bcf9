"""What a file is refused for, as tests compare it: the kind and the place of the error, and not its words."""

import onecopy as oc


def refusal(error: oc.FormatError) -> str:
    """Return "truncated at 12", or "malformed" where the place is unknown."""
    return error.kind.value + ("" if error.offset is None else f" at {error.offset}")
