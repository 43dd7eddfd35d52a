"""The judgement of ADK, Osmosis and OpenHands on a trial: the verdict with `--compat`, and the differences without.

One function, `as_tool_judges`, gives their scores and verdict from a trial with scores, so that a run without
`--compat` names the same verdict of another tool as a run with it. No model is asked again.
(decision 033)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from evaldesk.errors import UsageError
from evaldesk.matching import allowed
from evaldesk.metrics import build_metric, is_function, metric_kind, score_trial
from evaldesk.metrics.metric import mean
from evaldesk.model import (
    Case,
    Criterion,
    Event,
    Expected,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    TurnRecord,
    Verdict,
    adk_verdict,
    trial_verdict,
)
from evaldesk.model.decisions import ANSWER
from evaldesk.model.transcript import AWAITING
from evaldesk.reading.shape import form_of
from evaldesk.run_options import ADK_POOLED, OWN
from evaldesk.transcripts.adk import REQUEST

CALLED: dict[str, str] = {
    "adk": "`adk eval`",
    ADK_POOLED: "`AgentEvaluator` of ADK",
    "osmosis": "Osmosis",
    "openhands": "OpenHands",
}
"""The tools, as sentences name them."""

REPORTED = "reported_value"
MODEL_CALLS = "inference_call_count_v1"
READ_OTHERWISE = ("tool_trajectory_avg_score", "response_match_score")
ADK_METRICS = frozenset(
    {
        *READ_OTHERWISE,
        "response_evaluation_score",
        "safety_v1",
        "hallucinations_v1",
        "final_response_match_v2",
        "rubric_based_final_response_quality_v1",
        "rubric_based_tool_use_quality_v1",
        "rubric_based_multi_turn_trajectory_quality_v1",
        "multi_turn_task_success_v1",
        "multi_turn_trajectory_quality_v1",
        "multi_turn_tool_use_quality_v1",
        "per_turn_user_simulator_quality_v1",
    }
)
"""The metrics by which google-adk 2.13 decides. Those of efficiency only inform there; a criterion by one is an error,
which it leaves out as it does an unknown one."""
ROUND = ".4g"
NO_REFERENCE = "No reference answer: `adk eval` compares with an empty text, which gives 0."


def as_tool_judges(tool: str, case: Case, trial: TrialResult, criteria: Sequence[Criterion]) -> TrialResult:
    """The trial with the scores and the verdict that the tool gives it; as it is for our own rules."""
    if tool == OWN or trial.status == "cancelled":
        return trial
    tool = rules_of(tool)
    scores = _adk_scores(case, trial, criteria) if tool == "adk" else _scores_or_0(tool, trial, criteria)
    return replace(trial, scores=scores, verdict=_verdict(tool, trial, scores, criteria))


def rules_of(compat: str) -> str:
    """The tool by whose rules single trials are judged; trials that are pooled are judged as those of `adk eval`."""
    return "adk" if compat == ADK_POOLED else compat


def difference(tool: str, case: Case, trial: TrialResult, criteria: Sequence[Criterion]) -> str:
    """The tool's verdict on the trial where it differs from ours, and why; empty for the same."""
    tool_result = as_tool_judges(tool, case, trial, criteria)
    if tool_result.verdict == trial.verdict:
        return ""
    reason = _why(tool, case, trial, tool_result, criteria)
    return f"{trial.verdict} here, {tool_result.verdict} by {CALLED[tool]}: {reason}"


def has_other_scores(tool: str, case: Case, trial: TrialResult, criteria: Sequence[Criterion]) -> bool:
    """Whether the tool gives the trial the same verdict and a metric that it knows another score."""
    tool_result = as_tool_judges(tool, case, trial, criteria)
    tool_metrics = {each.metric for each in criteria if decides(tool, each)}
    own_values = {score.metric: score.value for score in trial.scores if score.turn is None}
    others = (score for score in tool_result.scores if score.turn is None and score.metric in tool_metrics)
    return tool_result.verdict == trial.verdict and any(score.value != own_values.get(score.metric) for score in others)


