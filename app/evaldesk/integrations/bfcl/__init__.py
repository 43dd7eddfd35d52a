"""Cases of the Berkeley Function Calling Leaderboard."""
