"""Whom the verifier trusts: allowed_signers, revocation, policies; never what came along."""
