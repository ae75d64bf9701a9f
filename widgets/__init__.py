"""Views of recordings and snapshots. They know plans and snapshots, and neither Spark nor Kafka.

Importing the package is cheap: what draws (Altair, pandas) is loaded with the module that needs it.
"""
