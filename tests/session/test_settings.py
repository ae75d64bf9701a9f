"""What a session is told beside its cluster is looked at before anything is started."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from qod_magics.errors import KafkaError, SetupError, UsageProblem
from qod_magics.kafka.clusters import configure
from qod_magics.session.session import Session
from qod_magics.session.settings import SettingKeywords, Settings, check_kind, check_session
from tests.raising import breaks

NOBODY = "127.0.0.1:1"  #: a broker that is asked in vain

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"period_s": float("nan")}, "above 0", "period_s"),
    ({"headroom": 1.0}, "fraction", "headroom"),
    ({"record": "."}, "file", "record"),
    ({"record": "~"}, "file", "record"),
    ({"policy_name": "stream-economy"}, "exists", "stream-economy"),
]


@pytest.mark.parametrize(("options", "rule", "name"), WRONG)
def test_a_wrong_option_is_refused_before_kafka_is_asked(options: dict[str, Any], rule: str, name: str) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule, name=name)):
        Session.up(kafka=NOBODY, **options)
    with pytest.raises(UsageProblem, check=breaks(rule, name=name)):
        Session.attach(object(), kafka=NOBODY, **options)  # type: ignore[arg-type]


def test_an_option_that_there_is_not_is_refused_before_kafka_is_asked() -> None:
    with pytest.raises(TypeError, match="perod_s"):
        Session.up(kafka=NOBODY, perod_s=3.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="perod_s"):
        Session.attach(object(), kafka=NOBODY, perod_s=3.0)  # type: ignore[arg-type, call-arg]


@pytest.mark.parametrize(
    ("conf", "attributes"),
    [
        ({"spark.sql.adaptive.enabled": "true"}, {"rule": "ours", "name": "spark.sql.adaptive.enabled"}),
        ({"spark.sql.shuffle.partitions": "0"}, {"rule": "positive", "name": "spark.sql.shuffle.partitions"}),
        ({"spark.sql.shuffle.partitions": "8.5"}, {"rule": "positive", "value": "8.5"}),
        ({"spark.sql.session.timeZone": "Europe/Lisbon"}, {"rule": "ours"}),
        ({"spark.sql.streaming.checkpoint.fileChecksum.enabled": "true"}, {"rule": "ours"}),
        ({"spark.sql.streaming.checkpointLocation": "/x"}, {"rule": "ours"}),
        ({"spark.connect.grpc.binding.address": "0.0.0.0"}, {"rule": "ours"}),
        ({"spark.jars": "x"}, {"rule": "ours"}),
        ({"sql.ansi.enabled": "true"}, {"rule": "Spark setting"}),
    ],
)
def test_a_setting_that_running_queries_depend_on_is_refused(conf: dict[str, str], attributes: dict[str, str]) -> None:
    with pytest.raises(SetupError, check=breaks(**attributes)):
        Session.up(kafka=NOBODY, conf=conf)


@pytest.mark.parametrize("option", [{"packages": ["a:b:1"]}, {"jars": [__file__]}, {"conf": {"spark.x": "1"}}])
def test_jars_and_settings_need_a_local_task_manager(option: dict[str, Any]) -> None:
    [name] = option
    with pytest.raises(UsageProblem, check=breaks("a local one", name=name)):
        Session.up(kafka=NOBODY, task_managers=0, connect=["sc://127.0.0.1:1"], **option)
    with pytest.raises(UsageProblem, check=breaks("a local one", name=name)):
        Session.attach(object(), kafka=NOBODY, **option)  # type: ignore[arg-type]


def test_what_is_no_address_is_refused_before_anything_is_fetched_or_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QOD_CACHE", str(tmp_path / "cache"))
    with pytest.raises(KafkaError, check=breaks("host:port")):
        Session.up(kafka="nowhere")
    assert not (tmp_path / "cache").exists()


def test_options_of_the_other_kind_of_broker_are_refused() -> None:
    with pytest.raises(UsageProblem, check=breaks("own broker")):
        configure(None, {"sasl.username": "me"})
    with pytest.raises(UsageProblem, check=breaks("embedded broker")):
        configure(NOBODY, {}, {0})


def test_options_of_the_other_kind_of_task_manager_are_refused() -> None:
    check_kind("sc://there", {"ui": "http://there:4040"}, {"cpus": None, "jit": None})
    check_kind(None, {"ui": None}, {"cpus": [0], "jit": "c1"})
    with pytest.raises(UsageProblem, check=breaks("other kind", name="jit")):
        check_kind("sc://there", {"ui": None}, {"cpus": None, "jit": "c1"})
    with pytest.raises(UsageProblem, check=breaks("other kind", name="ui")):
        check_kind(None, {"ui": "http://there:4040"}, {"cpus": None})


def test_the_ends_of_what_is_allowed_are(tmp_path: Path) -> None:
    assert Settings(headroom=0.0, period_s=0.1, record=tmp_path / "run.jsonl").headroom == 0.0


def test_type_checkers_know_all_settings() -> None:
    found = {name: each.__forward_arg__ for name, each in SettingKeywords.__annotations__.items()}
    assert found == {each.name: each.type for each in fields(Settings)}


@pytest.mark.parametrize(
    ("url", "others", "name"), [("sc://h:1", {}, "url"), (None, {"cores": None, "jit": "c1"}, "jit")]
)
def test_a_spark_session_comes_without_other_options(url: str | None, others: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageProblem, check=breaks("other kind", name=name)):
        check_session(url, others)
    check_session(None, {"cores": None})
