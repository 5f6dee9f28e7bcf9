"""Print the path of the safetensors file that an installed package carries: tools/find_model.py PACKAGE."""

import sys
from importlib.metadata import files


def main() -> int:
    """Print the largest one."""
    found = [file for file in files(sys.argv[1]) or [] if file.name.endswith(".safetensors")]
    if not found:
        print(f"the package {sys.argv[1]} carries no safetensors file", file=sys.stderr)
        return 1
    print(max((file.locate() for file in found), key=lambda path: path.stat().st_size))
    return 0


if __name__ == "__main__":
    sys.exit(main())
