"""What a session shows in a notebook: its dashboard, made on first use. All of it ends with the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qod_magics.session.interface import SessionInterface
    from qod_magics.session.live_view import View


class Views:
    """The views of a session."""

    def __init__(self, session: SessionInterface) -> None:
        self._session = session
        self._dashboard: View | None = None

    def __repr__(self) -> str:
        return f"views of session {self._session.id}: {self._dashboard or 'no dashboard'}"

    @property
    def dashboard(self) -> View:
        """Dashboard and controls."""
        if self._dashboard is None:
            from qod_magics.session.live_view import View

            self._dashboard = View(self._session)
        return self._dashboard

    def close(self) -> None:
        """Leave them as they are now: nothing more is read or sent."""
        if self._dashboard is not None:
            self._dashboard.close()
