"""Every way in, by name."""

from tests.fuzzing import asked, marks, tables, words

TARGETS = {**tables.TARGETS, **marks.TARGETS, **words.TARGETS, **asked.TARGETS}
