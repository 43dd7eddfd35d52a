"""What a run asks for, filled up with what the settings of the workspace say."""

from __future__ import annotations

from dataclasses import replace

from evaldesk.desk.allowed_criteria import ready_criteria
from evaldesk.desk.run_plan import RunOptions, limits_of
from evaldesk.settings import Settings


def with_defaults(options: RunOptions, settings: Settings, root: str) -> RunOptions:
    """The options, where they leave something open as the settings have it; functions are imported from `root`.

    Raises UsageError for a criterion that cannot be.
    """
    user = options.user or settings.user
    recording = options.recording or settings.recording
    return replace(
        options,
        model_options=settings.model_options | options.model_options,
        user=replace(user, model=options.user_model) if options.user_model else user,
        **limits_of(options, settings.limits),
        recording=replace(recording, folder=str(settings.state_folder / "recordings")),
        criteria=ready_criteria(options.criteria, settings, root),
    )
