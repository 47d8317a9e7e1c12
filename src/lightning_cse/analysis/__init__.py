"""Looking at models and data: describe, search, score, export."""
