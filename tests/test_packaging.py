"""The package as a whole: versions agree, everything is packed, and the layers keep apart."""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import PackageNotFoundError, distributions, requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
FOLDERS = {"qod_magics": ROOT / "qod_magics", "qod_widgets": ROOT / "widgets"}  #: by import package

# --- versions ---------------------------------------------------------------------------------------------------------


@cache
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def values(section: str, option: str) -> list[str]:
    """The lines of an option of setup.cfg, without comments."""
    lines = setup_cfg()[section][option].splitlines()
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def requirements() -> list[Requirement]:
    """What setup.cfg asks for, the extras included."""
    extras = setup_cfg()["options.extras_require"]
    lines = [line for extra in extras for line in values("options.extras_require", extra)]
    return [Requirement(line) for line in [*values("options", "install_requires"), *lines]]


def pins() -> dict[str, Requirement]:
    """The lines of constraints.txt by normal name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    assert len({canonicalize_name(pin.name) for pin in found}) == len(found), "a package is named twice"
    return {canonicalize_name(pin.name): pin for pin in found}


def version_of(pin: Requirement) -> str:
    (specifier,) = pin.specifier
    assert specifier.operator == "==", f"{pin} is no exact version"
    assert "*" not in specifier.version, f"{pin} is no exact version"
    return specifier.version


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_each_dependency_is_bounded_and_its_constraint_lies_within(requirement: Requirement) -> None:
    operators = {specifier.operator for specifier in requirement.specifier}
    assert "==" in operators or {">=", "<"} <= operators, f"{requirement} has no bounds"
    pin = pins().get(canonicalize_name(requirement.name))
    assert pin is not None, f"constraints.txt lacks {requirement.name}"
    assert version_of(pin) in requirement.specifier


def test_the_constraints_hold_all_that_the_dependencies_pull_in() -> None:
    environment = default_environment()
    waiting = [(requirement.name, frozenset(requirement.extras)) for requirement in requirements()]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue  # an extra that this environment does without
        for needed in map(Requirement, lines):
            contexts = [{**environment, "extra": extra} for extra in extras or {""}]
            if needed.marker is None or any(needed.marker.evaluate(context) for context in contexts):
                waiting.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    assert len(seen) > len(requirements()) + 30, "the walk found too little to mean anything"
    assert {canonicalize_name(name) for name, _ in seen} - pins().keys() == set()


def test_all_constraints_are_exact() -> None:
    assert all(version_of(pin) for pin in pins().values())


def test_all_constraints_run_on_each_python_from_its_first_release_on() -> None:
    asked = {
        f"{found.name} {found.version}": found.metadata["Requires-Python"] or ""
        for found in distributions()
        if (pin := pins().get(canonicalize_name(found.name))) is not None and found.version == version_of(pin)
    }
    assert len(asked) > 50, "too few are installed in their pinned versions to mean anything"
    for python in ("3.11.0", "3.12.0", "3.13.0"):
        assert {name: asks for name, asks in asked.items() if python not in SpecifierSet(asks)} == {}, python


def test_there_is_one_spark_version() -> None:
    from qod_magics.machine.releases import SPARK_VERSION

    named = {
        match.group(1).decode()
        for path in tracked()
        for match in re.finditer(rb"pyspark(?:\[\w+\])?==([0-9][\w.]*)", path.read_bytes())
    }
    assert named == {SPARK_VERSION}


# --- what is packed ---------------------------------------------------------------------------------------------------


def test_every_package_is_listed() -> None:
    found = [
        ".".join((name, *path.parent.relative_to(folder).parts))
        for name, folder in FOLDERS.items()
        for path in folder.rglob("__init__.py")
    ]
    assert values("options", "packages") == sorted([*found, "qod_notebooks"])
    assert values("options", "package_dir") == ["qod_widgets = widgets", "qod_notebooks = notebooks"]


def test_every_folder_with_modules_is_a_package() -> None:
    for folder in FOLDERS.values():
        for path in folder.rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.parent.relative_to(ROOT)} lacks an __init__.py"


@pytest.mark.parametrize("package", [*FOLDERS, "qod_notebooks"])
def test_every_data_file_is_packed(package: str) -> None:
    folder = {**FOLDERS, "qod_notebooks": ROOT / "notebooks"}[package]
    patterns = setup_cfg()["options.package_data"][package].replace(",", " ").split()
    packed = {path for pattern in patterns for path in folder.glob(pattern)}
    data = {path for path in tracked() if folder in path.parents and path.suffix != ".py"}
    assert data - packed == set()


def test_the_ci_script_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)


# --- nothing of one machine -------------------------------------------------------------------------------------------

#: In pieces, so that this file holds none of them.
HOSTS = [
    ("py", "pi.org"),
    ("python", "hosted.org"),
    ("npm", "js.org"),
    ("yarn", "pkg.com"),
    ("crates", ".io"),
    ("proxy.", "golang.org"),
    ("repo1.", "maven.org"),
    ("repo.maven.", "apache.org"),
    ("deb.", "debian.org"),
    ("ana", "conda.org"),
]
PLACES = ["/wo" + "rk/", "/ro" + "ot/", "/ho" + r"me/\w", "/Us" + r"ers/\w", "/opt/" + "wheels", r"\.py" + "env/"]
FOREIGN = re.compile(
    "|".join([*(re.escape("".join(host)) for host in HOSTS), *(rf"(?<![\w.}}>]){place}" for place in PLACES)]).encode()
)


@cache
def tracked() -> tuple[Path, ...]:
    """The files that git knows, as far as they are there."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    return tuple(path for path in paths if path.is_file())


