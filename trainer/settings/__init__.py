"""What a user may ask for: presets, settings by name, what fits together, whole studies."""
