"""Support for frameworks, with one file or folder each. A framework is imported on first use."""
