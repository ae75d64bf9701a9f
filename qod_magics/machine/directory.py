"""A directory removed with its owner, even if the owner is killed."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from qod_magics.errors import SetupError
from qod_magics.machine.child import GRACE_S, Child


def temporary(prefix: str) -> Path:
    """A new temporary directory. Raises SetupError: none can be made."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        raise SetupError(
            f"No temporary directory can be made: {error.strerror or error}. Make room, or set TMPDIR to another place."
        ) from error


class Directory:
    """A new temporary directory.

    An idle janitor process guards it: if the kernel is killed, the janitor's watchdog removes the directory after the
    task managers, which write their checkpoints there, have ended.

    Raises:
        SetupError: it can't be made; or the janitor can't be started, and it is removed.

    """

    def __init__(self, prefix: str) -> None:
        self.path = temporary(prefix)
        program = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(3600)"
        try:
            self._janitor = Child(
                [sys.executable, "-I", "-S", "-c", program],
                log_path=self.path / "janitor.log",
                remove=[self.path],
                grace_s=3.0 * GRACE_S,
            )
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Remove it with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(Exception):
            self._janitor.release()
