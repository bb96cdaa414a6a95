package fusebox.authority_test

import data.fusebox.authority

operation(changes) := object.union(
	{
		"kind": "tool", "name": "", "provider": "", "model": "", "region": "", "credential": "c1", "tool": "t",
		"action": "a", "action_class": "", "tenant": "acme", "user": "ann", "agent": "bot", "workflow": "",
		"workflow_version": "", "task_class": "", "prompt_version": "", "schema": "", "effect": "read_only",
		"impact": "", "idempotency_key": "", "run_id": "", "request_id": "", "parent_id": "", "attempt": 1,
		"origin": "first", "priority": 0, "deadline": 0, "depends_on": [], "args_fp": "",
		"estimate": {"input_tokens": 0, "output_tokens": 0, "cost_nano_usd": 0}, "amount": 0, "attributes": {},
		"prior_unknown": false,
	},
	changes,
)

asked(changes, approvals) := {
	"schema": "fusebox.operation/v1",
	"agent": {"id": "bot", "roles": []},
	"approvals": approvals,
	"clock": {"date": "2026-11-30", "hour": 10, "weekday": "monday"},
	"operation": operation(changes),
}

# What the bundle itself says: these tests hold whatever teams add.
decide(changes, approvals) := result if {
	answer := authority.decision with input as asked(changes, approvals) with data.fusebox.authority.rules as {}
	result := object.remove(answer, ["observed"])
}

# What it says with the rules of this team, and no other.
decide_with(team, changes, approvals) := result if {
	answer := authority.decision with input as asked(changes, approvals) with data.fusebox.authority.rules as team
	result := object.remove(answer, ["observed"])
}

observed(team, changes) := result if {
	answer := authority.decision with input as asked(changes, []) with data.fusebox.authority.rules as team
	result := answer.observed
}

by(person) := {"by": person, "scope": "any"}

config := data.fusebox.config.authority

# ---- shape -------------------------------------------------------------------

test_what_no_rule_allows_is_denied if {
	decide({"effect": "conditionally_repeatable", "action_class": "x", "kind": "workflow"}, []).decision != "allow"
	decide({}, []).decision == "allow"
	answer := authority.decision with input as {}
	object.remove(answer, ["observed"]) == {"decision": "deny", "reasons": ["no_rule_allows"], "obligations": []}
}

test_every_answer_has_reasons if {
	wrong := {[kind, effect, class, unknown] |
		some kind in {"model", "tool", "workflow"}
		some effect in {"read_only", "idempotent_write", "conditionally_repeatable", "non_repeatable"}
		some class in {"", "mail.send", "payment", "refund", "data.delete", "credential.export", "other"}
		some unknown in {true, false}
		answer := decide({"kind": kind, "effect": effect, "action_class": class, "prior_unknown": unknown, "amount": 5}, [])
		count(answer.reasons) == 0
	}
	wrong == set()
}

# ---- allow ---------------------------------------------------------------------

test_reads_and_model_calls_are_allowed if {
	decide({}, []) == {"decision": "allow", "reasons": {"read_only"}, "obligations": set()}
	decide({"kind": "model", "effect": "non_repeatable"}, []).decision == "allow"
}

test_repeatable_writes_are_allowed if {
	decide({"effect": "idempotent_write"}, []) == {
		"decision": "allow",
		"reasons": {"repeatable_write"},
		"obligations": set(),
	}
}

test_a_declared_class_is_allowed_and_must_be_reconciled if {
	decide({"effect": "non_repeatable", "action_class": "mail.send"}, []) == {
		"decision": "allow",
		"reasons": {"declared_action_class"},
		"obligations": {"reconcile"},
	}
}

# ---- undeclared and unlisted ------------------------------------------------------

test_undeclared_high_impact_is_denied if {
	every effect in {"non_repeatable", "conditionally_repeatable"} {
		decide({"effect": effect}, []).reasons == {"undeclared_high_impact"}
	}
	decide({"effect": "idempotent_write", "impact": "high"}, []).decision == "deny"
}

test_no_approval_makes_up_for_a_missing_declaration if {
	decide({"effect": "non_repeatable"}, [by("eve")]).decision == "deny"
}

