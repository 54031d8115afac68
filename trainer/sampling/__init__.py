"""Who samples, when, with which version of the weights, and by which engine."""
