"""Run a program of the system, such as git, without a terminal in which it could prompt."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_program(
    command: Sequence[str | Path],
    *,
    error: type[Exception],
    environment: Mapping[str, str],
    data: bytes = b"",
    folder: Path | None = None,
    timeout: float = 60,
    if_missing: str = "",
    if_slow: str = "",
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with `data` on its standard input and return its result, in English.

    Raises `error` where the program is missing, did not end in `timeout` seconds or was ended by a signal.
    if_missing, if_slow: the fix, which the message ends with.
    """
    try:
        result = subprocess.run(
            [str(part) for part in command],
            cwd=folder,
            env={**environment, "LC_ALL": "C"},
            input=data,
            capture_output=True,
            timeout=timeout,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise error(f"{command[0]} is not installed{if_missing}") from None
    except subprocess.TimeoutExpired:
        raise error(f"{command[0]} took more than {timeout:g} seconds{if_slow}") from None
    if result.returncode < 0:
        raise error(f"{command[0]} was killed by signal {-result.returncode}; run the same command again")
    return result


def last_error_line(result: subprocess.CompletedProcess[bytes]) -> str:
    """Return the last line of what a program said on its standard error."""
    return (result.stderr.decode(errors="replace").strip().splitlines() or ["failed"])[-1]
