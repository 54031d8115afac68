"""The trainer: its parts against written-out formulas, its runs against recomputation, its recovery against a run
that never stopped."""
