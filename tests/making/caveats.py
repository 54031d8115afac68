"""Notes that tests put on numbers."""

from ratioscope.notes import Kind, Note

UNRELIABLE = Note(Kind.UNRELIABLE, "unreliable: made up")
