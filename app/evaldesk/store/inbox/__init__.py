"""The inbox in the database: received spans, conversations, and draws of them."""
