"""What a comparison comes to, in sentences."""