def may_differ(tool: str, config: RunConfig, case: Case, verdicts: str) -> bool:
    """Whether the tool may judge a trial of the case otherwise; `verdicts` has a letter for each, none is read."""
    if "e" in verdicts or "u" in verdicts or config.n_asserted or config.strict or config.compat != OWN:
        return True
    deciding = [each for each in config.criteria if each.threshold is not None]
    if not all(decides(tool, each) for each in deciding):
        return True
    # a failed trial may wait for a person
    return tool == "adk" and ("f" in verdicts or any(leaves_open(turn.expected) for turn in case.turns))


def tools_beside(config: RunConfig, spelled: str = "") -> tuple[str, ...]:
    """The other tools by whose rules the run may be read, without the one by which it is judged.

    ADK has eval sets and metrics, Osmosis eval functions and rewards, OpenHands the test results of benchmarks.
    `spelled` is the tool as which the command is spelled.
    """
    deciding = [each for each in config.criteria if each.threshold is not None]
    has_tool = {
        "adk": any(decides("adk", each) and not is_function(each) for each in deciding),
        "osmosis": any(decides("osmosis", each) for each in deciding),
        "openhands": any(decides("openhands", each) for each in deciding),
    }
    return tuple(tool for tool, has in has_tool.items() if tool != rules_of(config.compat) and (has or tool == spelled))


def unscored_by(tool: str, config: RunConfig) -> str:
    """That the tool scores no case of the run, in a sentence; empty where it decides by one of the criteria."""
    deciding = [each for each in config.criteria if each.threshold is not None]
    if not deciding or any(decides(tool, each) for each in deciding):
        return ""
    names = ", ".join(each.metric for each in deciding)
    return f"{CALLED[tool]} scores none of these cases: it does not decide by {names}."


def decides(tool: str, criterion: Criterion) -> bool:
    """Whether the tool knows the criterion, and its verdict depends on it."""
    if criterion.threshold is None:
        return False
    if is_function(criterion):
        return tool in ("adk", "osmosis")
    kind = metric_kind(criterion.metric)
    if kind == REPORTED:
        is_of_benchmark = str(criterion.options.get("path", "")).partition(".")[0] in ("test_result", "critic")
        return tool == ("openhands" if is_of_benchmark else "osmosis")
    return tool == "adk" and kind in ADK_METRICS


def leaves_open(expectation: Expected) -> bool:
    """Whether ADK reads more into the turn than it asserts."""
    has_null = any(map(_expects_null, expectation.tool_calls or ()))
    return expectation.tool_calls is None or expectation.reference is None or has_null


def as_adk_reads(case: Case) -> Case:
    """The case with its missing assertions taken for "nothing", and without accepted alternatives."""
    turns = (
        replace(
            turn,
            expected=replace(
                turn.expected,
                tool_calls=tuple(map(_as_adk_call, turn.expected.tool_calls or ())),
                reference=turn.expected.reference or "",
            ),
        )
        for turn in case.turns
    )
    extra = {name: value for name, value in case.extra.items() if name != allowed.ALSO_ACCEPTED}
    return replace(case, turns=tuple(turns), extra=extra)


NO_ARGS = "no args in the file"


def _as_adk_call(call: ToolCall) -> ToolCall:
    """The call, with arguments that no call of an agent has where ADK expects null."""
    return replace(call, args={NO_ARGS: None}) if _expects_null(call) else call


def _expects_null(call: ToolCall) -> bool:
    """Whether the file has no arguments or null, with which no `{}` of an agent is equal in ADK."""
    form = form_of(call.extra)
    raw_args = form.get("raw", {}).get("args", {}) if "args" in form.get("keys", ("args",)) else None
    return not call.args and raw_args is None


