"""What `onecopy bench start` compares: ways to have the weights in memory when a program has done its other work."""
