"""The turns of a session as the chat messages a model is shown: see `model.chat`, which metrics read too."""

from evaldesk.model.chat import assistant_message, chat_messages, result_text, tool_message

__all__ = ["assistant_message", "chat_messages", "result_text", "tool_message"]
