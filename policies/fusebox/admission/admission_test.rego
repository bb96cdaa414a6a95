package fusebox.admission_test

import data.fusebox.admission

circuit(layer, breaker) := {
	"layer": layer, "breaker": breaker, "scope": "s", "state": "OPEN", "reason": "failure_ratio", "retry_in_ms": 30000,
}

decide(blocked, changes) := result if {
	operation := object.union(
		{"kind": "model", "effect": "read_only", "origin": "first", "priority": 0, "prior_unknown": false},
		changes,
	)
	result := admission.decision with input as {"schema": "fusebox.admission/v1", "operation": operation, "blocked": blocked}
}

# The constants are the operator's; what they mean is tested here.
config := data.fusebox.config.admission

provider := [circuit("provider", "provider")]

write := {"kind": "tool", "effect": "non_repeatable"}

test_low_priority_is_rejected_with_a_reason if {
	decide(provider, {}) == {"action": "reject", "reason": "low_priority", "expires_in_s": 0}
	decide(provider, {"priority": config.queue_from_priority - 1}).action == "reject"
}

test_important_work_waits_with_an_expiry if {
	decide(provider, {"priority": config.queue_from_priority}) == {
		"action": "queue",
		"reason": "important_work_waits",
		"expires_in_s": config.queue_expires_s,
	}
}

test_background_work_waits_longer if {
	every origin in {"background", "schedule", "queue"} {
		decide(provider, {"origin": origin}) == {
			"action": "queue",
			"reason": "background_work_waits",
			"expires_in_s": config.background_expires_s,
		}
	}
}

test_a_local_step_goes_on if {
	every layer in {"provider", "tool"} {
		decide([circuit(layer, layer)], {"kind": "workflow"}) == {"action": "proceed", "reason": "local_step", "expires_in_s": 0}
	}
	decide([circuit("workflow", "workflow")], {"kind": "workflow"}).action == "reject"
	decide(provider, {"kind": "workflow", "effect": "idempotent_write"}).action == "reject"
}

test_an_unknown_mutation_needs_a_person if {
	decide([circuit("tool", "ambiguity")], write) == {"action": "require_approval", "reason": "unknown_mutation", "expires_in_s": 0}
	decide([circuit("tool", "tool")], object.union(write, {"prior_unknown": true, "priority": 9})).action == "require_approval"
	decide([circuit("tool", "tool")], object.union(write, {"priority": 9})).action == "queue"
}

test_a_denied_action_is_not_kept_for_later if {
	decide([circuit("authority", "authority"), circuit("provider", "provider")], {"priority": 9}) == {"action": "reject", "reason": "authority_open", "expires_in_s": 0}
}

test_a_stopped_run_stays_stopped if {
	decide([circuit("workflow", "loop")], {"priority": 9}).reason == "run_stopped"
}

test_an_empty_budget_defers_background_work_only if {
	decide([circuit("budget", "budget")], {"priority": 9}).reason == "budget_open"
	decide([circuit("budget", "credit")], {"origin": "background"}).action == "queue"
}

test_nothing_known_is_rejected if {
	admission.decision.action == "reject" with input as {}
}
