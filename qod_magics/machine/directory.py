"""A directory that goes when its owner does, also when that is killed."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from qod_magics.machine.child import GRACE_S, Child


class Directory:
    """A new temporary directory.

    A process that only waits stands beside it: its watchdog removes the directory if the kernel is killed, after the
    task managers, which write their checkpoints there, have ended.

    Raises:
        SetupError: that process can't be started; the directory is gone then.

    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
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
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(Exception):
            self._janitor.release()
