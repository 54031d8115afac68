"""What the loss threw away."""
