"""The dashboard and its controls. They show plain JSON and do not depend on the package that makes it.

Importing the package is cheap: drawing libraries are loaded by the modules that need them.
"""
