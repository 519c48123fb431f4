"""The one exception that means "the input is wrong", as opposed to "searchlens is wrong"."""


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