def as_adk_hears(transcript: Transcript) -> Transcript:
    """The transcript with the turns that wait as answered: a call that waits was made, and ADK's question is a call."""
    if not any(_waits_in_adk(turn) for turn in transcript.turns):
        return transcript
    return Transcript(tuple(_as_answered_turn(turn) if _waits_in_adk(turn) else turn for turn in transcript.turns))


def _waits_in_adk(turn: TurnRecord) -> bool:
    """Whether it waits for the answer of a long-running tool, or asks by a call of ADK's own, as for a confirmation."""
    tool_names = {call.name for call in turn.tool_calls}
    is_long = all(each.choices == ANSWER and each.tool in tool_names for each in turn.open_requests)
    return bool(turn.open_requests) and (is_long or any(map(_is_question, turn.events)))


def _is_question(event: Event) -> bool:
    return event.kind == "log" and event.text.startswith(REQUEST)


def _as_answered_turn(turn: TurnRecord) -> TurnRecord:
    events = (
        Event("tool_call", author=each.author, call=ToolCall(each.text.partition(":")[0], {}))
        if _is_question(each)
        else each
        for each in turn.events
    )
    return replace(turn, events=tuple(events), stop_reason="answered")


def as_tool_calls(tool: str, criteria: Sequence[Criterion]) -> tuple[Criterion, ...]:
    """The criteria with functions called as the tool calls them."""
    options = {"compat": tool} if tool == "osmosis" else {}
    return tuple(replace(each, options={**each.options, **options}) if is_function(each) else each for each in criteria)


def _verdict(tool: str, trial: TrialResult, scores: Sequence[Score], criteria: Sequence[Criterion]) -> Verdict:
    tool_criteria = [each for each in criteria if decides(tool, each)]
    if tool != "adk":
        return trial_verdict(scores, tool_criteria, None)
    names = {each.metric for each in tool_criteria}
    return "failed" if trial.error is not None else adk_verdict([each for each in scores if each.metric in names])


def _adk_scores(case: Case, trial: TrialResult, criteria: Sequence[Criterion]) -> tuple[Score, ...]:
    """The scores with new values of ADK's own deterministic metrics, and judges' means over the judged turns."""
    scores: list[Score] = []
    adk_case, adk_transcript = as_adk_reads(case), as_adk_hears(trial.transcript)
    for criterion in criteria:
        own = [score for score in trial.scores if score.metric == criterion.metric]
        is_played = own and not any(score.error for score in own)
        if is_played and adk_transcript is not trial.transcript and metric_kind(criterion.metric) in READ_OTHERWISE:
            own = list(score_trial(adk_transcript, case, [criterion]))
        if is_played and metric_kind(criterion.metric) == "response_match_score" and case.turns:
            scores += _against_empty_answers(own, criterion, case)
        elif is_played and metric_kind(criterion.metric) == MODEL_CALLS:
            scores += _with_silent_turns(own, criterion)
        elif is_played and metric_kind(criterion.metric) in READ_OTHERWISE and not is_function(criterion):
            scores += score_trial(adk_transcript, adk_case, [criterion], strict=True)
        else:
            scores += [_over_judged_turns(score, criterion) for score in own]
    return tuple(scores)


def _against_empty_answers(own: Sequence[Score], criterion: Criterion, case: Case) -> list[Score]:
    """The scores of the answers, 0 where the turn has no reference: nothing is shared with an empty text."""
    by_turn = {score.turn: score for score in own}
    turns: list[Score] = []
    for at in range(len(case.turns)):
        score = by_turn.get(at)
        if score is None or score.value is None:
            passed = _passes(criterion, 0.0)
            score = Score(criterion.metric, 0.0, at, criterion.threshold, passed, reason=NO_REFERENCE)
        turns.append(score)
    value = mean([score.value or 0.0 for score in turns])
    n_missing = sum(score.reason == NO_REFERENCE for score in turns)
    reason = f"{n_missing} of {len(turns)} turns without a reference answer, which score 0 in `adk eval`."
    if not n_missing:
        reason = by_turn[None].reason if None in by_turn else ""
    return [*turns, Score(criterion.metric, value, None, criterion.threshold, _passes(criterion, value), reason=reason)]


