"""Options of `%qod up` from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qod_magics.arguments.parser import words_of
from qod_magics.errors import UsageProblem
from qod_magics.kafka.properties import spark_options
from qod_magics.notebook.files import client_properties, kafka_of, options_of, with_file
from qod_magics.notebook.options import COMMANDS
from tests.raising import breaks

UP = COMMANDS["up"]


def written(directory: Path, text: str) -> str:
    (directory / "qod.toml").write_text(text)
    return str(directory / "qod.toml")


def test_a_file_sets_what_the_line_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", 'a"b')
    file = written(
        tmp_path,
        """
task-managers = 2
period = 3
headroom = 0.2
policy = "henge"
no-standby = true
max-task-managers = 3
connect = ["sc://a:1", "sc://b:1"]
packages = "a:b:1,c:d:2"
jars = ["x.jar"]
kafka-cpus = "0,1"
[conf]
"spark.sql.extensions" = "io.delta.sql.DeltaSparkSessionExtension"
"spark.ui.retainedTasks" = 7
"spark.sql.ansi.enabled" = false
[kafka-option]
"sasl.password" = "${SECRET}"
""",
    )
    line = (
        "--task-managers 2 --period 3 --headroom 0.2 --policy henge --no-standby --max-task-managers 3 "
        "--connect sc://a:1 sc://b:1 --packages a:b:1,c:d:2 --jars x.jar --kafka-cpus 0,1 "
        "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
        "--conf spark.ui.retainedTasks=7 --conf spark.sql.ansi.enabled=false"
    )
    found = options_of(file, UP)
    assert found == UP.given([*words_of(line), "--kafka-option", 'sasl.password=a"b'])[0]
    assert UP.read(["--period", "9"], found).period_s == 9
    assert UP.read([], found).period_s == 3


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("perod = 3", {"rule": "exists", "name": "perod"}),
        ("config = 'other.toml'", {"rule": "exists", "name": "config"}),
        ("period = 'soon'", {"rule": "type", "option": "--period"}),
        ("period = [1, 2]", {"rule": "type", "option": "--period"}),
        ("period = 2026-01-01", {"rule": "type", "option": "--period"}),
        ("no-standby = 1", {"rule": "type", "option": "--no-standby"}),
        ("[period]\na = 1", {"rule": "type", "option": "--period"}),
        ("[conf]\na = []", {"rule": "type", "option": "--conf"}),
        ("jit = 'c3'", {"option": "--jit"}),
        ("kafka = '${NO_SUCH_VARIABLE}'", {"rule": "environment", "name": "NO_SUCH_VARIABLE"}),
        ("period =", {"rule": "TOML"}),
    ],
)
def test_what_a_file_can_not_set_is_one_line(tmp_path: Path, text: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem, check=breaks(**attributes)):
        options_of(written(tmp_path, text), UP)


def test_options_by_name_of_line_and_file_are_one_table(tmp_path: Path) -> None:
    file = written(tmp_path, '[kafka-option]\n"sasl.password" = "x"\n"client.id" = "file"\n[conf]\n"spark.a" = "1"')
    found = options_of(file, UP)
    given = with_file(UP.read(["--kafka-option", "client.id=line"], found), found, UP)
    assert given.kafka_options == ["sasl.password=x", "client.id=line"]
    assert given.conf == ["spark.a=1"]
    assert given.period_s == UP.read([]).period_s


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for name in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(UsageProblem, check=breaks("readable", name=str(name))):
            options_of(str(name), UP)
        with pytest.raises(UsageProblem, check=breaks("readable", name=str(name))):
            client_properties(str(name))


PROPERTIES = r"""
# of the operators
bootstrap.servers = one:9092,two:9092
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
ssl.ca.location=/etc/ca = 1.pem
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="me" \
    password="${SECRET}";
