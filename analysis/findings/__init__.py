"""What a finding, a limit and a sentence about a run are."""
