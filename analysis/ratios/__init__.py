"""How heavy are the tails of the ratios."""
