"""What is measured beside a run: exact distances, the noise floor, probes, prompts held out."""
