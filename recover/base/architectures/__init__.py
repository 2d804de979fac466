"""One table per family of models: which tensors its config.json implies.

To add a family, write its rows in the module of its relatives, under its model_type:

    "granite": Family(
        keys(32000, 4096, 11008, 32, 32),  # the defaults of its config class
        decoder((*attention("attention_bias"), *gated_mlp(bias="mlp_bias"), *TWO_NORMS)),
    ),

and a tiny, irregular config of it in tests/recover/base/test_architectures.py, which holds the
rows against transformers' own model. What only some layers have goes in `layers` by a trait, and
`traits` says which layers have it.
"""
