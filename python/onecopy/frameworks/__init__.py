"""Support for frameworks, with one file or folder per framework. Frameworks are imported on first use."""
