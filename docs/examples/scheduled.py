"""The hourly application as a task of Airflow: it processes what has come since its last run, and ends.

The exit code tells what happened: `skip_on_exit_code` could name one that is no failure.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "trips_by_zone",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # one kernel at a time holds the session
):
    BashOperator(
        task_id="per_zone",
        bash_command="exec python -m qod_magics run hourly.ipy --until now --for 50m --tolerate 10m",
        cwd="/srv/trips",
        execution_timeout=timedelta(minutes=55),
        retries=2,
        retry_delay=timedelta(minutes=1),
    )
