"""Does it learn, how off-policy is it, can its log be trusted; what happened, since when, why, what to change."""
