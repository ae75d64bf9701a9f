"""Rows and CPU in virtual time: vectorised, exact in rows."""
