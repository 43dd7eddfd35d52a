"""Searches for decisive turns: begun, played in the background by this process, stopped and resumed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence

from sqlalchemy.exc import SQLAlchemyError

from evaldesk.desk.blame.planning import MOST_BUDGET, BlameRequest, BlameSources, PlannedBlame, plan_run, plan_trial
from evaldesk.desk.blame.repairing import REPAIRS, repair_fork
from evaldesk.desk.blame.verifying import (
    FixPlan,
    check_n,
    places_of,
    plan_fix,
    play_to_end,
    stored_continuations,
    verification_of,
    verify,
    verifying_fork,
)
from evaldesk.errors import ConflictError, EvaldeskError, NotFoundError, UsageError
from evaldesk.model.blame import Blame, BlamePlan, Verification
from evaldesk.model.decisive_turn import Batch, Count, Outcome, Stage
from evaldesk.model.fork import Fork, ForkPart, ForkPoint
from evaldesk.model.stored import RunSummary, TrialKey
from evaldesk.statistics.decisive_turn import answer_from, fewest_forks, is_unscored, next_forks
from evaldesk.store.runs.planning import LEASE_S

log = logging.getLogger("evaldesk.blame")

POLL_S = 1.0
_STAGES: tuple[Stage, ...] = ("profile", "search", "confirmation")
_OF_STAGE = 10_000
"""Numbers of forks of one stage; together with the id of the search they name each fork, and seed it."""
_OF_BLAME = _OF_STAGE * len(_STAGES)
MOST_TURNS, MOST_OWN = 100_000, 1_000_000
"""Turns of a trial, and trials of its case, of a stored plan that is played."""
_MOST_OF_TRIAL = 1_000_000
"""Forks of a trial among which those of a search are: a fork that is not read would be played again."""


def search_of(part: ForkPart) -> int:
    """The id of the search that a fork belongs to; 0 for the fork of a person."""
    return part.first // _OF_BLAME


# The forks of a search are found by their numbers, so that one that was killed loses and doubles none: decision 514.
class BlameDesk:
    """The searches of a workspace for decisive turns. Their forks are runs."""

    def __init__(self, desk: BlameSources) -> None:
        self._desk = desk
        self._store = desk.store.blames
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._run_ids: dict[int, int] = {}
        self._stopped_ids: set[int] = set()
        self._verifications: dict[int, asyncio.Task[None]] = {}
        self._adoption: asyncio.Task[None] | None = None
        self._faults: dict[int, str] = {}

    async def plan(self, run_id: int, key: TrialKey, request: BlameRequest) -> PlannedBlame:
        """The plan of one search; nothing is played. Raises UsageError naming the field, Conflict-, NotFoundError."""
        return await plan_trial(self._desk, run_id, key, request)

    async def plan_run(self, run_id: int, request: BlameRequest) -> PlannedBlame:
        """The plan of searches for all failed trials of a run. Raises as `plan`."""
        return await plan_run(self._desk, run_id, request)

    async def start(self, batch_plan: PlannedBlame) -> list[int]:
        """Store the searches, and play them one after the other in the background; gives their ids.

        Raises ConflictError where one of the trials is being searched.
        """
        ids = await self.submit(batch_plan)
        self._play(ids)
        return ids

    async def submit(self, batch_plan: PlannedBlame) -> list[int]:
        """Store the searches for another process, which resumes them; gives their ids. Raises as `start`."""
        return await asyncio.to_thread(self._store.create, batch_plan.plans)

    async def resume(self, batch_id: int) -> bool:
        """Go on with the unfinished and stopped searches of a batch; False where there is none, or another plays it."""
        if task := self._tasks.get(batch_id):
            if batch_id not in self._stopped_ids:
                return True
            await asyncio.wait({task})  # it stores the answer of the forks until the stop
        ids = []
        for each in await asyncio.to_thread(self._store.of_batch, batch_id):
            if each.is_live and each.is_leased:
                return False
            if each.is_live or await asyncio.to_thread(self._store.reopen, each.id):
                ids.append(each.id)
        if batch_id not in self._tasks:  # by another click that was quicker
            self._play(ids, batch_id)
        return bool(ids)

    async def start_up(self) -> None:
        """Go on with the searches of dead processes, of runs that may be played here without a question.

        A process that was killed holds its lease for a while, so they are looked for again and again.
        """
        await self._adopt()
        self._adoption = asyncio.create_task(self._adopt_later())

    async def _adopt_later(self) -> None:
        while True:
            await asyncio.sleep(max(POLL_S, LEASE_S / 3))
            try:
                await self._adopt()
            except (EvaldeskError, SQLAlchemyError, OSError) as error:
                log.warning("searches of dead processes could not be looked for, which is tried again: %s", error)

    async def _adopt(self) -> None:
        for batch_id in sorted({each.batch_id for each in await asyncio.to_thread(self._store.unfinished)}):
            blames = await asyncio.to_thread(self._store.of_batch, batch_id)
            if batch_id not in self._tasks and all([await self._may_play(each) for each in blames]):
                await self._go_on(batch_id)

    async def play_out(self, blame_id: int) -> AsyncIterator[Blame]:
        """The search as `watch`; where its process dies, this one goes on with its batch once the lease is over."""
        async for blame in self.watch(blame_id):
            if blame.is_live:
                await self._go_on(blame.batch_id)
            yield blame

    async def _go_on(self, batch_id: int) -> None:
        """Play the unfinished searches of a batch that no process plays; stopped ones stay as they are."""
        blames = [each for each in await asyncio.to_thread(self._store.of_batch, batch_id) if each.is_live]
        if batch_id not in self._tasks and not any(each.is_leased for each in blames):
            self._play([each.id for each in blames], batch_id)

    async def stop(self, blame_id: int) -> None:
        """Play no more forks of the batch of a search; the answer is that of the ones so far. Raises NotFoundError."""
        batch_id = (await self.get(blame_id)).batch_id
        self._stopped_ids.add(batch_id)
        for each in await asyncio.to_thread(self._store.of_batch, batch_id):
            if each.is_live:
                await asyncio.to_thread(self._store.end, each.id, "stopped", "Stopped by a person")
        run_id = self._run_ids.get(batch_id)
        if run_id is not None:
            await self._desk.runs.stop(run_id, cancel=True)

    async def repair(self, blame_id: int, n: int = REPAIRS) -> int:
        """Play on with the turn of a passed trial in place of the decisive one; gives the run.

        Raises ConflictError without a decisive turn, UsageError where there is nothing to put in its place.
        """
        fork = await asyncio.to_thread(repair_fork, self._desk.store, await self.get(blame_id), n)
        return await self._desk.forks.start(fork)

    def repairs(self, blame: Blame) -> list[RunSummary]:
        """The forks with edits at the decisive turn or right after it, oldest first. Reads the database."""
        turn = blame.answer.turn if blame.answer else None
        if turn is None or blame.is_live:
            return []
        plan = blame.plan
        runs = self._desk.store.forks.of_trial(plan.run_id, plan.case_index, plan.trial_index)
        parts = [(run, run.config.fork) for run in runs]
        return [run for run, part in parts if part and part.edits and part.point.turn in (turn, turn + 1)]

    async def verify(self, run_id: int, key: TrialKey | None, n: int, agent: str = "") -> Verification:
        """Play failed trials on from their decisive turns, and whole cases, by the agent as it is now, and compare.

        That is one trial, or all of a run that have a decisive turn. Raises UsageError, NotFoundError.
        """
        blames, counts = await self.located(run_id, key)
        return await verify(self._desk, blames, counts, n, agent)

    async def plan_fix(self, run_id: int, key: TrialKey | None) -> FixPlan:
        """The plan of a test of a fix, for one trial or all of a run. Raises UsageError without a decisive turn."""
        blames, _ = await self.located(run_id, key)
        if not blames:
            raise UsageError("no trial of this run has a decisive turn yet; look for them first", field="run")
        return await plan_fix(self._desk, blames)

    async def start_verification(self, run_id: int, key: TrialKey | None, n: int, agent: str = "") -> None:
        """Verify a fix in the background; forks that were played before are not played again.

        Raises UsageError for a number or a run that cannot be verified, ConflictError while one goes on.
        """
        check_n(n)
        blames, counts = await self.located(run_id, key)
        if not blames:
            raise UsageError("no trial of this run has a decisive turn yet; look for them first", field="run")
        if self.is_verifying(run_id):
            raise ConflictError(f"a fix of run {run_id} is being verified; wait for its end")
        # The plan of one fork raises here, and not behind the page.
        await self._desk.forks.plan(verifying_fork(blames[0], n, agent))
        self._faults.pop(run_id, None)
        task = asyncio.create_task(self._verify(run_id, blames, counts, n, agent))
        self._verifications[run_id] = task
        task.add_done_callback(lambda _: self._verifications.pop(run_id, None))

    def is_verifying(self, run_id: int) -> bool:
        """Whether this process plays the continuations of a fix of that run."""
        return run_id in self._verifications

    async def verification(self, run_id: int, key: TrialKey | None) -> Verification | None:
        """The effect of the newest fix by the continuations so far; None where none was played."""
        blames, counts = await self.located(run_id, key)
        after = {
            (blame.id, place): await asyncio.to_thread(stored_continuations, self._desk, blame, place)
            for blame in blames
            for place, _ in places_of(blame)
        }
        return verification_of(blames, counts, after) if any(each.n for each in after.values()) else None

    def verification_fault(self, run_id: int) -> str:
        """The reason of a verification of this process that broke off; empty without one."""
        return self._faults.get(run_id, "")

    async def _verify(
        self, run_id: int, blames: Sequence[Blame], counts: Mapping[int, Count], n: int, agent: str
    ) -> None:
        try:
            await verify(self._desk, blames, counts, n, agent)
        except (EvaldeskError, SQLAlchemyError, OSError) as error:
            log.warning("the verification of a fix of run %d ends: %s", run_id, error)
            self._faults[run_id] = str(error)

    async def located(self, run_id: int, key: TrialKey | None) -> tuple[list[Blame], dict[int, Count]]:
        """The newest searches with a decisive turn, of one trial or of all, and the counts before these turns."""
        newest = {each.plan.key: each for each in await self.of_run(run_id) if each.answer and not each.is_live}
        blames = [each for at, each in sorted(newest.items()) if key in (None, at) and each.answer and each.answer.turn]
        counts = {
            each.id: each.answer.counts[each.answer.turn - 1] for each in blames if each.answer and each.answer.turn
        }
        return blames, counts

    async def get(self, blame_id: int) -> Blame:
        """A search. Raises NotFoundError."""
        return await asyncio.to_thread(self._store.get, blame_id)

    async def of_trial(self, run_id: int, key: TrialKey) -> list[Blame]:
        """The searches of a trial, newest last."""
        return await asyncio.to_thread(self._store.of_trial, run_id, key)

    async def of_run(self, run_id: int) -> list[Blame]:
        """The searches of the trials of a run, newest last."""
        return await asyncio.to_thread(self._store.of_run, run_id)

    async def watch(self, blame_id: int) -> AsyncIterator[Blame]:
        """The search now, and each second until it is over."""
        while (blame := await self.get(blame_id)).is_live:
            yield blame
            task = self._tasks.get(blame.batch_id)
            if task is None:
                await asyncio.sleep(POLL_S)
            else:
                await asyncio.wait({task}, timeout=POLL_S)
        yield blame

    def forks(self, blame: Blame) -> list[RunSummary]:
        """The forks of a search, oldest first. Reads the database."""
        plan = blame.plan
        runs = self._desk.store.forks.of_trial(plan.run_id, plan.case_index, plan.trial_index, most=_MOST_OF_TRIAL)
        numbers = range(blame.id * _OF_BLAME, (blame.id + 1) * _OF_BLAME)
        return [run for run in runs if run.config.fork and run.config.fork.first in numbers]

    async def close(self) -> None:
        """Leave the searches as they are; another process goes on with them."""
        adoption = [self._adoption] if self._adoption else []
        tasks = [*adoption, *self._tasks.values(), *self._verifications.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _may_play(self, blame: Blame) -> bool:
        # Another person may have written the row of a search (decision 443).
        try:
            return await self._desk.runs.may_play(blame.plan.run_id)
        except NotFoundError:
            return False

    def _play(self, ids: Sequence[int], batch_id: int | None = None) -> None:
        if ids:
            batch_id = ids[0] if batch_id is None else batch_id
            self._stopped_ids.discard(batch_id)
            task = asyncio.create_task(self._play_batch(list(ids), batch_id))
            self._tasks[batch_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(batch_id, None))

    async def _play_batch(self, ids: Sequence[int], batch_id: int) -> None:
        for blame_id in ids:
            if batch_id in self._stopped_ids:
                continue
            if not await asyncio.to_thread(self._store.take, blame_id):
                batch = await asyncio.to_thread(self._store.of_batch, batch_id)
                if any(each.id == blame_id and each.is_live for each in batch):
                    return  # another process plays the batch, whose searches share a budget
                continue
            lease = asyncio.create_task(self._keep_lease(blame_id))
            try:
                await self._search(await self.get(blame_id))
            except asyncio.CancelledError:
                await asyncio.shield(asyncio.to_thread(self._store.release, blame_id))
                raise
            except (EvaldeskError, SQLAlchemyError, OSError) as error:
                log.warning("the search %d for a decisive turn ends: %s", blame_id, error)
                await asyncio.to_thread(self._store.end, blame_id, "failed", str(error))
            finally:
                lease.cancel()

    async def _keep_lease(self, blame_id: int) -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            await asyncio.to_thread(self._store.renew, blame_id)

    async def _search(self, blame: Blame) -> None:
        """Play the forks of a search until it has an answer, beginning with the forks of a dead process."""
        plan = blame.plan
        # The row may be of others, with numbers that no plan has.
        if not (plan.budget <= MOST_BUDGET and 1 <= plan.n_turns <= MOST_TURNS and plan.own.n <= MOST_OWN):
            raise UsageError("its stored plan is damaged; plan it again")
        n_most = min(plan.n_forks, plan.budget - await self._n_earlier(blame))
        if n_most < fewest_forks(plan.n_turns, plan.own):
            await asyncio.to_thread(self._store.end, blame.id, "stopped", _used_up(plan.budget))
            return
        while True:
            runs = await asyncio.to_thread(self.forks, blame)
            outcomes, reason = outcomes_of(runs), ""
            if (await self.get(blame.id)).status != "running":  # stopped meanwhile
                await asyncio.to_thread(self._note_answer, plan, blame.id, outcomes)
                return
            if left_runs := [run.id for run in runs if run.n_todo]:
                await self._play_run(blame, left_runs[0])
                continue
            batches = next_forks(plan.n_turns, plan.own, n_most, outcomes)
            reason = await self._spent(blame, batches[0]) if batches else ""
            if not batches or reason:
                if is_unscored(outcomes):
                    reason = "Most forks ended without a verdict"
                answer = await asyncio.to_thread(answer_from, plan.n_turns, plan.own, outcomes)
                await asyncio.to_thread(self._store.end, blame.id, "finished", reason, answer)
                return
            await self._play_run(blame, await self._start(blame, batches[0], runs))

    def _note_answer(self, plan: BlamePlan, blame_id: int, outcomes: Sequence[Outcome]) -> None:
        self._store.note(blame_id, answer_from(plan.n_turns, plan.own, outcomes))

    async def _start(self, blame: Blame, batch: Batch, runs: Sequence[RunSummary]) -> int:
        plan = blame.plan
        base = blame.id * _OF_BLAME + _STAGES.index(batch.stage) * _OF_STAGE
        following = [run.config.fork.first + run.config.n for run in runs if run.config.fork]
        of_stage = [each for each in following if base <= each - 1 < base + _OF_STAGE]
        point = ForkPoint(plan.run_id, plan.case_index, plan.trial_index, batch.turn)
        fork = Fork(point, n=batch.n, first=max(of_stage, default=base), runs_tools=plan.runs_tools)
        return await self._desk.forks.start(fork, plan.note)

    async def _play_run(self, blame: Blame, run_id: int) -> None:
        self._run_ids[blame.batch_id] = run_id
        try:
            await play_to_end(self._desk.runs, run_id)
        finally:
            self._run_ids.pop(blame.batch_id, None)
        run = await self._desk.runs.summary(run_id)
        if run.n_todo and (await self.get(blame.id)).status == "running":
            await asyncio.to_thread(self._store.end, blame.id, "stopped", run.reason or f"Run {run_id} was stopped")

    async def _n_earlier(self, blame: Blame) -> int:
        """The forks of the searches of its batch before this one."""
        earlier = [each for each in await asyncio.to_thread(self._store.of_batch, blame.batch_id) if each.id < blame.id]
        return sum([run.config.n for each in earlier for run in await asyncio.to_thread(self.forks, each)])

    async def _spent(self, blame: Blame, batch: Batch) -> str:
        """Why these forks are not played: the budget in dollars; empty where they are played."""
        most = blame.plan.max_cost
        if most is None:
            return ""
        together = [
            run
            for each in await asyncio.to_thread(self._store.of_batch, blame.batch_id)
            for run in await asyncio.to_thread(self.forks, each)
        ]
        if any(run.is_cost_unknown for run in together):
            return (
                f"A fork does not tell its cost, so that the budget of ${most:.2f} cannot be kept. "
                "An agent that reports the cost of each call, or makes none, says tells_cost = true"
            )
        spent = sum(run.cost for run in together)
        more = (blame.plan.cost_of_fork(batch.turn) or 0.0) * batch.n
        return f"The budget of ${most:.2f} is used up" if spent + more > most else ""


def _used_up(n_forks: int) -> str:
    return f"The budget of {n_forks:,} forks is used up"


def outcomes_of(runs: Sequence[RunSummary]) -> list[Outcome]:
    """The outcomes of the forks that were played, in the order of their runs."""
    outcomes: list[Outcome] = []
    for run in runs:
        if run.config.fork:
            stage, turn, counts = _stage(run), run.config.fork.point.turn, run.counts
            n_failed = counts.failed + (counts.errored if counts.errors_are_failures else 0)
            verdicts = [*[True] * counts.passed, *[False] * n_failed]
            outcomes += [Outcome(stage, turn, each) for each in verdicts]
            outcomes += [Outcome(stage, turn, None)] * (counts.done - len(verdicts))
    return outcomes


def _stage(run: RunSummary) -> Stage:
    part = run.config.fork
    return _STAGES[(part.first if part else 0) % _OF_BLAME // _OF_STAGE]
