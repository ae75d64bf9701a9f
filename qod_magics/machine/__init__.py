"""The kernel's machine: cores, directories and processes that end with the kernel, and the user's cache."""
