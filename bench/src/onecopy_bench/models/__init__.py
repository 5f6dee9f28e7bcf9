"""What `onecopy bench models` compares: models that are made up, ways to open them, the process that does."""
