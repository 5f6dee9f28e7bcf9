"""One file or folder per framework; each imports its framework when it is first used."""
