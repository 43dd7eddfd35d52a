"""Osmosis' `rubric_configs.yaml`: rubrics by id, each with its judge and its scale. (reference/osmosis.md 2.2)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaldesk.errors import FormatError, NotFoundError, UsageError
from evaldesk.metrics.judges.options import JudgeOptions

NAME = "rubric_configs.yaml"
MAX_BYTES = 1_000_000
PROVIDERS = {"google": "gemini"}
"""Providers that LiteLLM calls otherwise."""


@dataclass(frozen=True, slots=True)
class RubricConfig:
    """A rubric and how it is judged; `question` and `reference` stand in where a record has none."""

    id: str
    text: str
    options: JudgeOptions
    low: float = 0.0
    high: float = 1.0
    instructions: str = ""
    question: str = ""
    reference: str = ""

    def but(self, given: Mapping[str, Any]) -> RubricConfig:
        """This rubric with the `model`, `timeout_s`, `score_min` and `score_max` that a caller gives, where not None.

        Another judge is asked with the key of its own provider.
        """
        options, scale = self.options, {"low": given["score_min"], "high": given["score_max"]}
        if given["model"]:
            options = replace(options, judge_model=given["model"], api_key_env=None)
        if given["timeout_s"]:
            options = replace(options, timeout_s=given["timeout_s"])
        return replace(self, options=options, **{end: value for end, value in scale.items() if value is not None})


def given_rubric(given: Mapping[str, Any], text: str) -> RubricConfig:
    """The rubric `text` with the `model`, `timeout_s`, `score_min` and `score_max` that a caller gives."""
    options = JudgeOptions(judge_model=given["model"], timeout_s=given["timeout_s"] or 60.0)
    low, high = given["score_min"] or 0.0, 1.0 if given["score_max"] is None else given["score_max"]
    return RubricConfig(given["rubric"], text, options, low, high)


def find_rubric_config(data: Path, folder: Path) -> Path | None:
    """The config beside the data, in `folder`, or in its `examples`; None when there is none."""
    places = (data.parent / NAME, folder / NAME, folder / "examples" / NAME)
    return next((path for path in places if path.is_file()), None)


def read_rubric_config(path: Path, rubric_id: str) -> RubricConfig:
    """The rubric of that id in the file. Raises UsageError, FormatError, and NotFoundError naming the nearest id."""
    found: dict[str, RubricConfig] = {}
    for document in _documents(path):
        for number, entry in enumerate(document.get("rubrics") or ()):
            config = _config(path, document, entry, number)
            found[config.id.lower()] = config
    if rubric_id.lower() not in found:
        raise NotFoundError.among(f"rubric in {path}", rubric_id, [config.id for config in found.values()])
    return found[rubric_id.lower()]


def _documents(path: Path) -> list[Mapping[str, Any]]:
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise FormatError(f"the file has more than {MAX_BYTES:,} bytes", source=str(path))
    try:
        documents = [document for document in yaml.safe_load_all(data) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        reason = getattr(error, "problem", None) or str(error)
        raise FormatError(f"this is not YAML: {reason}", source=str(path), line=line) from error
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise FormatError("expected an object with version and rubrics", source=str(path))
    return documents


def _config(path: Path, document: Mapping[str, Any], entry: Any, number: int) -> RubricConfig:
    place = f"rubrics[{number}]"

    def error(message: str) -> FormatError:
        return FormatError(message, source=str(path), path=place)

    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("id", "rubric")):
        raise error("expected an object with the texts id and rubric")
    if "extra_info" in entry:
        raise error("extra_info belongs into the records, not into a rubric")
    info: Any = entry.get("model_info") or document.get("default_model_info")
    if not isinstance(info, dict) or not isinstance(info.get("model"), str):
        raise error("expected model_info with provider and model")
    if info.get("api_key"):
        raise error("a key does not belong into a file; name its variable under api_key_env")

    def given(key: str, default: Any = None) -> Any:
        places = (entry.get(key), info.get(key), document.get(f"default_{key}"))
        return next((value for value in places if value is not None), default)

    try:
        low, high = float(given("score_min", 0.0)), float(given("score_max", 1.0))
        options = JudgeOptions(
            judge_model=_model(info),
            timeout_s=float(info.get("timeout") or 60.0),
            api_key_env=info.get("api_key_env"),
        )
    except (TypeError, ValueError, UsageError) as wrong:
        raise error(str(wrong)) from wrong
    texts = (str(given(key, "")) for key in ("system_prompt", "original_input", "ground_truth"))
    return RubricConfig(entry["id"], entry["rubric"], options, low, high, *texts)


def _model(info: Mapping[str, Any]) -> str:
    provider = str(info.get("provider") or "")
    return f"{PROVIDERS.get(provider, provider)}/{info['model']}" if provider else str(info["model"])
