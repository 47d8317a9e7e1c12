"""Run records to figures and tables."""
