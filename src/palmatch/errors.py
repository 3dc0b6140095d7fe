"""What can go wrong, in the user's words.

Every mistake that a user can make ends in an `InputError`: one sentence that says what was found, where, what was
expected and what to do. The command prints it and exits with status 2; a library caller catches a `ValueError`.
"""

from __future__ import annotations


class PalmatchError(Exception):
    """Anything that palmatch raises on purpose.

    Examples
    --------
    >>> import palmatch as pm
    >>> try:
    ...     pm.METHODS.find("twice")
    ... except pm.PalmatchError as error:
    ...     print(type(error).__name__)
    InputError

    References
    ----------
    Page "For engineers", [A batch, from Python][].
    """


class InputError(PalmatchError, ValueError):
    """The user's file or argument cannot be used; the message says why and what to do.

    Examples
    --------
    >>> import palmatch as pm
    >>> issubclass(pm.InputError, ValueError)
    True

    References
    ----------
    Page "For engineers", [A batch, from Python][].
    """


class MeaninglessSetting(UserWarning):
    """A setting under which the guarantee holds and says next to nothing; the message says why and what to do."""


class DidNotConverge(PalmatchError, RuntimeError):
    """The rounds went on past the caller's limit; nothing about the unfinished matching is returned.

    Examples
    --------
    >>> import palmatch as pm
    >>> issubclass(pm.DidNotConverge, RuntimeError)
    True

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], App. "Convergence".
    - Page "Choosing a method", [Why the published rounds lose][].
    """


class ProtocolError(PalmatchError, ValueError):
    """A message of a live game breaks the protocol and is refused; the text holds no private value."""


class TransportError(PalmatchError, OSError):
    """A live transport cannot be reached or has refused what was asked of it."""


class Refused(PalmatchError):
    """A device was given something that it must not act on: nothing was charged and nothing was sent.

    Attributes
    ----------
    code:
        The rule that was broken, in one word, the same in Python and in JavaScript.
    message:
        The same in a sentence: the text of the exception.

    Examples
    --------
    >>> from palmatch.errors import Refused
    >>> Refused("ratio", "A report is too likely from one cell.").code
    'ratio'

    References
    ----------
    - Page "For device developers", [What a device must do][].
    - Page "The guarantee", [Live: which party learns what][].
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str]]:
        return type(self), (self.code, str(self))


def in_a_sentence(error: BaseException) -> str:
    """Return the first line of what another library says, without its full stop, or else the kind of its error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
