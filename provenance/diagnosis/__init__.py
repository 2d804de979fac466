"""Why a file does not match its digest: a sentence, proven by the digest where possible."""
