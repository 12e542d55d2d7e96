"""What PostgreSQL said, in one line."""


def said(error: Exception) -> str:
    """The server's primary message, or the first line of what the client says; below it are guesses at the cause."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    lines = [primary] if primary else [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
