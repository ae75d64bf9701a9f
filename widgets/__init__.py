"""The dashboard and its controls. They show plain JSON and know nothing of the package that makes it.

Importing the package is cheap: what draws is loaded with the module that needs it.
"""
