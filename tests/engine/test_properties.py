"""Any order, any repetition, any interruption: the same end.

Each example plays a random workflow, with scripted outcomes, along a random schedule. ``checks`` looks at every single
decision; the tests below compare the ends with the reference, where the plan alone decides them.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from ai4s.jobq.engine.states import JobKind, Stop, WorkflowState
from tests.engine.plans import LIVES, Plan, Tape, plans, schedules
from tests.engine.reference import Ending, Reference
from tests.engine.simulation import Simulation

EXAMPLES = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
ENDS_OF_CANCELLED = (WorkflowState.CANCELLED, WorkflowState.COMPENSATED, WorkflowState.COMPENSATION_FAILED)


def assert_ended_as_scripted(simulation: Simulation, reference: Reference) -> None:
    run = simulation.run
    expected = [reference.ending(number) for number in range(len(run.tasks))]
    assert [str(task.state) for task in run.tasks] == [ending.state for ending in expected]
    assert [simulation.attempts_of_life[task.number] for task in run.tasks] == [ending.attempts for ending in expected]
    assert (str(run.state), run.handled) == (reference.result(), reference.handled())
    assert jobs(simulation, JobKind.UNDO) == reference.undo_jobs()
    assert jobs(simulation, JobKind.HOOK) == reference.hooks()


def jobs(simulation: Simulation, kind: JobKind) -> dict[int, Ending]:
    """The undo jobs or hooks that ran in this life."""
    return {
        job.number: Ending(str(job.state), simulation.attempts_of_life[job.number])
        for job in simulation.run.jobs.values()
        if simulation.run.graph.kind(job.number) is kind and job.stored is not None
    }


@EXAMPLES
@given(plans(), schedules())
def test_every_life_ends_as_scripted_whatever_the_order_of_reports(plan: Plan, schedule: list[int]) -> None:
    simulation = Simulation(plan, Tape(schedule))
    reference = Reference(plan, 0, {})

    for life in range(LIVES):
        simulation.play_life()
        assert_ended_as_scripted(simulation, reference)
        reference = Reference(plan, life + 1, simulation.kept())
        if life == LIVES - 1 or not simulation.retry():
            break


@EXAMPLES
@given(plans(), schedules())
def test_everything_said_again_after_the_end_changes_nothing(plan: Plan, schedule: list[int]) -> None:
    simulation = Simulation(plan, Tape(schedule))
    simulation.play_life()
    states = [task.state for task in simulation.run.tasks]

    simulation.repeat_everything()

    assert [task.state for task in simulation.run.tasks] == states


@EXAMPLES
@given(plans(), schedules())
def test_a_run_may_be_cancelled_at_any_moment_and_still_ends(plan: Plan, schedule: list[int]) -> None:
    simulation = Simulation(plan, Tape(schedule))
    simulation.cancels = True

    simulation.play_life()
    simulation.repeat_everything()

    if simulation.run.stop is Stop.HALT:
        assert simulation.run.state in ENDS_OF_CANCELLED


@EXAMPLES
@given(plans(), schedules(), schedules())
def test_a_cancelled_run_that_is_retried_ends_as_scripted(plan: Plan, before: list[int], after: list[int]) -> None:
    simulation = Simulation(plan, Tape(before))
    simulation.cancels = True
    simulation.play_life()
    reference = Reference(plan, 1, simulation.kept())

    simulation.cancels, simulation.tape = False, Tape(after)
    if simulation.retry():
        simulation.play_life()
        assert_ended_as_scripted(simulation, reference)


@EXAMPLES
@given(plans(rough=True), schedules(), schedules())
def test_a_run_that_stops_itself_ends_and_can_be_retried(plan: Plan, before: list[int], after: list[int]) -> None:
    simulation = Simulation(plan, Tape(before))
    simulation.cancels = True
    simulation.play_life()
    if simulation.run.stop in (Stop.DROP, Stop.KILL):
        assert simulation.run.state not in (WorkflowState.COMPLETED, WorkflowState.CANCELLED)

    simulation.tape = Tape(after)
    if simulation.retry():
        simulation.play_life()
        simulation.repeat_everything()
