"""What `onecopy bench monitor` compares: ways to look at the memory of processes, and processes to be looked at."""
