"""What is measured beside a run: exact gradients, the noise floor, probes, prompts held out."""
