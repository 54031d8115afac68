"""The compact built-in trainer: real transformers, real off-policyness, complete per-token logs.

It knows the run format (`ratioscope`) and nothing of the analysis.
"""
