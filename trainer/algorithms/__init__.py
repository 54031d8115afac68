"""What is learned: an algorithm is a row of parts, a part a function."""
