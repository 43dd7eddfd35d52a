"""Chat sessions: kept, played one turn at a time, recorded as cases."""
