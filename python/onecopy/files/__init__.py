"""Files of this machine: mappings, what identifies contents, what is in the page cache, which files a file names."""
