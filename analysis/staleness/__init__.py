"""How old the data are, and whether age hurts."""
