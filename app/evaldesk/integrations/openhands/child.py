"""The process of one instance: `python -m evaldesk.integrations.openhands.child`, started in its trial's workspace.

It reads a task from its standard input and writes one JSON object a line to its original standard output: `started`,
`ready` when the workspace is set up, `log`, `waits` and `whole` of its model calls, and at last `output` or `failed`.
User code finds nothing on its standard input; its own output goes to standard error. SIGINT ends the work, and
`teardown` is called all the same.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from evaldesk.agents.loading import import_from
from evaldesk.agents.standins import install_standins
from evaldesk.agents.traces import error_words, user_trace
from evaldesk.agents.workspaces import Workspace
from evaldesk.errors import AgentError
from evaldesk.integrations.openhands.evaluation import attempt
from evaldesk.integrations.openhands.metadata import Instance, Task, arguments_of, metadata_of, profile_of
from evaldesk.integrations.openhands.output import output_text
from evaldesk.integrations.openhands.standins import OPENHANDS
from evaldesk.llm.call import ModelCall, ModelReply, pace_of
from evaldesk.llm.pacing import Pace
from evaldesk.llm.retry_events import CURRENT_LISTENER, RetryWait, TurnListener, turn_context
from evaldesk.llm.third_party_clients import wrap_clients
from evaldesk.model import ModelOptions
from evaldesk.wire import from_json, plain_json, plain_object, to_json

SETUPS = ("setup", "initialize_runtime")
TEARDOWNS = ("teardown", "complete_runtime")
"""Names of the hooks. A benchmark that imports OpenHands calls the second of each itself."""


def main() -> None:
    """Run the task from the parent, and report its output."""
    tasks, reports = _own_pipes()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # it is the interpreter's own
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent of the worker may have it ignored

    # A benchmark may report from threads of its own; a line must not be cut by another (decision 046).
    lock = threading.Lock()

    def report(**fields: object) -> None:
        with lock:
            reports.write(to_json(fields) + b"\n")
            reports.flush()

    try:
        report(started=True)
        task = from_json(tasks.readline(), Task)
        CURRENT_LISTENER.set(lambda wait: report(waits=_pause_fields(wait)))
        wrap_clients()
        with turn_context(_InstanceTurn(task.model_options, report)):
            report(**_run_task(task, report, tasks))
    except KeyboardInterrupt:
        report(failed={"kind": "cancelled", "message": "stopped"})
    except BaseException as error:
        report(failed=failure_fields(error))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


@dataclass(frozen=True, slots=True)
class _InstanceTurn(TurnListener):
    """The parent's turn as a listener of this process's model calls, with the rate limits and retries of the run."""

    options: ModelOptions
    report: Callable[..., None]

    @property
    def n_retries(self) -> int | None:
        """The number of retries of the run."""
        return self.options.n_retries

    @property
    def pace(self) -> Pace | None:
        """The rate limits of the run."""
        return pace_of(self.options)

    def note_reply(self, call: ModelCall | None = None, reply: ModelReply | None = None) -> None:
        """Report a finished call to the parent."""
        self.report(whole=True)


def _pause_fields(wait: RetryWait) -> dict[str, object]:
    """The fields of a retry pause for the parent; the parent computes its end by its own clock."""
    return {name: getattr(wait, name) for name in ("failure", "n_tried", "n_attempts", "seconds")}


def _run_task(task: Task, report: Callable[..., None], tasks: BinaryIO) -> dict[str, object]:
    sys.path[:] = task.path
    if script := task.options.evaluation:
        output, reports = attempt(
            task.root,
            script,
            task.instance,
            number=task.trial_index + 1,
            folder=task.folder,
            on_ready=lambda: _begin(report, tasks),
            log=lambda text: report(log=str(plain_json(text))),
        )
        return {"output": output_text(output), "more": {}, "reports": plain_object(reports)}
    install_standins()
    function: Any = import_from(task.target, task.root)
    module = sys.modules.get(getattr(function, "__module__", ""))
    workspace, instance = Workspace(Path(task.folder), task.command_env), _row(task.instance)
    n_hooks = 1 if "openhands" in sys.modules else 2

    def log(text: object) -> None:
        report(log=str(plain_json(str(text))))

    try:
        metadata = metadata_of(task, workspace, log)
        if OPENHANDS.name in sys.modules:
            from evaldesk.integrations.openhands.kit.trial import InstanceTrial, begin_trial

            begin_trial(InstanceTrial(workspace, profile_of(task), log, task.seed, task.commands, task.model_options))
        _hook(module, SETUPS[:n_hooks], workspace, instance)
        _begin(report, tasks)
        output = output_text(_call(function, arguments_of(function, instance, metadata)))
    finally:
        try:
            more = _hook(module, TEARDOWNS[:n_hooks], workspace, instance)
        finally:
            workspace.kill()
    return {"output": output, "more": more}


def _begin(report: Callable[..., None], tasks: BinaryIO) -> None:
    """Wait until the parent has seen the existing files."""
    report(ready=True)
    tasks.readline()


def _row(instance: Mapping[str, Any]) -> Any:
    """The row of the instance: a pandas Series for a benchmark that imports pandas, as in OpenHands."""
    pandas = sys.modules.get("pandas")
    return pandas.Series(dict(instance), dtype=object) if pandas else Instance(instance)


def _hook(module: object, names: tuple[str, ...], workspace: Workspace, instance: Any) -> dict[str, Any]:
    """Call the first existing hook in the module of the function; its dict."""
    hook = next((result for name in names if callable(result := getattr(module, name, None))), None)
    if hook is None:
        return {}
    arguments = {"workspace": workspace, "instance": instance}
    names = tuple(inspect.signature(hook).parameters)
    is_named = all(name in names for name in arguments)
    result = _call(hook, arguments if is_named else dict(zip(names, arguments.values(), strict=False)))
    return plain_object(result)


def _call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    result = function(**arguments)

    async def await_result() -> Any:
        return await result

    return asyncio.run(await_result()) if inspect.isawaitable(result) else result


def failure_fields(error: BaseException) -> dict[str, object]:
    """The fields of an exception for the parent's report."""
    from evaldesk.llm import model_error

    refusal = model_error(error, "the model")
    if refusal:
        return {"kind": refusal.kind, "message": str(refusal), "is_fatal": refusal.is_fatal}
    if isinstance(error, AgentError):
        return {"kind": "bad_output", "message": str(error), "trace": user_trace(error)}
    return {"kind": "agent_raised", "message": error_words(error), "trace": user_trace(error)}


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Private copies of standard input and output, which child processes of user code do not inherit."""
    # Copies by `dup` are not inherited; 0 and 1 are, so they are replaced.
    tasks, reports = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(tasks, "rb"), os.fdopen(reports, "wb")


if __name__ == "__main__":
    main()
