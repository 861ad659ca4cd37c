"""The one error of this package that a user is meant to read."""


class ReportError(RuntimeError):
    """Nothing can be shown; the message says what was looked for, where, and what to do."""
