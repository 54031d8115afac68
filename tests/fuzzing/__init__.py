"""Fuzzing: whatever is in a log, a settings file, a link or a query is answered with numbers or with one sentence.

python -m tests.fuzzing 10            for ten minutes, with a tally by target
python -m tests.fuzzing 10 mapping    of one target
python -m tests.fuzzing.stress        extreme and honest runs, with time and memory

A target (`targets.TARGETS`) is a strategy for small plain values and a function that asks about one of them. What broke
is kept as such a value in `corpus.KEPT`, which the test run asks about, with a few new ones of each target.
"""
