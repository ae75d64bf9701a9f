"""What the user declared: streams, recipes, restrictions; their validation, the DAG, and its fusion into tasks.

Pure but for recipes, which get a Spark session and DataFrames handed in; knows no Spark server, Kafka or IPython.
"""
