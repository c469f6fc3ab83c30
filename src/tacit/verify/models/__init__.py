"""Tree ensembles: one exact form, and its importers."""
