"""Arrays of a model and of a box, as the kernels read them."""
