"""Staleness, or the update: the path from the sampler to the new policy, and what theory says of it."""
