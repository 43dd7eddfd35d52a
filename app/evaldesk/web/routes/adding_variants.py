"""Further variants of an experiment: the form, its estimate, and the start of their trials."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.experiments.adding import AdditionBase, check_addition, plan_addition, read_base
from evaldesk.desk.experiments.estimates import ExperimentEstimate, among_variants
from evaldesk.errors import ConflictError, EvaldeskError, UsageError
from evaldesk.pages.criteria.form import Typed, text_typed
from evaldesk.pages.experiment_plan import budget_sentence
from evaldesk.pages.runs.table import LETTERS
from evaldesk.run_options import BY_NAME
from evaldesk.web.forms.fields import read_form
from evaldesk.web.forms.run import models_of, option_fields
from evaldesk.web.forms.variants import (
    ALLOWS_EQUAL,
    VARY,
    FormVariants,
    asks_for_variants,
    changed_variants,
    estimate_variants,
    read_variants,
    variant_form,
)
from evaldesk.web.render import desk_of, go, number, page, refused_status, target_of

ADDRESS = f"/experiments/{number('experiment_id')}/variants"
BUDGET = BY_NAME["budget"]


async def show(request: Request) -> Response:
    """GET /experiments/{experiment_id}/variants/new: the form."""
    return await _form(request, ImmutableMultiDict(request.query_params.multi_items()))


async def preview(request: Request) -> Response:
    """POST /experiments/{experiment_id}/variants/new: the same form with the typed values; nothing is started."""
    return await _form(request, changed_variants(ImmutableMultiDict((await read_form(request)).multi_items())))


async def create(request: Request) -> Response:
    """POST /experiments/{experiment_id}/variants: play the variants, or show why they cannot be."""
    experiment_id: int = request.path_params["experiment_id"]
    form_values: Typed = ImmutableMultiDict((await read_form(request)).multi_items())
    desk = desk_of(request)
    try:
        if not asks_for_variants(form_values):
            raise UsageError("choose an option and a value of it", field=VARY)
        variants = read_variants(form_values, desk.settings.workspace).variants
        base = await read_base(desk, experiment_id)
        budget_text = text_typed(form_values, "budget", "").strip()
        budget = str(BUDGET.read(budget_text, BUDGET.title)) if budget_text else None
        run_plans = await plan_addition(desk, base, variants)
        allows_equal = bool(form_values.get(ALLOWS_EQUAL))
        await check_addition(desk, base, variants, run_plans, allows_equal=allows_equal, budget=budget)
        await desk.experiments.add(experiment_id, variants, run_plans, budget=budget)
    except (UsageError, ConflictError) as error:
        return await _form(request, form_values, error)
    return go(f"/experiments/{experiment_id}")


async def _form(request: Request, form_values: Typed, error: EvaldeskError | None = None) -> Response:
    experiment_id: int = request.path_params["experiment_id"]
    desk = desk_of(request)
    form_values = ImmutableMultiDict([*form_values.multi_items(), (VARY, "")])  # the part is always there
    base = await read_base(desk, experiment_id)
    config, earlier = base.config, base.experiment.plan
    fields = option_fields(ImmutableMultiDict(), desk.settings, config)
    summary = await desk.runs.summary(base.experiment.run_ids[0])
    agent = next((each for each in desk.agents.list() if each.id == config.agent.id), None)
    own_model = agent.description.model if agent and agent.description else None
    texts = {name: each.value for name, each in fields.items()}
    texts |= {"model": config.model or "", "n": str(config.n), "concurrency": str(earlier.concurrency)}

    def estimate(requested: FormVariants) -> ExperimentEstimate:
        own = estimate_variants(
            desk.stored_runs, requested, config.agent.id, own_model, config.evalset_id, base.cases, texts
        )
        return among_variants(own, len(earlier.variants))

    variants = await asyncio.to_thread(
        variant_form,
        form_values,
        {name: each.choices for name, each in fields.items()} | {"model": models_of(desk.settings.models, summary)},
        desk.settings.workspace,
        estimate,
        [each.name for each in earlier.variants],
    )
    spending = await asyncio.to_thread(desk.experiments.spending, experiment_id)
    budget = text_typed(form_values, "budget", earlier.budget or "").strip()
    values: dict[str, Any] = {
        "experiment": base.experiment,
        "address": f"/experiments/{experiment_id}/variants",
        "earlier": list(zip(LETTERS, (each.name for each in earlier.variants), strict=False)),
        "shape": _shape(base),
        "variants": variants,
        "budget": budget,
        "spent": budget_sentence(earlier.budget, *spending) if earlier.budget else "",
        "problem": f"{str(error)[:1].upper()}{str(error)[1:].rstrip('.')}." if error else "",
        "fault": getattr(error, "field", "") if error else "",
    }
    block = target_of(request)
    return page(
        request,
        "experiments/variants.html",
        block=block if block == "plan" else None,
        status=refused_status(error),
        **values,
    )


def _shape(base: AdditionBase) -> str:
    config = base.config
    return f"{config.agent.id} on {config.evalset_name}: {len(base.cases):,} cases x {config.n}, seed {config.seed}"


routes = [
    Route(f"{ADDRESS}/new", show, methods=["GET"]),
    Route(f"{ADDRESS}/new", preview, methods=["POST"]),
    Route(ADDRESS, create, methods=["POST"]),
]
