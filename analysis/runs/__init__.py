"""What is on disk: runs as folders, their tables as SQL relations, connections to ask them."""
