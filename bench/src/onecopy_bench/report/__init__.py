"""Reports for readers: records as a Markdown page (`markdown`) and as a picture (`picture`, with matplotlib)."""
