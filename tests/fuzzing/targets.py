"""Every way in, by name."""

from tests.fuzzing import asked, tables, words

TARGETS = {**tables.TARGETS, **words.TARGETS, **asked.TARGETS}
