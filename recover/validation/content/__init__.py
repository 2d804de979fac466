"""What the bytes of tensors say: NaN, zeros, outliers, copies, and traces of the training."""
