"""What the files of a package are called that have a meaning of their own."""

from __future__ import annotations

CHAIN = "custody.jsonl"
HEAD = "custody.head.json"
HEAD_SIGNATURE = "custody.head.json.sig"
WITHDRAWN = "withdrawn.json"
WITHDRAWN_SIGNATURE = "withdrawn.json.sig"
RUN = "run.json"
GATE = "chain.json"
KEY_COPY = "key.pub.pem"
# Only `sign` and `pack` write it: a list that names it claims to cover its whole folder.
PACKAGE_MARK = "VERIFY.md"

# A statement about evidence that is published already lies beside what it cannot change.
ASIDE = frozenset({WITHDRAWN, WITHDRAWN_SIGNATURE})
# What somebody may have signed, beside the list.
STATEMENTS = (CHAIN, HEAD, HEAD_SIGNATURE, WITHDRAWN, WITHDRAWN_SIGNATURE)
