"""One kind of failure: the trials that show it, the judges that look for it; and the findings of one trial."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.desk.failures import TypedFinding, TypedMode, find_judged_mode, is_worded_as
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.diff.signature import Signature
from evaldesk.errors import EvaldeskError
from evaldesk.model import Criterion, TrialResult
from evaldesk.model.failures import Finding, Mode
from evaldesk.model.stored import RunSummary, TrialKey
from evaldesk.pages.failures.room import N_RUNS, KindRow, kind_row
from evaldesk.pages.labels import HALF_WIDTH
from evaldesk.pages.runs.view import trial_href
from evaldesk.pages.samples import Draw
from evaldesk.statistics.agreement import JudgeSkill, agreement, judge_skill
from evaldesk.store import Store
from evaldesk.wording.agreement import found_sentence, kappa_words, next_labels_sentence
from evaldesk.wording.noise import corrected_sentence

N_JUDGED, N_SEARCHED = 5, 100
N_ROWS = 8
N_FINDINGS, N_COUNTED, N_SHARES = 50, 100, 5
NO_CALL, NO_PLACE = "no call, only the text", "no place marked"


@dataclass(frozen=True, slots=True)
class FindingPanel:
    """The findings of a trial with the names of their modes, and the form for another."""

    findings: Sequence[tuple[Finding, str]]
    modes: Sequence[Mode]
    draft: TypedFinding
    problem: str


def read_findings(
    desk: Desk, run_id: int, key: TrialKey, draft: TypedFinding | None = None, error: EvaldeskError | None = None
) -> FindingPanel:
    """The panel of findings on the page of a trial. Raises NotFoundError."""
    modes = desk.store.failures.modes()
    names = {mode.id: mode.name for mode in modes}
    return FindingPanel(
        findings=[(each, names.get(each.mode_id or 0, "")) for each in desk.failures.of_trial(run_id, key)],
        modes=[mode for mode in modes if mode.is_active],
        draft=draft or TypedFinding(desk.person.name()),
        problem=str(error or ""),
    )


@dataclass(frozen=True, slots=True)
class RunRow:
    """A mode in one run, and the number of trials that were read."""

    run: RunSummary
    n_read: int
    kind: KindRow


@dataclass(frozen=True, slots=True)
class Calibration:
    """A judge of a mode in one run, beside the findings of people on the trials they read, in words.

    `is_current` says that it judged by the texts that the mode has now. `share` and `next_labels` may be empty.
    """

    run: RunSummary
    is_current: bool
    counts: JudgeSkill
    agreement_words: str
    kappa: str
    share: str
    next_labels: str


@dataclass(frozen=True, slots=True)
class TypedChange:
    """The input of one of the forms of a mode: `op` says which one."""

    op: str
    texts: TypedMode
    findings: Sequence[str]
    author: str


@dataclass(frozen=True, slots=True)
class ModePage:
    """The values of a mode's page. `merged_into` is the surviving mode of a merge, `case_names` are by run and case.

    `agents` are models and versions, each with its trials that show the mode and its read trials.

    `typed` are the typed texts where they could not be stored, else the mode's own.
    """

    mode: Mode
    runs: Sequence[RunRow]
    runs_left: int
    findings: Sequence[Finding]
    case_names: Mapping[tuple[int, int], str]
    n_findings: int
    has_older: bool
    is_newest: bool
    n_trials: int
    others: Sequence[Mode]
    merged_into: Mode | None
    newest_runs: Sequence[RunSummary]
    judges: Sequence[Calibration]
    agents: Sequence[tuple[str, Sequence[tuple[str, int, int]]]]
    author: str
    draft: TypedMode
    split_name: str
    finding_ids: Sequence[str]
    problem: str

    @property
    def gate(self) -> str:
        """The command that checks the newest run that was read; empty before that, and where the mode is out of use."""
        if not self.runs or not self.mode.is_active:
            return ""
        return f"evaldesk mode check {self.runs[0].run.id} --max-mode {shlex.quote(f'{self.mode.name}=0.05')}"

    @property
    def stored_texts(self) -> Sequence[tuple[str, str]]:
        """The texts that are stored where others were typed, by their names."""
        now, draft = _texts(self.mode), self.draft
        rows = (("Name", now.name, draft.name), ("What counts", now.definition, draft.definition))
        examples = (
            ("Example that counts", now.example_yes, draft.example_yes),
            ("Example that does not", now.example_no, draft.example_no),
        )
        return [(name, text) for name, text, other in (*rows, *examples) if text != other]


def read_mode(
    desk: Desk,
    mode_id: int,
    change: TypedChange | None = None,
    error: EvaldeskError | None = None,
    *,
    before: int | None = None,
    runs_before: int | None = None,
) -> ModePage | None:
    """The page of a mode, with a change that was not stored as it was typed; None where there is no such mode.

    Its findings are those older than the finding `before`, its runs those before the run `runs_before`.
    """
    store = desk.store
    modes = {mode.id: mode for mode in store.failures.modes()}
    mode = modes.get(mode_id)
    if mode is None:
        return None
    n_by_run = store.failures.trials_by_run(mode_id)
    newest = [run for run in store.runs.list(limit=N_RUNS) if run.config.source_run_id is None]
    all_runs = sorted({*n_by_run, *store.failures.read_runs()}, reverse=True)
    older = [run_id for run_id in all_runs if runs_before is None or run_id < runs_before]
    runs = [_run_row(store, mode, run_id) for run_id in older[:N_ROWS]]
    findings = store.failures.of_mode(mode_id, limit=N_FINDINGS + 1, before=before)
    page_findings = findings[:N_FINDINGS]
    return ModePage(
        mode=mode,
        runs=runs,
        runs_left=len(older) - len(runs),
        findings=page_findings,
        case_names=_case_names(store, page_findings),
        n_findings=store.failures.n_of_mode(mode_id),
        has_older=len(findings) > N_FINDINGS,
        is_newest=before is None,
        n_trials=sum(n_by_run.values()),
        others=[each for each in modes.values() if each.is_active and each.id != mode_id],
        merged_into=modes.get(mode.merged_into) if mode.merged_into is not None else None,
        newest_runs=newest,
        judges=calibrations(desk, mode),
        agents=_agents(runs),
        author=(change and change.author.strip()) or desk.person.name(),
        draft=change.texts if change and change.op == "edit" else _texts(mode),
        split_name=change.texts.name if change and change.op == "split" else "",
        finding_ids=change.findings if change else (),
        problem=str(error or ""),
    )


def _texts(mode: Mode) -> TypedMode:
    return TypedMode(mode.name, mode.definition, mode.example_yes, mode.example_no)


def _run_row(store: Store, mode: Mode, run_id: int) -> RunRow:
    reading, draw = store.failures.read_trials(run_id), Draw(store, run_id)
    samples = draw.samples(reading.read)
    kind = kind_row(mode.name, reading.with_mode(mode.id), samples, mode=mode)
    return RunRow(store.runs.summary(run_id), len(reading.read), kind)


def _agents(runs: Sequence[RunRow]) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """The runs by model and by version of the agent, where they differ in it."""
    parts = []
    for title, names in (
        ("Model", [each.run.config.model or each.run.config.agent_model or "not known" for each in runs]),
        ("Agent version", [each.run.config.agent_version[:12] or "not known" for each in runs]),
    ):
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for name, each in zip(names, runs, strict=True):
            counts[name].update(n=each.kind.n, n_read=each.n_read)
        if len(counts) > 1:
            parts.append((title, [(name, n["n"], n["n_read"]) for name, n in counts.items()]))
    return parts


def calibrations(desk: Desk, mode: Mode) -> list[Calibration]:
    """The judges of a mode in the newest runs that have one."""
    runs, modes = desk.store.runs.list(limit=N_SEARCHED), desk.store.failures.modes()
    pairs = [(run, each) for run in runs for each in run.config.criteria if find_judged_mode(each, modes) == mode]
    return [_calibration(desk.store, mode, run, criterion) for run, criterion in pairs[:N_JUDGED]]


def _calibration(store: Store, mode: Mode, run: RunSummary, criterion: Criterion) -> Calibration:
    """A trial that was read counts as without the mode unless a person found it there."""
    reading = store.failures.read_trials(played_run_id(store.runs, run.id))
    trials_by_verdict = store.failures.judged_trials(run.id, criterion.metric)
    with_mode, trials_read = reading.with_mode(mode.id), reading.read
    sides = {True: trials_read - with_mode, False: trials_read & with_mode}
    counts = Counter({(a, b): len(trials_by_verdict[a] & sides[b]) for a in (True, False) for b in (True, False)})
    skill, n_judged = judge_skill(counts.elements()), (len(trials_by_verdict[True]), len(trials_by_verdict[False]))
    is_known = bool(skill.n_good and skill.n_bad)
    rate = skill.correct(n_judged[0] / sum(n_judged)) if is_known else None
    n_labels = skill.labels_to_add(HALF_WIDTH, n_judged)
    return Calibration(
        run=run,
        is_current=is_worded_as(criterion, mode),
        counts=skill,
        agreement_words=found_sentence(skill),
        kappa=kappa_words(agreement(counts)),
        share=corrected_sentence(rate.of_failures if rate else None) if is_known else "",
        next_labels=next_labels_sentence(n_labels, HALF_WIDTH, "read"),
    )


@dataclass(frozen=True, slots=True)
class Where:
    """The newest findings of a mode in a run, counted by place; `n` of `n_all` were counted."""

    run_id: int
    n: int
    n_all: int
    parts: Sequence[tuple[str, Sequence[tuple[str, int]]]]


def read_where(desk: Desk, mode_id: int) -> Where | None:
    """Where the findings of the newest run with the mode are; None without any.

    A finding without a marked place is at the first difference of its trial.
    """
    store = desk.store
    n_by_run = store.failures.trials_by_run(mode_id)
    if not n_by_run:
        return None
    run_id = max(n_by_run)
    findings = store.failures.of_mode(mode_id, run_id, N_COUNTED + 1)
    n_all = len(findings) if len(findings) <= N_COUNTED else store.failures.n_of_mode(mode_id, run_id)
    findings = findings[:N_COUNTED]
    keys = sorted({(each.case_index, each.trial_index) for each in findings})
    unmarked = sorted({(each.case_index, each.trial_index) for each in findings if each.anchor.turn is None})
    results, signatures = store.runs.trials(run_id, keys), desk.failures.signatures(run_id, unmarked)
    cases = {case: store.runs.case(run_id, case) for case in {case for case, _ in keys}}
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("Tool", "Turn", "Tag", "Case")}
    for each in findings:
        key = each.case_index, each.trial_index
        tool, turn = _place_of(each, results.get(key), signatures.get(key))
        counts["Tool"][tool] += 1
        counts["Turn"][turn] += 1
        counts["Tag"].update(cases[each.case_index].tags)
        counts["Case"][cases[each.case_index].id] += 1
    parts = [(name, _most(counts_of_places, name)) for name, counts_of_places in counts.items() if counts_of_places]
    return Where(run_id, len(findings), n_all, parts)


def _place_of(finding: Finding, result: TrialResult | None, signature: Signature | None) -> tuple[str, str]:
    """The tool and the turn of a finding, in words."""
    anchor, turns = finding.anchor, result.transcript.turns if result else ()
    if anchor.turn is None:
        tool = signature.tool if signature else ""
        return tool or NO_PLACE, f"turn {signature.turn}" if signature and signature.turn else NO_PLACE
    events = turns[anchor.turn].events if anchor.turn < len(turns) else ()
    event = events[anchor.event] if anchor.event is not None and anchor.event < len(events) else None
    return event.call.name if event and event.call else NO_CALL, f"turn {anchor.turn + 1}"


def _most(counts: Counter[str], name: str) -> list[tuple[str, int]]:
    """The most frequent places, and the number of findings elsewhere; turns in their order."""
    shares = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:N_SHARES]
    if name == "Turn":
        shares.sort(key=lambda each: (len(each[0]), each[0]))
    n_others = len(counts) - len(shares)
    others = [(f"{n_others:,} other{'s' if n_others > 1 else ''}", counts.total() - sum(n for _, n in shares))]
    return [*shares, *(others if n_others else ())]


def _case_names(store: Store, findings: Sequence[Finding]) -> dict[tuple[int, int], str]:
    """The ids of the cases in which the findings are, by run and case."""
    cases: defaultdict[int, set[int]] = defaultdict(set)
    for each in findings:
        cases[each.run_id].add(each.case_index)
    return {
        (run_id, case): name
        for run_id, of_run in cases.items()
        for case, name in store.runs.case_ids(run_id, sorted(of_run)).items()
    }


def finding_href(finding: Finding) -> str:
    """The place of a finding on the page of its trial."""
    turn = finding.anchor.turn
    page = trial_href(finding.run_id, (finding.case_index, finding.trial_index))
    return f"{page}#turn-{turn + 1}" if turn is not None else f"{page}#findings"
