package fusebox.routing_test

import data.fusebox.routing

# ---- what is asked -----------------------------------------------------------

operation(kind, effect) := {
	"kind": kind, "name": "call", "provider": "p", "model": "m", "region": "eu", "credential": "c", "tool": "t",
	"action": "a", "action_class": "", "tenant": "acme", "user": "", "agent": "g", "workflow": "w",
	"workflow_version": "1", "task_class": "", "prompt_version": "", "schema": "", "effect": effect, "impact": "",
	"idempotency_key": "", "run_id": "r", "request_id": "q", "parent_id": "", "attempt": 1, "origin": "first",
	"priority": 0, "deadline": 0, "depends_on": [], "args_fp": "",
	"estimate": {"input_tokens": 0, "output_tokens": 0, "cost_nano_usd": 0}, "amount": 0, "attributes": {},
	"prior_unknown": false,
}

asked(kind, effect, status, class, reason, wait) := {
	"schema": "fusebox.outcome/v1",
	"operation": operation(kind, effect),
	"outcome": {
		"status": status, "class": class, "reason": reason, "http_status": 0, "attempt": 1, "repeats": 0,
		"retry_after_ms": wait, "elapsed_ms": 0,
	},
}

feeds(kind, effect, status, class, reason, wait) := result if {
	result := routing.decision with input as asked(kind, effect, status, class, reason, wait)
}

# A feed without its reason and wait, which other tests look at.
brief(all) := {[f.layer, f.breaker, f.level, f.signal] | some f in all}

counted(all) := {f.layer | some f in all; f.signal in {"failure", "open_now"}}

kinds := {"model", "tool", "workflow"}

effects := {"read_only", "idempotent_write", "conditionally_repeatable", "non_repeatable"}

classes := {
	"transient_transport", "persistent_dependency", "rate_limit", "client_input", "authentication", "authorization",
	"validation", "ambiguous_write", "semantic_quality", "no_progress", "budget", "cancellation", "policy_denial",
}

failures := {"UNKNOWN", "FAILED_BEFORE_SEND", "FAILED"}

dependency := {"model": "provider", "tool": "tool", "workflow": "workflow"}

# The layer that a class counts against, for every kind of operation.
expected(kind, class) := {dependency[kind]} if {
	class in {"transient_transport", "persistent_dependency", "rate_limit"}
}

expected(_, class) := set() if class in {"client_input", "cancellation", "policy_denial"}

expected(_, class) := {"authority"} if class in {"authentication", "authorization"}

expected(_, class) := {"semantic"} if class in {"validation", "semantic_quality"}

expected(_, "ambiguous_write") := {"tool"}

expected(_, "no_progress") := {"workflow"}

expected(_, "budget") := {"budget"}

# ---- every class, effect, kind and outcome ----------------------------------------

test_every_class_counts_against_its_layer_and_no_other if {
	wrong := {[kind, effect, status, class] |
		some kind in kinds
		some effect in effects
		some status in failures
		some class in classes
		counted(feeds(kind, effect, status, class, "some_reason", 0)) != expected(kind, class)
	}
	wrong == set()
}

test_an_instruction_to_wait_changes_signals_not_layers if {
	wrong := {[kind, class] |
		some kind in kinds
		some class in classes
		counted(feeds(kind, "read_only", "FAILED", class, "some_reason", 60000)) != expected(kind, class)
	}
	wrong == set()
}

test_our_own_limits_teach_nothing if {
	wrong := {[kind, class] |
		some kind in kinds
		some class in (classes - {"ambiguous_write", "no_progress", "budget"})
		feeds(kind, "read_only", "FAILED_BEFORE_SEND", class, "local_pool_exhausted", 0) != set()
	}
	wrong == set()
}

test_contention_counts_toward_nothing if {
	wrong := {[kind, class] |
		some kind in kinds
		some class in {"transient_transport", "persistent_dependency", "rate_limit", "authentication", "authorization"}
		counted(feeds(kind, "read_only", "FAILED", class, "contention_lock", 60000)) != set()
	}
	wrong == set()
}

test_success_feeds_no_failure if {
	every kind in kinds {
		every effect in effects {
			counted(feeds(kind, effect, "SUCCEEDED", "none", "ok", 0)) == set()
		}
	}
}

