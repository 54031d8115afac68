"""Errors that a user can cause: one sentence that says what, where and what to do; the command line prints it alone."""


class RatioscopeError(Exception):
    """Something the user can mend; `str(error)` is the whole message."""


class RunFormatError(RatioscopeError):
    """A file or folder does not follow the run format."""
