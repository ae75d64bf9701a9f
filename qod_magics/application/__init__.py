"""The user's declarations: streams, recipes, restrictions; their validation, the DAG, and its fusion into tasks.

Pure except for recipes, which take a Spark session and DataFrames; needs no Spark server, Kafka or IPython.
"""