# ---- success ------------------------------------------------------------------------

test_a_model_call_that_worked if {
	brief(feeds("model", "read_only", "SUCCEEDED", "none", "ok", 0)) == {
		["provider", "provider", "model", "success"],
		["provider", "quota", "model", "success"],
		["provider", "burst", "tenant", "success"],
		["semantic", "semantic", "schema", "success"],
		["authority", "credential", "credential", "success"],
	}
}

test_a_tool_call_that_worked if {
	brief(feeds("tool", "read_only", "SUCCEEDED", "none", "ok", 0)) == {
		["tool", "tool", "tenant", "success"],
		["authority", "authority", "action_class", "success"],
		["authority", "credential", "credential", "success"],
	}
}

test_a_workflow_step_that_worked if {
	brief(feeds("workflow", "read_only", "SUCCEEDED", "none", "ok", 0)) == {
		["workflow", "workflow", "task_class", "success"],
		["authority", "credential", "credential", "success"],
	}
}

# ---- the seven rows that everybody asks about ------------------------------------------

test_429_with_hint if {
	feeds("model", "read_only", "FAILED", "rate_limit", "rate_limited", 17000) == {
		{
			"layer": "provider", "breaker": "quota", "level": "model", "signal": "open_now",
			"reason": "rate_limit", "until_ms": 17000,
		},
		{"layer": "provider", "breaker": "burst", "level": "tenant", "signal": "failure", "reason": "rate_limit"},
	}
}

test_malformed_output if {
	brief(feeds("model", "read_only", "FAILED", "validation", "schema_mismatch", 0)) == {["semantic", "semantic", "schema", "failure"]}
}

test_repeated_call if {
	brief(feeds("workflow", "read_only", "FAILED_BEFORE_SEND", "no_progress", "identical_call", 0)) == {
		["workflow", "loop", "run_id", "open_now"],
		["workflow", "workflow", "task_class", "failure"],
	}
}

test_authorization_denied if {
	brief(feeds("tool", "read_only", "FAILED", "authorization", "permission_denied", 0)) == {["authority", "authority", "action_class", "failure"]}
}

test_budget_exhausted if {
	brief(feeds("workflow", "read_only", "FAILED_BEFORE_SEND", "budget", "budget_exhausted", 0)) == {["budget", "budget", "workflow", "open_now"]}
}

test_timeout_after_a_write if {
	brief(feeds("tool", "non_repeatable", "UNKNOWN", "ambiguous_write", "read_timeout", 0)) == {["tool", "ambiguity", "tenant", "failure"]}
}

test_evaluator_rejection if {
	brief(feeds("model", "read_only", "FAILED", "semantic_quality", "unsupported_citation", 0)) == {["semantic", "semantic", "schema", "failure"]}
}

# ---- whose rate limit? --------------------------------------------------------------------

test_429_without_hint_is_counted if {
	brief(feeds("model", "read_only", "FAILED", "rate_limit", "too_many_requests", 0)) == {
		["provider", "quota", "model", "failure"],
		["provider", "burst", "tenant", "failure"],
	}
}

test_a_short_hint_does_not_open if {
	brief(feeds("model", "read_only", "FAILED", "rate_limit", "too_many_requests", 350)) == {
		["provider", "quota", "model", "failure"],
		["provider", "burst", "tenant", "failure"],
	}
}

test_capacity_is_the_providers_own if {
	brief(feeds("model", "read_only", "FAILED", "rate_limit", "capacity_shared_pool", 0)) == {["provider", "provider", "model", "failure"]}
}

test_429_of_a_tool if {
	brief(feeds("tool", "read_only", "FAILED", "rate_limit", "too_many_requests", 30000)) == {["tool", "tool", "tenant", "open_now"]}
}

test_no_credit_concerns_the_account_not_the_tenants_limits if {
	feeds("model", "read_only", "FAILED", "budget", "insufficient_quota", 0) == {{
		"layer": "budget", "breaker": "credit", "level": "credential", "signal": "open_now",
		"reason": "budget", "until_ms": 0,
	}}
}

# ---- how far a fault reaches -----------------------------------------------------------------

test_overload_concerns_the_model if {
	brief(feeds("model", "read_only", "FAILED", "transient_transport", "capacity_overloaded", 0)) == {["provider", "provider", "model", "failure"]}
}

