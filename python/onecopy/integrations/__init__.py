"""One file per framework; each is loaded when one of its names is used, and loads its framework only where that is."""