test_an_unlisted_class_needs_approval if {
	change := {"effect": "non_repeatable", "action_class": "door.open"}
	decide(change, []) == {"decision": "require_approval", "reasons": {"unlisted_action_class"}, "obligations": []}
	decide(change, [by("eve")]) == {
		"decision": "allow",
		"reasons": {"approved"},
		"obligations": {"reconcile", "use_approval"},
	}
}

# ---- approvals --------------------------------------------------------------------

test_an_approval_is_needed_and_enough if {
	change := {"effect": "non_repeatable", "action_class": "data.delete"}
	decide(change, []).reasons == {"approval_required"}
	decide(change, [by("eve")]).decision == "allow"
}

test_nobody_approves_their_own if {
	change := {"effect": "non_repeatable", "action_class": "data.delete"}
	decide(change, [by("ann")]).decision == "require_approval"
	decide(change, [by("bot")]).decision == "require_approval"
	decide(change, [by("")]).decision == "require_approval"
	decide(change, [by("ann"), by("eve")]).decision == "allow"
}

test_a_mutation_of_unknown_fate_needs_approval if {
	decide({"effect": "non_repeatable", "action_class": "mail.send", "prior_unknown": true}, []).reasons == {"earlier_attempt_unknown"}
	decide({"effect": "idempotent_write", "prior_unknown": true}, []).decision == "allow"
}

# ---- amounts ------------------------------------------------------------------------

refund(amount) := {"effect": "non_repeatable", "action_class": "refund", "amount": amount}

test_a_small_refund_goes_through if {
	decide(refund(10000), []) == {"decision": "allow", "reasons": {"within_limits"}, "obligations": {"reconcile"}}
}

test_a_larger_refund_needs_one_approval if {
	decide(refund(10001), []).reasons == {"amount_needs_approval"}
	decide(refund(10001), [by("eve")]).decision == "allow"
}

test_a_large_refund_needs_two if {
	decide(refund(100001), [by("eve")]).reasons == {"second_approval_needed"}
	decide(refund(100001), [by("eve"), by("eve")]).decision == "require_approval"
	decide(refund(100001), [by("eve"), by("max")]).decision == "allow"
}

test_too_large_a_refund_is_denied if {
	decide(refund(1000001), [by("eve"), by("max")]).reasons == {"amount_above_limit"}
}

test_an_amount_that_nobody_stated if {
	decide(refund(0), []).reasons == {"amount_missing"}
	decide(refund(-5), []).reasons == {"amount_negative"}
}

# ---- time -----------------------------------------------------------------------------

payment(hour, weekday) := result if {
	base := asked({"effect": "non_repeatable", "action_class": "payment", "amount": 100}, [by("eve")])
	result := authority.decision with input as object.union(base, {"clock": {"date": "2026-11-30", "hour": hour, "weekday": weekday}})
}

test_payments_have_their_hours if {
	payment(6, "monday").decision == "allow"
	payment(19, "friday").decision == "allow"
	payment(5, "monday").reasons == {"outside_time_window"}
	payment(20, "monday").reasons == {"outside_time_window"}
	payment(10, "sunday").reasons == {"outside_time_window"}
}

test_a_payment_needs_approval if {
	decide({"effect": "non_repeatable", "action_class": "payment", "amount": 1}, []).decision == "require_approval"
}

test_looking_at_a_payment_is_a_read if {
	decide({"effect": "read_only", "action_class": "payment"}, []).decision == "allow"
}

# ---- identity ----------------------------------------------------------------------------

test_an_agent_speaks_for_itself if {
	decide({"agent": "other"}, []).reasons == {"identity_mismatch"}
	decide({"agent": ""}, []).decision == "allow"
}

test_a_revoked_agent if {
	answer := decide({}, []) with data.fusebox.config.authority as object.union(config, {"revoked_agents": ["bot"]})
	answer.reasons == {"agent_revoked"}
}

test_a_revoked_credential if {
	revoked := object.union(config, {"revoked_credentials": ["c1", ""]})
	answer := decide({}, []) with data.fusebox.config.authority as revoked
	answer.reasons == {"credential_revoked"}
	none := decide({"credential": ""}, []) with data.fusebox.config.authority as revoked
	none.decision == "allow"
}

