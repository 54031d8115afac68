"""Processes of their own: actors that sample, workers that apply gradients."""
