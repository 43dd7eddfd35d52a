from evaldesk.agents.own.litellm import LlmAgent as LlmAgent
from evaldesk.agents.tools.doubles import call_tool as call_tool
from evaldesk.desk.runs.evaluating import evaluate as evaluate
from evaldesk.desk.runs.evaluating import evaluate_async as evaluate_async
from evaldesk.formats import dump_evalset as dump_evalset
from evaldesk.formats import load_evalset as load_evalset
from evaldesk.matching import match_trajectory as match_trajectory
from evaldesk.metrics import rouge1 as rouge1
from evaldesk.model import Event as Event
from evaldesk.model import ToolCall as ToolCall
from evaldesk.model import Usage as Usage
from evaldesk.model import Waiting as Waiting
from evaldesk.model.media import Media as Media
from evaldesk.statistics.intervals import pass_at_k as pass_at_k
from evaldesk.statistics.intervals import pass_hat_k as pass_hat_k
from evaldesk.testing.agent_evaluator import AgentEvaluator as AgentEvaluator

__all__: list[str]
__version__: str