test_a_prohibited_action_is_denied_whoever_approves if {
	decide({"effect": "non_repeatable", "action_class": "credential.export"}, [by("eve"), by("max")]).reasons == {"prohibited_action"}
	decide({"effect": "read_only", "action_class": "credential.export"}, []).decision == "deny"
}

test_a_bound_agent_keeps_to_its_tenants if {
	bound := object.union(config, {"agents": {"bot": {"tenants": ["acme"]}}})
	mine := decide({}, []) with data.fusebox.config.authority as bound
	mine.decision == "allow"
	theirs := decide({"tenant": "other"}, []) with data.fusebox.config.authority as bound
	theirs.reasons == {"tenant_not_allowed"}
}

test_a_bound_agent_keeps_to_its_classes if {
	bound := object.union(config, {"agents": {"bot": {"action_classes": ["mail.send"]}}})
	mail := decide({"effect": "non_repeatable", "action_class": "mail.send"}, []) with data.fusebox.config.authority as bound
	mail.decision == "allow"
	ticket := decide({"effect": "non_repeatable", "action_class": "ticket.write"}, []) with data.fusebox.config.authority as bound
	ticket.reasons == {"action_class_not_allowed"}
	read := decide({"action_class": "ticket.write"}, []) with data.fusebox.config.authority as bound
	read.decision == "allow"
}

# ---- teams can tighten, and nothing else -------------------------------------------------------

strict := {"strict": {"deny": {"not_this"}, "require_approval": {"ask_first"}}}

asking := {"asking": {"require_approval": {"ask_first"}}}

test_a_team_can_deny if {
	decide_with(strict, {}, [by("eve")]).reasons == {"not_this"}
}

test_a_team_can_ask_for_approval if {
	decide_with(asking, {}, []).reasons == {"ask_first"}
	decide_with(asking, {}, [by("eve")]).decision == "allow"
}

test_a_team_cannot_allow if {
	lenient := {"lenient": {"allow": {"team_says_yes"}, "decision": {"decision": "allow", "reasons": ["x"], "obligations": []}}}
	decide_with(lenient, {"effect": "non_repeatable"}, []).decision == "deny"
}

# ---- a team's rule that is only observed --------------------------------------------------------

watching(rules) := object.union(config, {"observe": rules})

test_an_observed_denial_stops_nobody_and_is_recorded if {
	denying := {"night": {"deny": {"not_this"}}}
	every rules in [["night"], ["night.not_this"], ["other", "night.not_this"]] {
		answer := decide_with(denying, {}, []) with data.fusebox.config.authority as watching(rules)
		answer == {"decision": "allow", "reasons": {"read_only"}, "obligations": set()}
		said := observed(denying, {}) with data.fusebox.config.authority as watching(rules)
		said == {"deny:night.not_this"}
	}
	decide_with(denying, {}, []).decision == "deny"
	observed(denying, {}) == set()
}

test_an_observed_approval_is_not_asked_for if {
	answer := decide_with(asking, {}, []) with data.fusebox.config.authority as watching(["asking.ask_first"])
	answer.decision == "allow"
	said := observed(asking, {}) with data.fusebox.config.authority as watching(["asking.ask_first"])
	said == {"require_approval:asking.ask_first"}
}

test_only_the_listed_rule_is_observed if {
	answer := decide_with(strict, {}, []) with data.fusebox.config.authority as watching(["strict.ask_first", "stri", "not_this"])
	answer.reasons == {"not_this"}
	said := observed(strict, {}) with data.fusebox.config.authority as watching(["strict.ask_first", "stri", "not_this"])
	said == {"require_approval:strict.ask_first"}
}

test_what_no_rule_allows_says_what_was_observed_too if {
	nothing := {"effect": "conditionally_repeatable", "kind": "workflow", "action_class": "none"}
	said := observed(strict, nothing) with data.fusebox.config.authority as watching(["strict"])
		with data.fusebox.authority._require as set()
	said == {"deny:strict.not_this", "require_approval:strict.ask_first"}
}

test_a_rule_of_the_bundle_itself_cannot_be_observed if {
	answer := decide({"action_class": "credential.export"}, []) with data.fusebox.config.authority as watching(["prohibited_action", "authority"])
	answer.reasons == {"prohibited_action"}
}
