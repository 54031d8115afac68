"""Bias or variance: which failure mode is it."""