test_a_name_that_does_not_resolve_concerns_the_region if {
	brief(feeds("model", "read_only", "FAILED_BEFORE_SEND", "persistent_dependency", "dns_nxdomain", 0)) == {["provider", "provider", "region", "failure"]}
}

test_a_dead_endpoint_opens_at_once if {
	brief(feeds("model", "read_only", "FAILED_BEFORE_SEND", "persistent_dependency", "tls_verify", 0)) == {["provider", "provider", "region", "open_now"]}
	brief(feeds("model", "read_only", "FAILED", "persistent_dependency", "engine_dead", 0)) == {["provider", "provider", "model", "open_now"]}
	brief(feeds("tool", "read_only", "FAILED", "persistent_dependency", "engine_dead", 0)) == {["tool", "tool", "tenant", "open_now"]}
}

test_an_unanswered_read_counts_like_a_failed_one if {
	brief(feeds("model", "read_only", "UNKNOWN", "transient_transport", "read_timeout", 0)) == {["provider", "provider", "model", "failure"]}
	brief(feeds("tool", "read_only", "UNKNOWN", "transient_transport", "read_timeout", 0)) == {["tool", "tool", "tenant", "failure"]}
}

test_a_workflow_step_that_failed if {
	brief(feeds("workflow", "read_only", "FAILED", "transient_transport", "timeout", 0)) == {["workflow", "workflow", "task_class", "failure"]}
}

# ---- budgets -----------------------------------------------------------------------------------

test_a_run_out_of_steps_stops_no_other_run if {
	brief(feeds("workflow", "read_only", "FAILED_BEFORE_SEND", "budget", "step_budget", 0)) == {["budget", "budget", "workflow", "failure"]}
}

test_a_deadline_of_ours_is_not_the_accounts_credit if {
	brief(feeds("model", "read_only", "FAILED", "budget", "deadline_exhausted", 0)) == {["budget", "budget", "workflow", "failure"]}
}

# ---- authority -----------------------------------------------------------------------------------

test_a_failed_login_is_the_credentials if {
	brief(feeds("model", "read_only", "FAILED", "authentication", "invalid_api_key", 0)) == {["authority", "credential", "credential", "failure"]}
}

test_a_revoked_credential_opens_at_once if {
	every class in {"authentication", "authorization"} {
		brief(feeds("model", "read_only", "FAILED", class, "token_revoked", 0)) == {["authority", "credential", "credential", "open_now"]}
	}
}

test_a_rules_denial_counts_and_a_contents_does_not if {
	brief(feeds("tool", "non_repeatable", "FAILED_BEFORE_SEND", "policy_denial", "denied_by_policy", 0)) == {["authority", "authority", "action_class", "failure"]}
	brief(feeds("model", "read_only", "FAILED", "policy_denial", "content_filter", 0)) == {["provider", "provider", "model", "excluded"]}
}

test_asking_again_for_what_was_denied_opens_at_once if {
	brief(feeds("tool", "non_repeatable", "FAILED_BEFORE_SEND", "policy_denial", "denied_repeated", 0)) == {["authority", "authority", "action_class", "open_now"]}
}

test_an_open_question_is_no_denial if {
	brief(feeds("tool", "non_repeatable", "FAILED_BEFORE_SEND", "authorization", "pending_approval", 0)) == {["tool", "tool", "tenant", "excluded"]}
}

test_a_suspended_tenant if {
	["authority", "tenant_authority", "tenant", "open_now"] in brief(feeds("tool", "read_only", "FAILED", "authorization", "tenant_suspended", 0))
}

# ---- what is left out is recorded ---------------------------------------------------------------

test_user_errors_and_cancellations_are_recorded_apart if {
	every class in {"client_input", "cancellation"} {
		brief(feeds("model", "read_only", "FAILED", class, "x", 0)) == {["provider", "provider", "model", "excluded"]}
		brief(feeds("tool", "non_repeatable", "UNKNOWN", class, "x", 0)) == {["tool", "tool", "tenant", "excluded"]}
		brief(feeds("workflow", "read_only", "FAILED", class, "x", 0)) == {["workflow", "workflow", "task_class", "excluded"]}
	}
}
