"""What a loss does with a ratio: gates, filters, weights, and their parameters."""
