"""Reports of every public schema that is read, made here with the keys that the real ones have."""

from __future__ import annotations

import hashlib
from typing import Any

COMMIT = "9e6c4f24ce4b5e8888650e1062922711dbe565e0"
DIGEST = hashlib.sha256(b"x").hexdigest()


def _who() -> dict[str, Any]:
    return {
        "rl_kernel_commit": COMMIT,
        "tracked_tree_dirty": False,
        "environment": {"gpu": "NVIDIA B200", "torch": "2.13.0", "vllm": "0.30.0"},
    }


def rank_file(rank: int = 0) -> dict[str, Any]:
    return {
        "status": "passed", "scope": "tp4_moe_block_layer0", "rank": rank, **_who(),
        "provider": "shared-cuda-forward-v1", "moe": {"cases": ["a", "b"], "fallback": False},
    }  # fmt: skip


def norm_reuse() -> dict[str, Any]:
    def gate(passed: bool) -> dict[str, Any]:
        return {
            "returncode": 0 if passed else 1, "passed": passed,
            "failed_lines": [] if passed else ["dx"], "singleton_aggregate": [], "stderr_tail": [],
        }  # fmt: skip

    return {
        "kind": "qwen3_next_norm_reuse_check", "rfc": "rfc", "op": "rms_norm", **_who(),
        "quick": False, "checks": ["gates"],
        "results": {
            "rl_kernel": {"source": "ours", "backward": "full", "fallback": False,
                          "contract_gates": {"forward": gate(True), "gradient": gate(True)}},
            "other": {"source": "theirs", "contract_gates": {"gradient": gate(False)}},
        },
    }  # fmt: skip


def operator_report() -> dict[str, Any]:
    return {
        "kind": "h3_operator_report", "op": "h3_rmsnorm", "rfc": "rfc",
        "model_revision": "42ed", "reference_commit": "f53d", **_who(),
        "accuracy": {"plain": {"a": True}, "batch_invariant": True}, "perf": [{"case": "S=1"}],
    }  # fmt: skip


def chain_replay() -> dict[str, Any]:
    def stage(name: str, chained: bool, isolated: bool) -> dict[str, Any]:
        def against(equal: bool) -> dict[str, Any]:
            return {"bitwise_equal": equal, "max_abs": 0.0, "within_tolerance": equal}

        return {
            "stage": name, "backend": "Op", "kernel_id": "k", "repeat_bitwise_equal": True,
            "chained_vs_provider": against(chained), "isolated_vs_provider": against(isolated),
        }  # fmt: skip

    return {
        "kind": "h3_conditioning_chain_replay", "rfc": "rfc", "model_revision": "42ed",
        "weights_sha256": {"m.safetensors": {"sha256": DIGEST, "size_bytes": 1}},
        "reference_commit": "f53d", **_who(), "stages": ["sinusoid", "mlp", "norm"],
        "cases": [
            {"seed": 0, "stages": [stage("sinusoid", True, True), stage("mlp", False, True),
                                   stage("norm", False, False)],
             "first_drift": "mlp", "first_isolated_drift": "norm"},
        ],
    }  # fmt: skip


def evidence_summary() -> dict[str, Any]:
    return {
        "schema": "h3-down-evidence-summary-v1", "readiness": "ready", "production_qualified": True,
        "source_report_sha256": DIGEST,
        "full_report_header": {
            "schema": "h3-down-qualification-v2", "status": "passed", "acceptance_complete": True,
            "scope": "one device", "remaining_acceptance": [], "fallback": False,
            "provenance": {
                "git_commit": COMMIT, "git_status": "", "git_diff_sha256": DIGEST,
                "environment": {"TORCH_CUDA_ARCH_LIST": None}, "args": {"output": "o/report.json"},
                "source_hashes": {"ops/h3.py": DIGEST},
            },
        },
    }  # fmt: skip


def source_list() -> dict[str, Any]:
    return {
        "revision": COMMIT, "tracked_diff_sha256": hashlib.sha256(b"").hexdigest(),
        "source_sha256": DIGEST, "files": {"a.py": DIGEST, "b/c.py": DIGEST},
    }  # fmt: skip


