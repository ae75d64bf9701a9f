"""What a user of the magics sees, in a shell in which nothing is started."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from qod_magics.application.application import Application
from qod_magics.application.cell import declaration_of
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.streams.options import OPTIONS, StreamOptions, parse_stream_line
from qod_magics.application.streams.sink import Memory, Named
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.controller.clock import ManualClock
from qod_magics.controller.journal import Journal, describe
from qod_magics.controller.log import DecisionLog
from qod_magics.errors import UsageProblem
from qod_magics.notebook.commands import Begun, Commands
from qod_magics.notebook.magics import QodMagics, expanded
from qod_magics.policies import DEFAULT_POLICY
from qod_magics.session.show import write_sample
from tests.results.rows import PER_ZONE, per_zone, result
from tests.texts import tells

COMMANDS = (
    *(
        "up",
        "attach",
        "down",
        "topic",
        "peek",
        "status",
        "watch",
        "show",
        "exact",
        "stop",
        "set",
        "why",
        "add-tm",
        "remove-tm",
        "cpu",
        "move",
        "scale",
    ),
    *("fuse", "unfuse"),
    *("metrics", "report", "policy", "pause", "period", "override", "resume"),
)


class Notebook:
    """A shell, and what its cells print."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell

    def run(self, cell: str) -> tuple[ExecutionResult, str]:
        with capture_output() as captured:
            result = self.shell.run_cell(cell)
        return result, captured.stdout + captured.stderr

    def shown(self, cell: str) -> str:
        """What a cell prints that must not fail."""
        result, printed = self.run(cell)
        assert result.success, printed
        return printed

    def problem(self, cell: str) -> str:
        """The one line that a cell fails with."""
        result, printed = self.run(cell)
        assert not result.success, printed
        lines = printed.rstrip("\n").split("\n")
        assert len(lines) == 1, printed
        assert "Traceback" not in printed
        return lines[0]

    @property
    def magics(self) -> QodMagics:
        (found,) = [one for one in self.shell.configurables if isinstance(one, QodMagics)]
        return found

    @property
    def loaded(self) -> bool:
        names = {name for kind in self.shell.magics_manager.magics.values() for name in kind}
        return bool(names & {"qod", "qod_stream"})


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A shell without the extension."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=config)
    yield Notebook(shell)
    shell.run_line_magic("unload_ext", "qod_magics")
    shell.restore_sys_module_state()
    InteractiveShell.clear_instance()
    atexit.unregister(shell.atexit_operations)  # else each shell stays until the end, and is cleared then: seconds


@pytest.fixture
def notebook(bare: Notebook) -> Notebook:
    """A shell with the extension, and nothing up."""
    bare.shown("%load_ext qod_magics")
    return bare


class Declaring:
    """In the place of a session: keeps what cells declare and starts nothing."""

    alive = True
    taken_by, keeper = "", None

    def __init__(self) -> None:
        self.application = Application()
        self.left: list[str] = []  #: after its end
        self.spark = object()  #: the Spark session for the notebook's batch work
        self.removed: tuple[str, bool] | None = None  #: a task manager, and whether it was killed
        self.stands_by = False  #: after its removal
        self.later = ""  #: when what is held takes effect
        self.hooks: list[object] = []

    def on_event(self, hook: object) -> None:
        self.hooks.append(hook)

    def cell(self, options: StreamOptions, body: str, namespace: Mapping[str, Any]) -> Declared:
        declaration = declaration_of(options, body, namespace, self.application)
        application = self.application.declare(declaration)
        if not options.dry_run:
            self.application = application
        return Declared(options.name)

    def remove_task_manager(self, id: str, *, kill: bool = False) -> bool:
        self.removed = id, kill
        return self.stands_by

    def add_task_manager(self, **options: Any) -> str:
        self.added = options
        return "tm2"

    def limit_cpu(self, task_manager: str, share: float) -> None:
        self.limits = {task_manager: share}

    def metrics(self, **options: Any) -> str:
        self.exported = options
        return "metrics are there"

    def exact(self, **options: Any) -> str:
        options.pop("say")("reading")
        self.again = options
        return "exact figures"

    def override(self, name: str, d: float | None) -> str:
        return self.later

    def down(self) -> list[str]:
        self.alive = False
        return self.left


class Declared:
    def __init__(self, name: str) -> None:
        self.name = name
        self.said = f"{name} is declared"


@pytest.fixture
def declaring(notebook: Notebook) -> Declaring:
    session = Declaring()
    notebook.magics.session = session
    return session


