"""Training rows that a language model writes by a pattern of similarity."""
