"""The commands of `python -m qod_magics`, a module each."""
