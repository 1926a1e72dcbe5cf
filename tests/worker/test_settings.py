"""Settings of a worker, and what the environment says of them."""

from __future__ import annotations

import pytest

from ai4s.jobq.errors import SettingsError
from ai4s.jobq.worker.settings import WorkerSettings, worker_settings_from_environment


@pytest.mark.parametrize("text", ["0", "-1", "abc", "inf", "nan", "30s"])
@pytest.mark.parametrize("name", ["JOBQ_CANCEL_POLL_INTERVAL", "JOBQ_KILL_TIMEOUT"])
def test_an_impossible_duration_is_one_line_naming_the_variable(name: str, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        worker_settings_from_environment(WorkerSettings(queue="q"), {name: text})

    assert str(caught.value).startswith(f"{name}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["0.2", "86400", " 30 "])
def test_a_positive_number_of_seconds_is_taken(text: str) -> None:
    environment = {"JOBQ_CANCEL_POLL_INTERVAL": text, "JOBQ_KILL_TIMEOUT": text}

    settings = worker_settings_from_environment(WorkerSettings(queue="q"), environment)

    assert settings.cancel_poll_s == settings.kill_timeout_s == float(text)


@pytest.mark.parametrize(("text", "chosen"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_the_login_shell_is_a_yes_or_no(text: str, chosen: bool) -> None:
    settings = worker_settings_from_environment(WorkerSettings(queue="q"), {"JOBQ_USE_LOGIN_SHELL": text})

    assert settings.login_shell is chosen


def test_another_word_than_yes_or_no_is_refused() -> None:
    with pytest.raises(SettingsError, match="JOBQ_USE_LOGIN_SHELL"):
        worker_settings_from_environment(WorkerSettings(queue="q"), {"JOBQ_USE_LOGIN_SHELL": "maybe"})


def test_what_the_environment_does_not_say_stays() -> None:
    settings = WorkerSettings(queue="q", cancel_poll_s=7, kill_timeout_s=8, login_shell=True)

    assert worker_settings_from_environment(settings, {"JOBQ_KILL_TIMEOUT": ""}) == settings


def test_a_worker_has_at_least_one_slot() -> None:
    with pytest.raises(SettingsError, match="slots"):
        WorkerSettings(queue="q", slots=0)


def test_a_lease_is_given_up_before_it_ends_and_renewed_before_that() -> None:
    settings = WorkerSettings(queue="q")

    assert settings.renew_every_s < settings.lease_lost_after_s < settings.visibility_s