def test_no_file_names_a_package_registry_or_a_place_on_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in tracked()
        for match in FOREIGN.finditer(path.read_bytes())
    ]
    assert found == []


@pytest.mark.parametrize("text", ["see https://py" + "pi.org/x", "cd /wo" + "rk/main", "'/ro" + "ot/.m2'"])
def test_the_search_for_such_names_finds_them(text: str) -> None:
    assert FOREIGN.search(text.encode())


@pytest.mark.parametrize("text", ["net/wo" + "rk/x", "docs/ho" + "me/y", "pip install", "sc://host:15002"])
def test_and_nothing_else(text: str) -> None:
    assert not FOREIGN.search(text.encode())


# --- the layers -------------------------------------------------------------------------------------------------------

#: All that pure code may import: no clock, no threads, no I/O, no chance; numpy to reckon with, msgspec for structs.
PURE = {
    *("__future__", "abc", "array", "bisect", "collections", "copy", "dataclasses", "decimal", "difflib", "enum"),
    *(
        "fractions",
        "functools",
        "graphlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "msgspec",
        "numbers",
        "numpy",
        "operator",
    ),
    *("re", "statistics", "string", "sys", "textwrap", "types", "typing", "zlib"),
}
#: The registry of policies imports the one that is asked for.
REGISTRY = ROOT / "qod_magics" / "policies" / "__init__.py"
HEAVY = ["IPython", "altair", "confluent_kafka", "grpc", "ipywidgets", "jgo", "numpy", "pandas", "py4j", "pyspark"]


