"""Looking at models and data: describe a training set, export a model with its card."""
