"""What to do, in the words that several entries share."""

FRESHER = "Push weights to the sampler more often, buffer fewer batches, or drop tokens beyond epsilon_stale (S0 5.6)."
SMALLER = "Lower the learning rate, take fewer passes, or use a clip centred at rho_k (Method One or Two, S0 5.3)."
TRUNCATE = "Truncate or mask the ratio, or make the data fresher; until then, do not trust means of rho squared."