"""


def test_properties_are_options_of_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", 'a"b\\c')
    (file := tmp_path / "client.properties").write_text(PROPERTIES.replace("${SECRET}", 'x\\"y'))
    found = client_properties(str(file))
    assert found["sasl.username"] == "me"
    assert found["sasl.password"] == 'x"y'
    assert found["ssl.ca.location"] == "/etc/ca = 1.pem"
    assert "sasl.jaas.config" not in found

    file.write_text("sasl.username=me\nsasl.password=${SECRET}\nbootstrap.servers=one:9092\n")
    given = {"kafka": None, "kafka_config": str(file)}
    assert kafka_of(given, {"sasl.username": "you"}) == {
        "kafka": "one:9092",
        "kafka_options": {"sasl.username": "you", "sasl.password": 'a"b\\c'},
    }
    assert kafka_of({**given, "kafka": "two:1"}, {})["kafka"] == "two:1"
    assert kafka_of({"kafka": None, "kafka_config": None}, {}) == {"kafka": None, "kafka_options": {}}
    second = {"internal_kafka": None, "internal_kafka_config": str(file)}
    assert kafka_of(second, {}, "internal_kafka")["internal_kafka"] == "one:9092"
    with pytest.raises(UsageProblem, check=breaks("own broker", option="--internal-kafka-config")):
        kafka_of({**second, "internal_kafka": "own"}, {}, "internal_kafka")


@pytest.mark.parametrize(
    ("login", "password"),
    [
        ("""PlainLoginModule required username='me' password='x"y';""", 'x"y'),
        (r"""PlainLoginModule required username="me" password="x\\"y\\\\";""".replace("\\\\", "\\"), 'x"y\\'),
        ("""PlainLoginModule required username="me" password="${SECRET}";""", 'a"b\\c'),
    ],
)
def test_logins_are_read_as_java_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str, password: str
) -> None:
    monkeypatch.setenv("SECRET", 'a"b\\c')
    (file := tmp_path / "client.properties").write_text(f"sasl.jaas.config={login}\n")
    assert client_properties(str(file)) == {"sasl.username": "me", "sasl.password": password}


def test_a_login_without_a_password_is_refused_and_a_comment_goes_on_on_no_line(tmp_path: Path) -> None:
    (file := tmp_path / "client.properties").write_text("# see C:\\tmp\\\nsecurity.protocol=SASL_SSL\n")
    assert client_properties(str(file)) == {"security.protocol": "SASL_SSL"}
    file.write_text('sasl.jaas.config=OAuthBearerLoginModule required clientId="a" clientSecret="b";')
    with pytest.raises(UsageProblem, check=breaks("login")):
        client_properties(str(file))


def test_the_properties_that_amazon_gives_for_msk_are_taken_as_they_are(tmp_path: Path) -> None:
    login, handler = (f"software.amazon.msk.auth.iam.{name}" for name in ("IAMLoginModule", "IAMClientCallbackHandler"))
    lines = ("security.protocol=SASL_SSL", "sasl.mechanism=AWS_MSK_IAM", f"sasl.jaas.config={login} required;")
    file = tmp_path / "client.properties"
    file.write_text("\n".join([*lines, f"sasl.client.callback.handler.class={handler}"]))
    found = client_properties(str(file))
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": f"{login} required;",
        "kafka.sasl.client.callback.handler.class": handler,
    }
    assert spark_options(found)["kafka.sasl.client.callback.handler.class"] == handler
    of_a_role = f'{login} required awsRoleArn="arn:aws:iam::1:role/reader" awsDebugCreds=true;'
    file.write_text("\n".join([*lines[:2], f"sasl.jaas.config={of_a_role}"]))
    java = spark_options(client_properties(str(file)))
    assert java["kafka.sasl.jaas.config"] == of_a_role
    assert java["kafka.sasl.client.callback.handler.class"] == handler, "the file need not name it"
    file.write_text(f'sasl.jaas.config={login} required awsRoleArn="arn" more;')
    with pytest.raises(UsageProblem, check=breaks("login")):
        client_properties(str(file))


def test_a_line_without_a_value_is_named(tmp_path: Path) -> None:
    (file := tmp_path / "client.properties").write_text("a=1\n\nb\n")
    with pytest.raises(UsageProblem, check=breaks("NAME=VALUE")):
        client_properties(str(file))
