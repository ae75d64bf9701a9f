"""Run by the interpreter that PyFlink is installed for: submits SQL to a cluster and prints the job's id.

The only argument is a JSON file with `options` (of the table environment), `functions` (class name -> Java source;
compiled here by Flink's own compiler), `definitions` and `inserts`.
"""

import json
import sys
import zipfile
from pathlib import Path

from pyflink.common import Configuration
from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> int:
    """Submit all inserts as one job, so that a table with several readers is read once."""
    asked = Path(sys.argv[1])
    given = json.loads(asked.read_text("utf-8"))
    configuration = Configuration()
    for key, value in given["options"].items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for name, source in given["functions"].items():
        jar = compiled(name, source, asked.parent)
        tables.execute_sql(f"CREATE TEMPORARY FUNCTION {name} AS '{name}' LANGUAGE JAVA USING JAR '{jar.as_uri()}'")
    for statement in given["definitions"]:
        tables.execute_sql(statement)
    job = tables.create_statement_set()
    for statement in given["inserts"]:
        job.add_insert_sql(statement)
    client = job.execute().get_job_client()
    print(f"job {client.get_job_id()}")
    return 0


def compiled(name: str, source: str, where: Path) -> Path:
    """A jar with the classes of a Java source."""
    compiler = get_gateway().jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    path = where / f"{name}.jar"
    with zipfile.ZipFile(path, "w") as jar:
        classes = compiler.getBytecodes()
        for each in classes:
            jar.writestr(f"{each.replace('.', '/')}.class", bytes(classes[each]))
    return path


if __name__ == "__main__":
    sys.exit(main())
