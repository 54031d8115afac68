"""What is trained: the language model, its precision, its characters and the weights that it starts from."""