def chain_gate() -> dict[str, Any]:
    return {
        "schema_version": "ws1-c10-c11-v5", "git_sha": COMMIT, "git_dirty": False,
        "contract_sha256": DIGEST, "manifest_sha256": DIGEST, "passed": True, "first_drift": None,
        "backend_profile": "cuda_bf16", "weight_source": "hf", "weight_hash": DIGEST,
        "gpu_name": "H100", "compute_capability": "9.0", "device": "cuda",
        "config_fingerprint": {"seed": 0}, "backward_executed": True, "train_infer_executed": True,
        "accuracy_executed": True, "gradient_accuracy_executed": True,
        "all_parameter_gradients": True, "backend_provenance": {"fallback": False},
    }  # fmt: skip


def next_chain() -> dict[str, Any]:
    return {
        "schema": "qwen3-next-chain-v1", "passed": True, "config_fingerprint": DIGEST,
        "first_drift_family": None, "first_drift_layer": None, "first_drift_cell": None, **_who(),
        "cells": [{"id": "a", "passed": True, "fallback": False}],
    }  # fmt: skip


def validator() -> dict[str, Any]:
    return {"passed": True, "errors": [], "fallback": False, **_who()}


def attempt(case: str = "case-1", name: str = "attempt-0001") -> dict[str, Any]:
    names = "requested materialized actual identity comparison".split()
    files = [f"{each}.json" for each in names]
    files += ["score_rollout.pt", "score_training.pt", "token_diffs.pt"]
    return {
        "schema_version": "cross_config.complete.v1", "case_id": case, "attempt_id": name,
        "status": "pass", "passed": True, "comparable": True, "mismatch_count": 0,
        "environment_fingerprint": DIGEST, "execution_fingerprint": DIGEST,
        "artifact_sha256": {each: DIGEST for each in files}, "fallback": False,
    }  # fmt: skip


def result_bundle() -> dict[str, Any]:
    text = "all passed\n"
    return {
        "schema_version": 1, "gpu": "H100", "description": "results",
        "artifacts": {
            "log.txt": {"format": "text", "content": text,
                        "original_sha256": hashlib.sha256(text.encode()).hexdigest()},
            "r.json": {"format": "json", "content": {"a": 1}, "original_sha256": DIGEST},
        },
    }  # fmt: skip


def diagnostic() -> dict[str, Any]:
    return {"schema_version": "rlkernel.diagnostic_report.v2", "status": "equal", "boundaries": []}


# Maker, the keys without which it cannot be read, and whether it claims a pass.
REPORTS: dict[str, tuple[dict[str, Any], tuple[str, ...], bool]] = {
    "rank-0.json": (
        rank_file(),
        ("status", "scope", "rank", "rl_kernel_commit", "tracked_tree_dirty", "provider",
         "environment"),
        True,
    ),
    "norm.json": (
        norm_reuse(),
        ("op", "rl_kernel_commit", "tracked_tree_dirty", "environment", "quick", "checks",
         "results"),
        True,
    ),
    "operator.json": (
        operator_report(),
        ("op", "model_revision", "reference_commit", "rl_kernel_commit", "tracked_tree_dirty",
         "environment", "accuracy", "perf"),
        False,
    ),
    "chain_replay.json": (
        chain_replay(),
        ("weights_sha256", "reference_commit", "rl_kernel_commit", "tracked_tree_dirty",
         "environment", "stages", "cases"),
        False,
    ),
    "h100-summary.json": (
        evidence_summary(),
        ("readiness", "production_qualified", "source_report_sha256", "full_report_header"),
        True,
    ),
    "h100-source-v3.json": (source_list(), ("revision", "source_sha256", "files"), False),
    "ws1.json": (
        chain_gate(),
        ("git_sha", "git_dirty", "contract_sha256", "manifest_sha256", "passed", "first_drift"),
        True,
    ),
    "chain.json": (
        next_chain(),
        ("passed", "config_fingerprint", "first_drift_family", "first_drift_layer",
         "first_drift_cell"),
        True,
    ),
    "validation.json": (validator(), (), True),
    "COMPLETE": (attempt(), ("case_id", "attempt_id", "status", "artifact_sha256"), True),
    "h100-results.json": (result_bundle(), ("gpu", "description"), False),
    "report.json": (diagnostic(), (), False),
}  # fmt: skip
