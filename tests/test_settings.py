"""A1, A2, A3, B11: which target the flags, the environment and the config file describe."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai4s.jobq.coordinator.settings import CoordinatorSettings
from ai4s.jobq.errors import SettingsError
from ai4s.jobq.settings import (
    EmulatorPorts,
    NotConfiguredError,
    Source,
    default_local_dir,
    emulator_ports,
    resolve_queue,
    resolve_target,
    settings_from,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without a config file."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def environ(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder / "home")}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_argument_wins_over_environment_and_file(folder: Path, environ: dict[str, str]) -> None:
    write(folder / "jobq.yaml", "connection: {storage: acct3, prefix: File}")
    environ["JOBQ_WORKFLOW_PREFIX"] = "acct2/Env"

    target = resolve_target("acct1/Arg", environ=environ)

    assert target.name == "acct1/Arg"
    assert target.sources["storage"] is Source.ARGUMENT


def test_the_environment_wins_over_the_file(folder: Path, environ: dict[str, str]) -> None:
    write(folder / "jobq.yaml", "connection: {storage: acct3, prefix: File, queues: acct4}")
    environ["JOBQ_WORKFLOW_PREFIX"] = "acct2/Env"

    target = resolve_target(environ=environ)

    assert (target.name, target.queue_account) == ("acct2/Env", "acct4")
    assert (target.sources["storage"], target.sources["queues"]) == (Source.ENV, Source.FILE)


@pytest.mark.parametrize(
    ("flags", "variables", "expected"),
    [
        ({}, {}, ("acct1", "acct1", "jobq-workflow-data")),
        ({}, {"JOBQ_WORKFLOW_QUEUES": "acct2"}, ("acct2", "acct1", "jobq-workflow-data")),
        ({"queues": "acct5"}, {"JOBQ_WORKFLOW_QUEUES": "acct2"}, ("acct5", "acct1", "jobq-workflow-data")),
        ({}, {"JOBQ_WORKFLOW_BLOBS": "acct3/box-1"}, ("acct1", "acct3", "box-1")),
        ({"blobs": "acct6/box-2"}, {"JOBQ_WORKFLOW_BLOBS": "acct3/box-1"}, ("acct1", "acct6", "box-2")),
    ],
)
def test_queues_and_blobs_may_be_elsewhere(
    environ: dict[str, str], flags: dict[str, str], variables: dict[str, str], expected: tuple[str, str, str]
) -> None:
    target = resolve_target("acct1/P", **flags, environ={**environ, **variables})

    assert (target.queue_account, target.blob_account, target.container) == expected


def test_the_first_config_file_in_line_is_read(folder: Path, environ: dict[str, str]) -> None:
    places = [
        write(folder / "home/.config/ai4s-jobq/jobq.yaml", "connection: {storage: acct1, prefix: User}"),
        write(folder / ".jobq.yaml", "connection: {storage: acct1, prefix: Hidden}"),
        write(folder / "jobq.yaml", "connection: {storage: acct1, prefix: Plain}"),
        write(folder / "env.yaml", "connection: {storage: acct1, prefix: Env}"),
        write(folder / "flag.yaml", "connection: {storage: acct1, prefix: Flag}"),
    ]
    environ["JOBQ_WORKFLOW_CONFIG"] = str(places[3])

    assert resolve_target(config=str(places[4]), environ=environ).prefix == "Flag"
    for place, name in reversed(list(zip(places[:4], ("User", "Hidden", "Plain", "Env"), strict=True))):
        assert resolve_target(environ=environ).prefix == name
        assert resolve_target(environ=environ).config_path == place
        place.unlink()
        environ.pop("JOBQ_WORKFLOW_CONFIG", None)


def test_nothing_configured_says_what_is_missing_and_how_to_say_it(environ: dict[str, str]) -> None:
    with pytest.raises(NotConfiguredError) as caught:
        resolve_target(environ=environ)

    message = str(caught.value)
    assert message.startswith("Workflow storage account and prefix not configured.")
    assert "JOBQ_WORKFLOW_PREFIX" in message
    assert "jobq.yaml" in message


def test_a_file_with_half_a_target_names_the_other_half(folder: Path, environ: dict[str, str]) -> None:
    write(folder / "jobq.yaml", "connection: {storage: acct1}")

    with pytest.raises(NotConfiguredError, match="Workflow storage prefix not configured"):
        resolve_target(environ=environ, fallback="local/default")


def test_the_fallback_is_used_when_nothing_is_configured(environ: dict[str, str]) -> None:
    assert resolve_target(environ=environ, fallback="local/default").name == "local/default"


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("acct", "Missing prefix in JOBQ_WORKFLOW_PREFIX"),
        ("acct/", "Both segments must be non-empty"),
        ("/p", "Both segments must be non-empty"),
        ("acct/my-proj", "'my-proj' is no prefix"),
        ("acct/1st", "'1st' is no prefix"),
        ("acct/a/b", "'acct/a' is no storage account"),
        (" acct/p ", "' acct' is no storage account"),
        ("Acct/p", "'Acct' is no storage account"),
        ("acct/" + "x" * 43, "at most 42"),
        ("https://acct/p", "cannot be a URL or connection string"),
        ("AccountName=a;AccountKey=s3cr3t/p", "cannot be a URL or connection string"),
    ],
)
def test_a_malformed_target_says_what_is_wrong(environ: dict[str, str], prefix: str, said: str) -> None:
    """B11."""
    environ["JOBQ_WORKFLOW_PREFIX"] = prefix

    with pytest.raises(SettingsError) as caught:
        resolve_target(environ=environ)

    assert said in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("JOBQ_WORKFLOW_QUEUES", "sb://ns", "not available in this release yet"),
        ("JOBQ_WORKFLOW_QUEUES", "https://x", "cannot be a URL or connection string"),
        ("JOBQ_WORKFLOW_QUEUES", "a/b", "cannot be a URL or connection string"),
        ("JOBQ_WORKFLOW_QUEUES", "local", "a local store keeps everything in one directory"),
        ("JOBQ_WORKFLOW_BLOBS", "acct2", "Missing container in JOBQ_WORKFLOW_BLOBS"),
        ("JOBQ_WORKFLOW_BLOBS", "acct2/Big_Box", "'Big_Box' is no container"),
        ("JOBQ_WORKFLOW_BLOBS", "local/box", "a local store keeps everything in one directory"),
        ("JOBQ_WORKFLOW", "acct/p", "Set JOBQ_WORKFLOW_PREFIX"),
        ("JOBQ_WORKFLOW_STATE", "acct/p", "Set JOBQ_WORKFLOW_PREFIX"),
        ("JOBQ_WORKFLOW_CONFIG", "nowhere.yaml", "Config file not found (JOBQ_WORKFLOW_CONFIG: nowhere.yaml)"),
        ("JOBQ_AZURITE_QUEUE_PORT", "many", "JOBQ_AZURITE_QUEUE_PORT: 'many' is no port"),
        ("TABLE_PORT", "70000", "TABLE_PORT: '70000' is no port"),
    ],
)
def test_a_malformed_variable_is_named(environ: dict[str, str], variable: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve_target("acct1/P", environ={**environ, variable: value})

    assert said in str(caught.value)
    assert variable in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "a mapping of keys to values is expected"),
        ("connexion: {}\n", "unknown key 'connexion'. Did you mean 'connection'? Allowed: connection, coordinator."),
        ("connection: {store: a}\n", "unknown key 'store'"),
        ("connection: {prefix: 5}\n", "connection.prefix: 5 is no text"),
        ("a: [\n", "this is no YAML"),
        ("connection: text\n", "connection: a mapping of keys to values is expected"),
    ],
)
def test_a_broken_config_file_is_explained(folder: Path, environ: dict[str, str], text: str, said: str) -> None:
    write(folder / "jobq.yaml", text)

    with pytest.raises(SettingsError) as caught:
        resolve_target("acct1/P", environ=environ)

    assert said in str(caught.value)
    assert "jobq.yaml" in str(caught.value)


def test_an_asked_for_config_file_must_be_there(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"Config file not found \(--config: x.yaml\)"):
        resolve_target("acct1/P", config="x.yaml", environ=environ)


def test_azurite_ports_come_from_the_more_specific_variable() -> None:
    environ = {"JOBQ_AZURITE_QUEUE_PORT": "1", "QUEUE_PORT": "2", "TABLE_PORT": "3"}

    assert emulator_ports(environ) == EmulatorPorts(blob=10000, queue=1, table=3)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"JOBQ_LOCAL_DIR": "/x/y"}, "/x/y"),
        ({"XDG_DATA_HOME": "/data"}, "/data/ai4s-jobq"),
        ({}, "/home/u/.local/share/ai4s-jobq"),
    ],
)
def test_the_local_directory_is_the_users(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")

    assert str(default_local_dir({"HOME": "/home/u", **variables})) == expected


def test_a_target_tells_other_processes_where_it_is(environ: dict[str, str]) -> None:
    target = resolve_target("local/P", environ={**environ, "JOBQ_LOCAL_DIR": "/x"})

    assert target.variables() == {"JOBQ_WORKFLOW_PREFIX": "local/P", "JOBQ_LOCAL_DIR": "/x"}
    assert resolve_target(environ=target.variables()).local_dir == Path("/x")


def test_a_queue_is_split_at_its_last_slash(environ: dict[str, str]) -> None:
    target, queue = resolve_queue("devstoreaccount1/my-queue", environ=environ)

    assert (target.account, queue) == ("devstoreaccount1", "my-queue")
    assert resolve_queue(None, environ={"JOBQ_STORAGE_QUEUE": "local/q-1"})[1] == "q-1"
    with pytest.raises(NotConfiguredError):
        resolve_queue(None, environ=environ)


def test_flags_win_over_the_file_and_the_file_over_defaults() -> None:
    settings = settings_from(
        CoordinatorSettings, {"batch_size": 3, "sweep_s": None}, {"batch_size": 4, "sweep_s": 5}, where="jobq.yaml"
    )

    assert (settings.batch_size, settings.sweep_s, settings.visibility_s) == (3, 5, 30.0)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"unknown key 'batchsize'\. Did you mean 'batch_size'"):
        settings_from(CoordinatorSettings, {}, {"batchsize": 4}, where="jobq.yaml")