def _with_silent_turns(own: Sequence[Score], criterion: Criterion) -> list[Score]:
    """The model calls of each turn, 0 where a turn reports none, and their mean: no value is no answer of ADK here."""
    turns = [
        score if score.value is not None else replace(score, value=0.0, passed=_passes(criterion, 0.0))
        for score in own
        if score.turn is not None
    ]
    total = mean([score.value or 0.0 for score in turns]) if turns else None
    passed = None if total is None else _passes(criterion, total)
    trial_score = next((score for score in own if score.turn is None), Score(criterion.metric))
    return [*turns, replace(trial_score, value=total, passed=passed)]


def _over_judged_turns(score: Score, criterion: Criterion) -> Score:
    value = score.details.get("adk_value")
    if score.turn is not None or score.value is not None or score.error or not isinstance(value, int | float):
        return score
    return replace(score, value=float(value), passed=_passes(criterion, float(value)))


def _scores_or_0(tool: str, trial: TrialResult, criteria: Sequence[Criterion]) -> tuple[Score, ...]:
    """The scores, with 0 for every criterion of the tool that has no value: missing and broken ones count so."""
    scores: list[Score] = []
    for criterion in criteria:
        own = [score for score in trial.scores if score.metric == criterion.metric]
        trial_score = next((score for score in own if score.turn is None), Score(criterion.metric))
        if decides(tool, criterion) and (
            trial_score.value is None or trial_score.error or not math.isfinite(trial_score.value)
        ):
            error = trial_score.error or trial.error
            why = error.message if error else trial_score.reason
            scores += [score for score in own if score.turn is not None]
            scores.append(_zero(tool, criterion, why))
        else:
            scores += own
    return tuple(scores)


def _zero(tool: str, criterion: Criterion, why: str) -> Score:
    reason = f"Counted as 0, as {CALLED[tool]} does: {why or 'there is no score'}"
    passed = _passes(criterion, 0.0)
    return Score(criterion.metric, 0.0, threshold=criterion.threshold, passed=passed, reason=reason)


def _passes(criterion: Criterion, value: float) -> bool | None:
    try:
        return build_metric(criterion).info.passes(value, criterion.threshold)
    except UsageError:  # a metric of a stored run that is gone
        return None if criterion.threshold is None else value >= criterion.threshold


def _why(tool: str, case: Case, trial: TrialResult, tool_result: TrialResult, criteria: Sequence[Criterion]) -> str:
    if trial.error is not None:
        return (
            "a trial that broke off counts as failed there"
            if tool == "adk"
            else "a trial that broke off counts as 0 there"
        )
    own = {score.metric: score for score in trial.scores if score.turn is None}
    tool_metrics = {each.metric for each in criteria if decides(tool, each)}
    tool_scores = [score for score in tool_result.scores if score.turn is None and score.metric in tool_metrics]
    for score in (each for each in tool_scores if each.verdict == tool_result.verdict):
        own_score = own.get(score.metric)
        if own_score is not None and score.value is not None and own_score.passed is not score.passed:
            reason = f"{score.metric} is {score.value:{ROUND}} there"
            is_open = any(leaves_open(turn.expected) for turn in case.turns)
            if tool == "adk" and trial.stop_reason == AWAITING:
                reason += ", where a call that waits for a person was made"
            elif tool == "adk" and metric_kind(score.metric) in READ_OTHERWISE and is_open:
                reason += ", where a turn that asserts nothing expects no tool call and an empty answer"
            elif tool != "adk":
                reason += ", where a missing score or an exception counts as 0"
            return reason
    unknown = [each.metric for each in criteria if each.threshold is not None and each.metric not in tool_metrics]
    if unknown:
        return f"it does not decide by {', '.join(unknown)}"
    return (
        "it leaves out the turns that could not be judged" if tool_result.verdict != "unscored" else "it judged nothing"
    )