def modules(*parts: str) -> list[Path]:
    found = sorted((ROOT.joinpath(*parts)).rglob("*.py"))
    assert found, f"nothing in {'/'.join(parts)}"
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node; expressions, which hold none, are left out."""
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        below = getattr(node, block, ())
        for each in below if isinstance(below, list) else ():  # the body of a lambda is an expression
            yield each
            yield from statements(each)


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that `path` names in an import statement, wherever it stands; relative ones made absolute."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    if package[:1] == ["widgets"]:
        package[0] = "qod_widgets"
    for node in statements(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def is_in(module: str, packages: Collection[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def offences(paths: list[Path], forbidden: Collection[str]) -> list[str]:
    return [f"{path.relative_to(ROOT)}: {name}" for path in paths for name in imports(path) if is_in(name, forbidden)]


@pytest.mark.parametrize("layer", ["core", "lifecycle", "policies"])
def test_the_deciding_layers_are_pure(layer: str) -> None:
    allowed = {*PURE, "qod_magics.core", "qod_magics.errors", f"qod_magics.{layer}"}
    calls = {"open", "print", "input", "exec", "eval", "__import__"}
    found = []
    for path in modules("qod_magics", layer):
        more = {"importlib"} if path == REGISTRY else set()
        # `from qod_magics import core` names qod_magics as well as qod_magics.core: the latter counts
        named = [module for module in imports(path) if module != "qod_magics"]
        found += [f"{path.relative_to(ROOT)}: {module}" for module in named if not is_in(module, allowed | more)]
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in calls:
                found.append(f"{path.relative_to(ROOT)}: {node.func.id}()")
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys":
                assert node.attr in {"float_info", "maxsize"}, f"{path.relative_to(ROOT)}: sys.{node.attr}"
    assert found == []


#: What each room may import beside itself, `errors` and what is not ours.
ROOMS = {
    "core": set(),
    "lifecycle": set(),
    "policies": {"core"},
    "controller": {"core"},
    "machine": set(),
    "monitoring": {"controller", "core"},
    "data": {"core"},
    "estimate": set(),
    "formats": set(),
    "results": set(),
    "named": set(),
    "arguments": set(),
    "application": {"arguments", "estimate", "formats", "lifecycle", "sources"},
    "kafka": {"data", "machine"},
    "sources": {"kafka"},
    "spark": {"application", "core", "formats", "kafka", "lifecycle", "machine", "named", "sources"},
    "recordings": {"controller", "core", "policies"},
    "testing": {"controller", "core", "simulator"},
    "simulator": {"application", "controller", "core", "data", "kafka", "lifecycle", "policies", "recordings"},
    "reports": {"controller", "core", "qod_widgets", "recordings"},
    "qod_widgets": set(),  # the other direction only: it shows plain JSON
}
#: Packages with rooms of their own, from the ground up: each imports only from itself and those before it.
FLOORS = {
    "qod_magics.application": (
        "graph",
        "sql",
        "recipes",
        "streams",
        "merging",
        "application",
        "shed_keys",
        "tasks",
        "fingerprints",
        "weights",
        "chain",
        "cell",
    ),
    "qod_magics.spark": ("plans", "servers", "queries", "cluster", "metrics", "changes", "watcher", "runtime"),
    "qod_magics.simulator": ("messages", "buffers", "segments", "rates"),
    "qod_magics.simulator.rates": (
        "components",
        "simulation",
        "wiring",
        "queues",
        "cohorts",
        "engine",
        "reports",
        "observe",
        "instances",
        "nodes",
        "rescaling",
        "fusing",
        "cluster",
        "run",
        "fitting",
    ),
    "qod_magics.policies.stream_economics": (
        "requirements",
        "reach",
        "cost_fit",
        "learning",
        "placing",
        "sharing",
        "evidence",
        "reasons",
        "policy",
    ),
}
#: These are above all others; the one must not know the other's contents, but for the arguments of a command line.
ABOVE = {"session", "notebook", "commands"}


def test_policies_are_known_by_name_only() -> None:
    packages = {
        f"qod_magics.policies.{path.name}" for path in (ROOT / "qod_magics" / "policies").iterdir() if path.is_dir()
    }
    outside = [path for path in modules("qod_magics") if "policies" not in path.parts]
    assert offences([*outside, *modules("widgets")], packages) == []


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    parts = [*path.relative_to(ROOT).with_suffix("").parts]
    if parts[0] == "widgets":
        parts[0] = "qod_widgets"
    return ".".join(parts).removesuffix(".__init__")


@cache
def graph() -> dict[str, set[str]]:
    """Which of our modules each of them imports, wherever the import stands."""
    paths = {name_of(path): path for path in [*modules("qod_magics"), *modules("widgets")]}
    found: dict[str, set[str]] = {}
    for name, path in paths.items():
        named = set(imports(path)) & paths.keys() - {name}
        # `from a import b` names a as well as a.b: where that is a module, it alone counts
        found[name] = {each for each in named if not any(other.startswith(f"{each}.") for other in named)}
    return found


def room(name: str) -> str:
    """The room of a module: what comes after `qod_magics`, or `qod_widgets`."""
    parts = name.split(".")
    return parts[0] if parts[0] == "qod_widgets" else ".".join(parts[1:2])


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter(graph()).prepare()  # CycleError names a circle


def test_the_graph_has_the_imports() -> None:
    assert {"qod_magics.kafka.clusters", "qod_magics.session.handle", "qod_magics.session.settings"} <= graph()[
        "qod_magics.session.session"
    ]


@pytest.mark.parametrize("of", sorted(ROOMS))
def test_a_room_imports_what_is_below_it(of: str) -> None:
    found = {room(other) for name, others in graph().items() if room(name) == of for other in others}
    assert found - {of, "errors"} <= ROOMS[of]


def test_every_room_has_its_layer_and_nothing_else_lies_at_the_top() -> None:
    rooms = {room(name) for name in graph()}
    assert rooms == {"", "__main__", "errors"} | ROOMS.keys() | ABOVE


@pytest.mark.parametrize("package", FLOORS)
def test_the_rooms_of_a_package_stand_on_one_another(package: str) -> None:
    floors, within = FLOORS[package], f"{package}."

    def floor(name: str) -> int:
        return floors.index(name.removeprefix(within).split(".")[0])

    inside = {
        name: [other for other in others if other.startswith(within)]
        for name, others in graph().items()
        if name.startswith(within)
    }
    assert {floor(name) for name in inside} == set(range(len(floors)))
    assert [(name, other) for name, others in inside.items() for other in others if floor(other) > floor(name)] == []


def test_a_session_knows_no_notebook_and_no_command() -> None:
    found = {room(other) for name, others in graph().items() if room(name) == "session" for other in others}
    assert found.isdisjoint({"notebook", "commands"})


@pytest.mark.parametrize("layer", sorted(ROOMS.keys() - {"qod_widgets", "reports"}))
def test_what_is_below_a_session_shows_nothing(layer: str) -> None:
    assert offences(modules("qod_magics", layer), ["IPython", "ipywidgets", "altair", "qod_widgets"]) == []


def test_widgets_know_nothing_of_the_package_that_shows_them() -> None:
    assert offences(modules("widgets"), ["qod_magics", "pyspark", "py4j", "confluent_kafka", "jgo"]) == []


def test_only_the_face_imports_the_magics() -> None:
    others = [path for path in [*modules("qod_magics"), *modules("widgets")] if path != ROOT / "qod_magics/__init__.py"]
    assert offences(others, ["qod_magics.notebook.magics"]) == []


def loaded_by(code: str) -> set[str]:
    """The top names of all modules that are loaded after `code`, in an interpreter of its own."""
    names = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", f"{code}\n{names}"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return set(run.stdout.decode().split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import qod_magics").isdisjoint(HEAVY)


def test_importing_the_deciding_layers_loads_nothing_heavy() -> None:
    paths = [*modules("qod_magics", "core"), *modules("qod_magics", "policies")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    assert loaded_by("import " + ", ".join(names)) & set(HEAVY) <= {"numpy"}


@pytest.mark.kernel
def test_labs_simulations_and_recordings_need_neither_spark_nor_kafka() -> None:
    labs = [path for path in (ROOT / "notebooks").glob("lab*.ipynb") if not path.name.startswith(("lab1_", "lab12_"))]
    texts = [path.read_text("utf-8") for path in labs]
    imported = {name for text in texts for name in re.findall(r"(?:from|import) (qod_magics(?:\.\w+)*)", text)}
    commands = {f"qod_magics.commands.{name}" for name in ("simulate", "recordings", "plan", "doctor")}
    absent = "import sys; sys.modules.update(dict.fromkeys(('pyspark', 'confluent_kafka', 'findspark', 'grpc')))"
    assert len(imported) > 15
    loaded_by(f"{absent}\nimport qod_magics.notebook.replay, {', '.join(sorted(imported | commands))}")
