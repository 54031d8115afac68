"""A run on disk: its tables, its manifest, its files and who writes them."""
