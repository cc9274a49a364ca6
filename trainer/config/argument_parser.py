"""Report mistakes on the command line as UsageError, and suggest the option that was meant."""

import argparse
import difflib
import re
from typing import NoReturn

from trainer.errors import UsageError


class ArgumentParser(argparse.ArgumentParser):
    """Parses options; its errors are UsageErrors."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        # argparse's message begins "argument --lr: expected one argument".
        raise UsageError(re.sub(r"^argument (-[^:]*):", r"\1", message))

    def known_options(self) -> list[str]:
        """Return the names of all options."""
        return [name for action in self._actions for name in action.option_strings]

    def describe_unknown(self, word: str) -> str:
        """Return the error message for an argument that is no option."""
        option = word.partition("=")[0]
        if option.replace("_", "-") == "--work-load-list":
            reason = "every process takes an equal share of the batch, as all GPUs are of one kind"
            return f"{word} is not supported: {reason}"
        near = difflib.get_close_matches(option, self.known_options(), n=1)
        hint = f", did you mean {near[0]}" if near else ", see --help"
        return f"unknown argument {word!r}{hint}"