class Refusing:
    """In the place of the class of sessions: keeps what `%qod up` and `%qod attach` ask of it, and refuses."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def up(self, **options: Any) -> NoReturn:
        self.seen.update(options)
        raise UsageProblem("not today")

    def attach(self, spark: Any, **options: Any) -> NoReturn:
        self.up(**options)


@pytest.fixture
def asked(bare: Notebook, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `%qod up` and `%qod attach` ask of the session, which refuses."""
    refusing = Refusing()
    monkeypatch.setattr(Commands, "sessions", refusing)
    return refusing.seen


# -- one line for whatever is wrong ------------------------------------------------------------------------------------

BAD_LINES = {
    "%qod stat": "there is no %qod 'stat'. Did you mean 'status'? %qod alone lists them all.",
    "%qod frobnicate": "There are: add-tm, attach, cpu, down, exact, fuse, metrics, move ... (26 in all).",
    "%qod 'up": "closing",
    "%qod up --cores two": "--cores",
    "%qod up --cores 0": "1 core",
    "%qod up --cores 4711": "4711",
    "%qod up -n 0": "0",
    "%qod up --task 2": "'--task-managers'",
    "%qod up --kafka-cpu 1": "'--kafka-cpus'",
    "%qod up --kafka-cpus one": "'one'",
    "%qod up --kafka-cpus 4711": "4711",
    "%qod up --kafka-option acks": "'acks'",
    "%qod up --kafka h:1 --kafka-option a=1 --kafka-option a=2": "option a",
    "%qod up --connect localhost:15002": "sc://HOST:PORT",
    "%qod up --max-task-managers 2 --spare-connect http://a:1": "sc://HOST:PORT",
    "%qod up two": "'two'",
    "%qod up --max-task-managers two": "--max-task-managers",
    "%qod up -n 2 --max-task-managers 1": "--max-task-managers 1",
    "%qod up --no-standby": "--max-task-managers N",
    "%qod up --connect sc://a:1 --max-task-managers 2": "--spare-connect URL",
    "%qod up --max-task-manager 2": "'--max-task-managers'",
    "%qod up --jit fast": "'fast'",
    "%qod up --policy stream-economy": "'stream-economics'",
    "%qod up --headroom 1.5": "1.5",
    "%qod up --period 0": "0.0",
    "%qod up --period nan": "nan",
    "%qod up --record .": "'.'",
    "%qod up --kafka nowhere": "nowhere",
    "%qod attach": "'spark'",
    "%qod attach spork": "'spork'",
    "%qod down": "%qod up",
    "%qod status": "%qod up",
    "%qod status now": "'now'",
    "%qod watch": "%qod up",
    "%qod watch long": "'long'",
    "%qod watch 0": "%qod watch 0",
    "%qod watch nan": "%qod watch nan",
    "%qod show": "%qod show QUERY [--save FILE], or %qod show --from FILE",
    "%qod show Snk --from kept.jsonl": "%qod show QUERY [--save FILE], or %qod show --from FILE",
    "%qod show --from kept.jsonl --save again.jsonl": "%qod show QUERY [--save FILE], or %qod show --from FILE",
    "%qod show --from kept.jsonl": "kept.jsonl",
    "%qod show Snk --kind pie": "'pie'",
    "%qod show Snk --row 3": "'--rows'",
    "%qod show Snk": "%qod up",
    "%qod exact": "QUERY",
    "%qod exact Snk --from 10:00": "%qod exact QUERY --from TIME --to TIME",
    "%qod exact Snk --from 10:00 --to 10:10 --cpu most": "--cpu",
    "%qod exact Snk --from 10:00 --to 10:10": "%qod up",
    "%qod stop": "%qod stop NAME, or %qod stop --all",
    "%qod stop Snk --all": "%qod stop NAME, or %qod stop --all",
    "%qod stop Snk": "%qod up",
    "%qod set": "name",
    "%qod set Snk": "--priority",
    "%qod set Snk --priority high": "'high'",
    "%qod set Snk --priorty 2": "'--priority'",
    "%qod set Snk -a 0.5": "%qod up",
    "%qod why": "%qod up",
    "%qod policy auto": "%qod up",
    "%qod policy auto now": "'now'",
    "%qod policy henge settle_s=15 settle_s=16": "settle_s",
    "%qod policy henge settle_s=15": "%qod up",
    "%qod up --policy 'henge setle_s=15'": "'settle_s'",
    "%qod up --policy 'henge settle_s=-1'": "settle_s",
    "%qod up --policy 'auto settle_s=1'": "auto",
    "%qod pause scale": "%qod up",
    "%qod set Snk --max-latency soon": "'soon'",
    "%qod set Snk --max-latency 0": "--max-latency",
    "%qod set Snk --max-latency 0ms": "'0ms'",
    "%qod set Snk --utility -1": "--utility",
    "%qod set Snk --min-juice 1.5": "1.5",
    "%qod set Snk --min-juice 0": "0.0",
    "%qod set Snk --min-juice none": "%qod up",
    "%qod set Snk --max-latency 500ms": "%qod up",
    "%qod set Snk --max-latency none": "%qod up",
    "%qod why Snk": "%qod up",
    "%qod add-tm --cpus a": "'a'",
    "%qod add-tm": "%qod up",
    "%qod remove-tm": "%qod remove-tm ID [--kill], or %qod remove-tm --count N",
    "%qod remove-tm tm1 --count 1": "%qod remove-tm ID [--kill], or %qod remove-tm --count N",
    "%qod remove-tm --count 1 --kill": "%qod remove-tm ID [--kill], or %qod remove-tm --count N",
    "%qod remove-tm --count 1": "%qod up",
    "%qod remove-tm tm1": "%qod up",
    "%qod move Snk.1": "task_manager",
    "%qod move Snk.1 tm1": "%qod up",
    "%qod scale Snk": "parallelism",
    "%qod scale Snk two": "'two'",
    "%qod scale Snk 2": "%qod up",
    "%qod report": "%qod up",
    "%qod metrics --port 9400": "%qod up",
    "%qod pause": "%qod up",
    "%qod resume": "%qod up",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_one_line(notebook: Notebook, line: str) -> None:
    problem = notebook.problem(line)
    assert BAD_LINES[line] in problem
    assert problem.partition(":")[0] in ("UsageProblem", "KafkaError")
    assert notebook.magics.session is None


BAD_CELLS = {
    "%%qod_stream --topic trips\nsource": "NAME",
    "%%qod_stream a b\nsource": "NAME",
    "%%qod_stream 1a --topic t\nsource": "'1a'",
    "%%qod_stream a --tpic t\nsource": "'--topic'",
    "%%qod_stream a --topic\nsource": "--topic",
    "%%qod_stream a --schema 'id INT\nsource": "'id INT",
    "%%qod_stream a --schema id INT --topic t\nsource": "quotes",
    "%%qod_stream a --topic t -a 60%\nsource": "0.6",
    "%%qod_stream a --topic t --mode realtim\nsource": "'realtime'",
    "%%qod_stream a --topic t --sink parket:x\nsource": "'parquet'",
    "%%qod_stream a --topic t\nsource.where(": "source.where(",
    "%%qod_stream a --topic t\nx = source": "expression",
    "%%qod_stream a --topic t\nreturn source": "'return'",
    "%%qod_stream a --topic t\n'no stream'": "`source`",
    "%%qod_stream a --sql\nSELEC 1": "SQL",
    "%%qod_stream a\nCREATE TABLE t (a INT)": "SELECT",
    "%%qod_stream a\n# note\nSELECT * FROM trips": "--",
    "%%qod_stream a\nSELECT * FROM trips WHERE fare > :thresold": ":thresold",
    "%%qod_stream a\nSELECT * FROM trips WHERE fare > {threshold}": ":threshold",
    "%%qod_stream a\nSELECT * FROM trips WHERE fare > {{threshold}}": ":threshold",
    "%%qod_stream a\nSELECT * FROM trips WHERE fare > $threshold": ":threshold",
    "%%qod_stream a --sql\nSELECT * FROM tripz": "'trips'",
    "%%qod_stream a --from tripz\ntripz": "'trips'",
    "%%qod_stream a\n# nothing but a comment": "body",
    "%%qod_stream a\nsource": "`source`",
}


@pytest.mark.parametrize("cell", BAD_CELLS)
def test_a_bad_cell_is_one_line(notebook: Notebook, declaring: Declaring, cell: str) -> None:
    notebook.shown("%qod_stream trips --topic trips")
    problem = notebook.problem(cell)
    assert BAD_CELLS[cell] in problem
    assert problem.partition(":")[0] in ("UsageProblem", "ApplicationError")
    assert declaring.application.names == ("trips",)
    assert "a" not in notebook.shell.user_ns


GOOD_CELLS = {
    "a line that goes on": "%%qod_stream a --from trips \\\n   -p 1 \\\n   -a 0.5\ntrips",
    "quotes that go on": '%%qod_stream a --topic t --schema "zone INT,\n    fare DOUBLE" -p 1\nsource',
    "a comment": "%%qod_stream a --from trips -p 1  # don't shed\ntrips",
    "an indented body": "%%qod_stream a -p 1\n    rows = trips\n    rows.where('fare > 3')",
    "SQL": "%%qod_stream a -p 1\nSELECT * FROM trips WHERE fare > 30",
    "SQL after a comment": "%%qod_stream a -p 1\n-- dear ones\nSELECT * FROM trips WHERE fare > 30",
    "SQL with WITH": "%%qod_stream a -p 1\n  WITH t AS (SELECT * FROM trips)\n  SELECT * FROM t",
    "a comment behind the SQL": "%%qod_stream a -p 1\nSELECT * FROM trips; -- all of them",
    "a variable": "%%qod_stream a -p 1\nSELECT * FROM trips WHERE fare > :threshold AND zone IN (:zones)",
}


@pytest.mark.parametrize("cell", GOOD_CELLS.values(), ids=GOOD_CELLS)
def test_what_people_write_works(notebook: Notebook, declaring: Declaring, cell: str) -> None:
    notebook.shown("threshold, zones = 30, [1, 2]\n%qod_stream trips --topic trips")
    assert "a" in notebook.shown(cell).split()
    assert declaring.application["a"].priority == 1


def test_a_variable_in_sql_is_frozen_when_the_cell_runs(notebook: Notebook, declaring: Declaring) -> None:
    notebook.shown("threshold = 30\n%qod_stream trips --topic trips")
    cell = "%%qod_stream a -p 1\nSELECT * FROM trips WHERE fare > :threshold"
    notebook.shown(cell)
    before = declaring.application["a"]
    notebook.shown("threshold = 40")
    recipe = before.recipe
    assert isinstance(recipe, SqlRecipe)
    assert [(each.name, each.value) for each in recipe.parameters] == [("threshold", 30)]
    notebook.shown(cell)
    assert declaring.application["a"] != before


@pytest.mark.parametrize("given", ["--sink $write", "--sink=$write", "--sink '$write'"])
def test_a_function_is_named_by_its_variable_and_others_are_values(given: str) -> None:
    def write(batch: Any, number: int) -> None: ...

    line = expanded(f"q --topic $where -p {{2 + 1}} {given}", {"write": write, "where": "trips"})
    options = parse_stream_line(line)
    assert (options.topic, options.priority, options.sink) == ("trips", 3, Named("write"))
    assert expanded("q --registry http://${USER}:x", {}) == "q --registry http://${USER}:x"


def test_a_stream_without_a_session_says_what_to_do(notebook: Notebook) -> None:
    assert "begin with %qod up" in notebook.problem("%%qod_stream trips --topic trips\nsource")


def test_a_shedder_that_is_set_says_when_that_takes_effect(notebook: Notebook, declaring: Declaring) -> None:
    assert tells(notebook.shown("%qod override a>b 0.5"), "a>b", 0.5)
    declaring.later = "this takes effect later"
    assert tells(notebook.shown("%qod override a>b 0.5"), "a>b", 0.5, declaring.later)
    assert tells(notebook.shown("%qod override a>b auto"), "a>b", declaring.later)


def test_what_add_tm_does_not_say_is_the_sessions(notebook: Notebook, declaring: Declaring) -> None:
    """Then the standby is taken; `%config` is for sessions to come."""
    notebook.shown("%config QodMagics.jit = 'c1'")
    notebook.shown("%qod add-tm")
    assert set(declaring.added.values()) == {None}
    notebook.shown("%qod add-tm --jit full")
    assert declaring.added["jit"] == "full"


@pytest.mark.parametrize(("said", "share"), [("0.5", 0.5), ("1", 1.0)])
def test_the_cpu_of_a_task_manager_is_limited_by_a_command(
    notebook: Notebook, declaring: Declaring, said: str, share: float
) -> None:
    notebook.shown(f"%qod cpu tm1 {said}")
    assert declaring.limits == {"tm1": share}
    assert "a half" in notebook.problem("%qod cpu tm1 'a half'")
    assert "write 0.25" in notebook.problem("%qod cpu tm1 25%")


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_explains_itself(notebook: Notebook, command: str, flag: str) -> None:
    shown = notebook.shown(f"%qod {command} {flag}")
    assert shown.startswith(f"usage: %qod {command} [-h]")
    assert max(map(len, shown.splitlines())) <= 120


@pytest.mark.parametrize("line", ["%qod", "%qod -h", "%qod help"])
def test_qod_alone_lists_the_commands(notebook: Notebook, line: str) -> None:
    assert f"%qod {' | '.join(COMMANDS)}\n" in notebook.shown(line)


@pytest.mark.parametrize("cell", ["%%qod_stream --help\n\n", "%%qod_stream trips -h\nsource", "%qod_stream --help"])
def test_the_help_of_a_stream_tells_every_option(notebook: Notebook, cell: str) -> None:
    shown = notebook.shown(cell)
    assert all(option.flag in shown for option in OPTIONS)
    assert "trips" not in notebook.shell.user_ns


def test_a_cell_without_a_body_is_pointed_to_the_line(notebook: Notebook) -> None:
    assert tells(notebook.problem("%%qod_stream --help"), "%qod_stream")


# -- loading and unloading ---------------------------------------------------------------------------------------------


def test_it_loads_unloads_and_reloads_as_often_as_one_likes(bare: Notebook) -> None:
    for _ in range(2):
        bare.shown("%load_ext qod_magics")
        assert bare.loaded
        assert "%qod up" in bare.problem("%qod status")
        bare.shown("%reload_ext qod_magics\n%reload_ext qod_magics")
        assert "%qod up" in bare.problem("%qod status")
        bare.shown("%unload_ext qod_magics")
        assert not bare.loaded
        assert "`%qod`" in bare.problem("%qod status")
        assert "Cell magic `%%qod_stream` not found" in bare.problem("%%qod_stream a\nb")
        assert not [one for one in bare.shell.configurables if isinstance(one, QodMagics)]


def test_a_second_load_keeps_what_is_up(notebook: Notebook, declaring: Declaring) -> None:
    notebook.shown("%load_ext qod_magics")
    assert notebook.magics.session is declaring
    assert declaring.alive


def test_exact_figures_are_the_value_of_the_line(notebook: Notebook, declaring: Declaring) -> None:
    result, printed = notebook.run("%qod exact Snk --from 10:00 --to 10:10 --cpu 0.5 --merge")
    assert (result.result, printed.splitlines()[0]) == ("exact figures", "reading")
    span = {"name": "Snk", "from_": "10:00", "to": "10:10"}
    assert declaring.again == {**span, "margin_s": None, "cpu": 0.5, "merge": True}


@pytest.mark.parametrize("line", ["%unload_ext qod_magics", "%reload_ext qod_magics"])
def test_unloading_and_reloading_end_the_session(notebook: Notebook, declaring: Declaring, line: str) -> None:
    notebook.shell.user_ns["qod"] = declaring
    notebook.shown(line)
    assert not declaring.alive
    assert "qod" not in notebook.shell.user_ns


def test_only_one_session_is_up_at_a_time(notebook: Notebook, declaring: Declaring, asked: dict[str, Any]) -> None:
    assert "%qod down" in notebook.problem("%qod up")
    assert "%qod down" in notebook.problem("%qod attach")
    assert not asked


def test_a_second_up_with_the_same_options_goes_on(notebook: Notebook) -> None:
    session: Any = Declaring()
    notebook.magics.sessions = SimpleNamespace(up=lambda **_: session)
    notebook.shown("%qod up -n 2 --period 2")
    assert notebook.shown("%qod up -n 2 \\\n   --period 2  # of Run All") == "already up\n"
    assert tells(notebook.shown("%qod up"), "--task-managers 2, --period 2.0")
    assert "--period is 2.0, not 3.0 (%qod period SECONDS)" in notebook.problem("%qod up -n 2 --period 3")
    assert notebook.magics.session is session
    assert notebook.shell.user_ns["qod"] is session
    notebook.shown("%qod down")
    notebook.shown("%qod up --period 3")


# -- settings ----------------------------------------------------------------------------------------------------------


def test_config_shows_the_settings_and_what_they_mean(notebook: Notebook) -> None:
    shown = notebook.shown("%config QodMagics")
    for name in ("period", "headroom", "policy", "jit", "checkpoints", "quiet"):
        assert f"QodMagics.{name}=" in shown


def test_settings_are_the_defaults_of_up(notebook: Notebook, asked: dict[str, Any]) -> None:
    notebook.shown("%config QodMagics.period = 2.5\n%config QodMagics.jit = 'full'")
    notebook.shown("%config QodMagics.checkpoints = 's3a://bucket/here'")
    notebook.problem("%qod up --headroom 0.3")
    assert (asked["period_s"], asked["jit"], asked["headroom"]) == (2.5, "full", 0.3)
    assert asked["checkpoints"] == "s3a://bucket/here"


def test_settings_are_the_defaults_of_attach_too(notebook: Notebook, asked: dict[str, Any]) -> None:
    notebook.shell.user_ns["spark"] = SimpleNamespace(readStream=None)
    notebook.shown("%config QodMagics.period = 2.5\n%config QodMagics.headroom = 0.3")
    notebook.shown("%config QodMagics.checkpoints = 's3a://bucket/here'")
    notebook.problem("%qod attach")
    assert (asked["period_s"], asked["headroom"], asked["checkpoints"]) == (2.5, 0.3, "s3a://bucket/here")


def test_settings_of_a_profile_count_after_a_reload(bare: Notebook, asked: dict[str, Any]) -> None:
    bare.shell.config.QodMagics.period = 7.0
    for line in ("%load_ext qod_magics", "%reload_ext qod_magics"):
        bare.shown(line)
        bare.problem("%qod up")
        assert asked.pop("period_s") == 7.0


def test_quiet_says_nothing_on_success(notebook: Notebook, declaring: Declaring) -> None:
    assert notebook.shown("%qod_stream trips --topic trips")
    notebook.shown("%config QodMagics.quiet = True")
    assert notebook.shown("%qod_stream trips --topic trips") == ""


def test_a_log_level_shows_decisions_and_whole_errors(notebook: Notebook, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(DecisionLog(), None, ManualClock())
    shown = []
    for level in ("INFO", "DEBUG", ""):
        notebook.magics.log_level = level
        journal.fault(f"fault-{level}", describe(ValueError(f"no {level}")))
        shown.append(capsys.readouterr().err)
    info, debug, none = shown
    assert "WARNING qod_magics.controller.journal: fault-INFO: ValueError: no INFO" in info
    assert "Traceback" not in info
    assert "ValueError: no DEBUG" in debug
    assert none == ""


# -- what the lines mean -----------------------------------------------------------------------------------------------


def test_up_takes_the_notebooks_variables(notebook: Notebook, asked: dict[str, Any], tmp_path: Path) -> None:
    notebook.shell.user_ns.update(x=0, path=tmp_path, managers=[1, 2])
    notebook.problem("%qod up -n {len(managers)} --kafka-cpus $x --record $path/run.jsonl")
    assert (asked["task_managers"], asked["kafka_cpus"], asked["record"]) == (2, {0}, f"{tmp_path}/run.jsonl")


def test_a_path_with_spaces_goes_in_quotes(notebook: Notebook, asked: dict[str, Any]) -> None:
    notebook.shell.user_ns["path"] = Path("/my runs")
    notebook.problem('%qod up --record "$path/run 1.jsonl"')
    assert asked["record"] == "/my runs/run 1.jsonl"


def test_without_words_up_is_one_local_task_manager(notebook: Notebook, asked: dict[str, Any]) -> None:
    notebook.problem("%qod up")
    assert (asked["task_managers"], asked["connect"], asked["kafka"], asked["kafka_cpus"]) == (1, [], None, None)


@pytest.mark.parametrize(("words", "name"), [("", DEFAULT_POLICY), (" --policy stream-economics", "stream-economics")])
def test_the_best_policy_decides_unless_another_is_named(
    words: str, name: str, notebook: Notebook, asked: dict[str, Any]
) -> None:
    notebook.problem(f"%qod up{words}")
    assert asked["policy_name"] == name


def test_with_servers_to_connect_to_none_is_started(notebook: Notebook, asked: dict[str, Any]) -> None:
    notebook.problem("%qod up --connect sc://a:1 sc://b:2 --kafka-option a=b --kafka-option c=d=e --kafka h:1")
    assert (asked["task_managers"], asked["connect"]) == (0, ["sc://a:1", "sc://b:2"])
    assert (asked["kafka"], asked["kafka_options"]) == ("h:1", {"a": "b", "c": "d=e"})


def test_a_second_broker_has_options_of_its_own(notebook: Notebook, asked: dict[str, Any], tmp_path: Path) -> None:
    (file := tmp_path / "second.properties").write_text("bootstrap.servers=two:1\nclient.id=file\nclient.rack=r\n")
    notebook.problem(f"%qod up --kafka one:1 --internal-kafka-config {file} --internal-kafka-option client.id=line")
    assert (asked["kafka"], asked["kafka_options"]) == ("one:1", {})
    assert asked["internal_kafka"] == "two:1"
    assert asked["internal_kafka_options"] == {"client.id": "line", "client.rack": "r"}
    assert not [name for name in asked if name.endswith("config")]


def test_what_servers_do_not_tell_is_passed_on(notebook: Notebook, asked: dict[str, Any]) -> None:
    notebook.problem(
        "%qod up --connect sc://a:1 sc://b:2 --cores 4 2 --ui http://a:4040 none --ui-header 'A=Bearer b=c' --kafka h:1"
    )
    assert (asked["task_managers"], asked["connect"], asked["cores"]) == (0, ["sc://a:1", "sc://b:2"], [4, 2])
    assert (asked["ui"], asked["ui_headers"]) == (["http://a:4040", "none"], {"A": "Bearer b=c"})


def test_the_server_of_the_environment_is_the_task_manager_unless_another_is_asked_for(
    notebook: Notebook, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://a:1/;token=s3cret")
    for line, local, servers in (
        ("%qod up --cores 2", 0, ["sc://a:1/;token=s3cret"]),
        ("%qod up -n 1", 1, []),
        ("%qod up --connect sc://b:2", 0, ["sc://b:2"]),
    ):
        _, printed = notebook.run(line)
        assert (asked["task_managers"], asked["connect"]) == (local, servers)
        assert ("SPARK_REMOTE" in printed) == (servers == ["sc://a:1/;token=s3cret"])
        assert "s3cret" not in printed


def test_a_budget_is_passed_on(notebook: Notebook, asked: dict[str, Any]) -> None:
    notebook.problem("%qod up")
    assert (asked["max_task_managers"], asked["spare_connect"], asked["standby"]) == (None, [], True)
    notebook.problem("%qod up --max-task-managers 4 --spare-connect sc://a:1 sc://b:2 --no-standby")
    assert (asked["max_task_managers"], asked["standby"]) == (4, False)
    assert asked["spare_connect"] == ["sc://a:1", "sc://b:2"]


class Beside:
    """In the place of a session: has a Spark session for the notebook, one after the other."""

    alive = True
    taken_by, keeper = "", None

    def __init__(self) -> None:
        self.spark = object()
        self.hooks: list[object] = []

    def on_event(self, hook: object) -> None:
        self.hooks.append(hook)

    def down(self) -> list[str]:
        self.alive = False
        return []


def test_spark_is_bound_where_the_name_is_free(notebook: Notebook) -> None:
    names, session = notebook.shell.user_ns, Beside()
    notebook.magics._keep(Begun("up", {}, {}), session)  # type: ignore[arg-type]
    first = session.spark
    notebook.shown("1")
    assert names["spark"] is first
    session.spark = object()  # the task manager of the first one has left
    notebook.shown("assert spark is qod.spark")
    notebook.shown("spark = 'mine'")
    session.spark = object()
    notebook.shown("assert spark == 'mine'")
    notebook.shown("%qod down")
    assert names["spark"] == "mine"
    assert "qod" not in names


@pytest.mark.parametrize("terminal", [True, False])
def test_alarms_call_the_lines_of_a_shell_that_shows_them(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    if terminal:
        monkeypatch.setattr(notebook.shell, "mainloop", None, raising=False)
    session = Beside()
    notebook.magics._keep(Begun("up", {}, {}), session)  # type: ignore[arg-type]
    assert session.hooks == [notebook.magics.alarm_lines] * terminal


def test_a_spark_that_was_bound_goes_with_the_session(notebook: Notebook) -> None:
    names = notebook.shell.user_ns
    notebook.magics._keep(Begun("up", {}, {}), Beside())  # type: ignore[arg-type]
    notebook.shown("%qod down")
    assert "spark" not in names
    notebook.magics._keep(Begun("up", {}, {}), Beside())  # type: ignore[arg-type]
    assert names["spark"] is names["qod"].spark
    notebook.shown("%unload_ext qod_magics")
    assert {"spark", "qod"}.isdisjoint(names)


class Topics:
    """In the place of a session: keeps what topics are asked for."""

    alive = True
    taken_by, keeper = "", None

    def __init__(self) -> None:
        self.asked: list[tuple[str, int | None]] = []
        self.there: dict[str, int] = {}

    def topic(self, name: str, partitions: int | None) -> str:
        self.asked.append((name, partitions))
        return f"topic {name} created"

    def topics(self) -> dict[str, int]:
        return self.there

    def down(self) -> list[str]:
        return []


def test_topics(notebook: Notebook) -> None:
    notebook.magics.session = session = Topics()  # type: ignore[assignment]
    assert notebook.shown("%qod topic").count("\n") == 1
    session.there = {"trips": 4, "zones": 1}
    assert notebook.shown("%qod topic") == "trips  4 partitions\nzones  1 partition\n"
    assert tells(notebook.shown("%qod topic trips --partitions 4"), "trips")
    notebook.shown("%qod topic zones")
    assert session.asked == [("trips", 4), ("zones", None)]
    assert "name it, %qod topic NAME" in notebook.problem("%qod topic --partitions 4")


def test_one_that_stands_by_after_its_removal_is_not_gone(notebook: Notebook, declaring: Declaring) -> None:
    declaring.stands_by = True
    assert tells(notebook.shown("%qod remove-tm tm2"), "tm2")


def test_metrics_are_asked_for_by_their_options(notebook: Notebook, declaring: Declaring) -> None:
    none = {"port": None, "file": None, "token_file": None, "otlp": False, "off": False}
    for line, options in {
        "": {},
        " --port 9400 --token-file t": {"port": 9400, "token_file": "t"},
        " --file x.prom": {"file": "x.prom"},
        " --otlp": {"otlp": True},
        " --off": {"off": True},
    }.items():
        assert notebook.shown(f"%qod metrics{line}") == "metrics are there\n"
        assert declaring.exported == {**none, **options}


DDL = "id INT, place STRUCT<x: DOUBLE, y: DOUBLE>, tags ARRAY<STRING>"


@pytest.mark.parametrize("schema", [f'"{DDL}"', f"'{DDL}'", '"$DDL"', "'{DDL}'", "={DDL!r}"])
def test_ddl_with_spaces(notebook: Notebook, declaring: Declaring, schema: str) -> None:
    notebook.shell.user_ns["DDL"] = DDL
    option = f"--schema{schema}" if schema.startswith("=") else f"--schema {schema}"
    notebook.shown(f"%%qod_stream trips --topic trips {option} --starting earliest\nsource.where('id > 0')")
    assert declaring.application["trips"].inputs == TopicInput("trips", DDL, "earliest")


def test_a_variable_that_is_not_there_stays_as_it_is_written(notebook: Notebook, declaring: Declaring) -> None:
    notebook.shown('%%qod_stream trips --topic trips --schema "$NOPE"\nsource')
    assert declaring.application["trips"].inputs == TopicInput("trips", "$NOPE", "latest")


def test_the_body_is_taken_as_it_is(notebook: Notebook, declaring: Declaring) -> None:
    notebook.shell.user_ns["least"] = 3
    body = "# of $least and {least}\nkept = source.where(f'fare > {least}')\n\nkept  # the stream\n"
    notebook.shown(f"%%qod_stream trips --topic trips\n{body}")
    recipe = declaring.application["trips"].recipe
    assert recipe.source_text == body
    assert recipe.captured == {"least": 3}


@pytest.mark.parametrize("cell", ["%%qod_stream trips --topic t\n# as it comes\n\n", "%qod_stream trips --topic t"])
def test_without_a_body_a_stream_passes_its_input_through(notebook: Notebook, declaring: Declaring, cell: str) -> None:
    notebook.shown(cell)
    assert declaring.application["trips"].recipe.passes_through


def test_a_stream_is_bound_to_its_name_and_read_by_it(notebook: Notebook, declaring: Declaring) -> None:
    notebook.shown("%%qod_stream trips --topic trips\nsource")
    assert notebook.shell.user_ns["trips"].name == "trips"
    notebook.shown("%%qod_stream busy -p 2 -a 0.4\ntrips.groupBy('zone').count()")
    notebook.shown("%%qod_stream idle --sql --sink memory\nSELECT * FROM trips")
    assert declaring.application["busy"].upstream == declaring.application["idle"].upstream == ("trips",)
    assert (declaring.application["busy"].priority, declaring.application["busy"].min_accuracy) == (2, 0.4)
    assert declaring.application["idle"].sink == Memory()


def test_a_dry_run_binds_nothing(notebook: Notebook, declaring: Declaring) -> None:
    notebook.shown("%%qod_stream trips --topic trips --dry-run\nsource")
    assert "trips" not in notebook.shell.user_ns
    assert declaring.application.names == ()


def test_one_that_hangs_is_killed_where_that_is_asked_for(notebook: Notebook, declaring: Declaring) -> None:
    for words, kill in (("tm2", False), ("tm2 --kill", True)):
        assert notebook.shown(f"%qod remove-tm {words}") == "tm2 is gone\n"
        assert declaring.removed == ("tm2", kill)


def test_task_slots_are_the_users(notebook: Notebook, asked: dict[str, Any]) -> None:
    notebook.problem("%qod up --slots 7")
    assert asked["slots"] == 7


# -- results in a file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", " --kind bar --y trips", " --rows 1"])
def test_what_was_saved_is_shown_as_a_table_with_nothing_up(
    notebook: Notebook, tmp_path: Path, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "kept.jsonl"
    rows = [per_zone(0, 1, 5.0), per_zone(1, 1, 7.0)]
    write_sample(path, result(PER_ZONE, ("w", "zone"), rows), rows)
    lines = notebook.shown(f"%qod show --from ~/{path.name}{options}").splitlines()
    assert lines[0] == "per_zone, read at 12:00:00 UTC"
    assert lines[2].split() == ["2026-11-21", "12:00:10", "to", "12:00:20", "1", "7", "[6,", "8]", "17.5"]
    assert lines[-1] == "from kept.jsonl, saved at 2026-11-21 12:00:00 UTC"
    assert ("5 [4, 6]" in "".join(lines)) == (options != " --rows 1")
