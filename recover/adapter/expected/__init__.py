"""Which tensors an adapter must consist of, by its configuration or by its other layers."""
