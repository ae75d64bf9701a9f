"""The table of options: what it says is so."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from qod_magics.application.streams.keywords import stream_options
from qod_magics.application.streams.options import COMMAND, OPTIONS, RESUMING, StreamOptions
from qod_magics.application.streams.sink import KafkaTopic
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.errors import ApplicationError
from qod_magics.notebook.magics import QodMagics
from qod_magics.notebook.options import COMMANDS, CONFIGURED, RESTRICTIONS
from qod_magics.session.session import Session
from qod_magics.session.settings import Settings

#: What the magics make of some options, besides handing them on.
OF_CELLS = {"name", "source", "sql", "estimates", "dry_run", "sink_options", "upstream"}
SETTINGS = {each.name for each in fields(Settings)}


def parameters(method: object) -> set[str]:
    return set(inspect.signature(method).parameters)  # type: ignore[arg-type]


def test_each_command_has_a_method_and_each_option_a_name_of_its_own() -> None:
    for name, command in COMMANDS.items():
        assert callable(getattr(QodMagics, f"_{name.replace('-', '_')}"))
        assert len({row.name for row in command.options}) == len(command.options)
    for command in (COMMAND, *COMMANDS.values()):
        flags = [flag for row in command.options for flag in row.flags]
        assert len(set(flags)) == len(flags)
        assert all(row.help for row in command.options if not row.positional)


#: Options that name files of others: they are read before the session begins.
FILES = {"config", "kafka_config", "internal_kafka_config"}


@pytest.mark.parametrize(
    ("command", "method"),
    [("up", Session.up), ("attach", Session.attach), ("set", Session.set), ("add-tm", Session.add_task_manager)],
)
def test_options_are_keywords_of_the_method_that_is_called(command: str, method: object) -> None:
    asked = {row.name for row in COMMANDS[command].options} - ({"name"} if command == "attach" else set()) - FILES
    assert asked <= parameters(method) | SETTINGS


def test_an_option_of_a_cell_is_kept_by_the_declaration_or_by_its_topic() -> None:
    kept = {each.name for kind in (StreamDeclaration, TopicInput) for each in fields(kind)}
    assert {each.name for each in fields(StreamOptions)} - kept == OF_CELLS - {"name"}


def test_what_can_be_set_restarts_nothing() -> None:
    assert [row.name for row in RESTRICTIONS] == ["priority", "min_accuracy", "max_latency_s", "utility", "min_juice"]
    assert {row.name for row in RESTRICTIONS} <= RESUMING.keys()
    assert parameters(Session.set) == {"self", "name", *(row.name for row in RESTRICTIONS)}


def test_what_is_configured_is_a_default_of_up() -> None:
    assert {row.name for row in CONFIGURED} <= {row.name for row in COMMANDS["up"].options}
    traits = QodMagics.class_traits(config=True)
    for row in CONFIGURED:
        trait = traits[row.flag.removeprefix("--")]
        assert (trait.default_value or None) == row.default
        assert row.help in trait.help


def test_defaults_of_up_are_those_of_the_session() -> None:
    defaults = {each.name: each.default for each in fields(Settings)}
    defaults |= {each.name: each.default for each in inspect.signature(Session.up).parameters.values()}
    several = (
        "connect",
        "cores",
        "ui",
        "ui_headers",
        "spare_connect",
        "kafka_options",
        "internal_kafka_options",
        "packages",
        "jars",
        "conf",
    )
    same = {"task_managers": None, **{name: [] for name in several}}  # read otherwise
    for row in COMMANDS["up"].options:
        if row.name in FILES:
            assert row.default is None
            continue
        assert row.default == same.get(row.name, defaults[row.name]), row.name


# -- the Python API ----------------------------------------------------------------------------------------------------


def test_the_signature_has_the_options_and_their_defaults() -> None:
    known = inspect.signature(Session.stream).parameters
    assert "options" not in known
    for row in OPTIONS:
        assert (row.keyword in known) != row.cell_only
        if not row.cell_only:
            assert known[row.keyword].default == row.default
            assert f"{row.keyword}: " in (Session.stream.__doc__ or "")
    assert known["from_"].annotation == "str | Sequence[str]"
    assert str(known["schema"].annotation).startswith("str | DataType")


def test_values_are_taken_as_python_gives_them() -> None:
    given = {"topic": "t", "schema": "a INT", "shed_by": "a", "sink": "kafka:out", "fuse": False}
    assert stream_options("q", given) == StreamOptions(
        "q", topic="t", schema="a INT", shed_by=("a",), sink=KafkaTopic("out"), fuse=False
    )
    assert stream_options("q", {"from_": ["a", "b"]}).upstream == ("a", "b")


@pytest.mark.parametrize(("word", "hint"), [("prioritty", "'priority'"), ("dry_run", ""), ("upstream", "")])
def test_an_unknown_keyword_is_refused(word: str, hint: str) -> None:
    with pytest.raises(TypeError) as caught:
        stream_options("q", {word: 1})
    assert hint in str(caught.value)


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(ApplicationError):
        stream_options("q", {"schema": 3})
