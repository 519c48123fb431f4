"""Exceptions whose message is all that a user needs: "the input is wrong", and "this run could not go on"."""


class InputError(Exception):
    """Something the user gave cannot be used.

    The command line prints it without a traceback and exits with status 2. Every message names the file or key, says
    what was found and what is allowed.

    Parameters
    ----------
    message : str
        What was given, where, and what is allowed.
    hint : str, optional
        What to do about it, as one sentence.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message}\nHint: {hint}" if hint else message)


class JobError(RuntimeError):
    """A job had to stop although its input may be right: an engine died, or too many searches failed.

    What it finished is kept. The command line prints the message without a traceback and exits with status 1.

    Parameters
    ----------
    message : str
        What happened.
    hint : str, optional
        What to do about it, as one sentence.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\nHint: {hint}" if hint else message)


class JobStoppedError(RuntimeError):
    """A job was told to end before it was done, and nothing is wrong with it: the same command goes on where it was.

    The command line prints the message, one line, and exits with status 75, which is what ``sysexits.h`` has for "try
    again".
    """
