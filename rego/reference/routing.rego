# METADATA
# title: The yardstick
# description: |
#   A copy of the routing rules of the first default bundle. It never changes, so
#   that figures that are given as shares of its evaluation can be compared over
#   the years. The rules in force are in policies/.
#
#   One judged attempt comes in; a set of feeds goes out. A feed names a layer,
#   a breaker of policy.toml, the level of its scope that is meant, a signal
#   and a reason. failure and open_now count against the circuit, success counts
#   for it, excluded is recorded and counts toward nothing.
#
#   A dependency is blamed only for what the dependency did. What the caller,
#   a rule or this process did wrong never teaches a circuit that a provider or
#   a tool is down.
# schemas:
#   - input: schema.outcome
package fusebox.routing

import data.fusebox.config

# Reasons say more than classes do. These prefixes are a contract with every
# classifier, modules and plugins included.

# Our own limits: nothing was learnt about anybody else.
_local if startswith(input.outcome.reason, "local_")

# Two calls wanted the same thing at the same time: no sign of ill health.
_contention if startswith(input.outcome.reason, "contention_")

# A question is still open; it was not answered with no.
_pending if startswith(input.outcome.reason, "pending_")

# A rule or a person refused the action itself, not this one content.
_denied if {
	input.outcome.class == "policy_denial"
	startswith(input.outcome.reason, "denied_")
}

_failed if input.outcome.status != "SUCCEEDED"

# Faults that the layer below may be blamed for.
_blames_dependency if {
	input.outcome.class in {"transient_transport", "persistent_dependency", "rate_limit"}
	not _local
	not _contention
}

# ---- provider: model calls -------------------------------------------------

# METADATA
# labels: { rule: routing.provider.failure }
decision contains feed if {
	_model_fault
	not _opens_provider
	feed := {
		"layer": "provider", "breaker": "provider", "level": _provider_level,
		"signal": "failure", "reason": input.outcome.class,
	}
}

# METADATA
# labels: { rule: routing.provider.open }
decision contains feed if {
	_model_fault
	_opens_provider
	feed := {
		"layer": "provider", "breaker": "provider", "level": _provider_level,
		"signal": "open_now", "reason": input.outcome.class, "until_ms": input.outcome.retry_after_ms,
	}
}

# Capacity is the service's own; a quota is this credential's.
_model_fault if {
	_failed
	input.operation.kind == "model"
	_blames_dependency
	not _quota
}

_quota if {
	input.outcome.class == "rate_limit"
	not startswith(input.outcome.reason, "capacity_")
}

# No later call can succeed, or the service itself said when to come back.
_opens_provider if input.outcome.reason in config.routing.dead_reasons

_opens_provider if _told_to_wait

_told_to_wait if input.outcome.retry_after_ms >= config.routing.open_from_wait_ms

# A name that does not resolve or a certificate that does not verify concerns
# every model behind that address.
default _provider_level := "model"

_provider_level := "region" if input.outcome.reason in config.routing.endpoint_reasons

# METADATA
# labels: { rule: routing.provider.success }
decision contains feed if {
	input.outcome.status == "SUCCEEDED"
	input.operation.kind == "model"
	some feed in [
		{"layer": "provider", "breaker": "provider", "level": "model", "signal": "success", "reason": "ok"},
		{"layer": "provider", "breaker": "quota", "level": "model", "signal": "success", "reason": "ok"},
		{"layer": "provider", "breaker": "burst", "level": "tenant", "signal": "success", "reason": "ok"},
		{"layer": "semantic", "breaker": "semantic", "level": "schema", "signal": "success", "reason": "ok"},
	]
}

# ---- rate limits: whose are they? ------------------------------------------

# One tenant's key must never cool another's, so a 429 goes to the credential's
# quota; and to the tenant's burst, whose parent opens when many tenants are
# refused at once, which is then a provider matter.

# METADATA
# labels: { rule: routing.quota.failure }
decision contains feed if {
	_model_quota
	not _told_to_wait
	feed := {"layer": "provider", "breaker": "quota", "level": "model", "signal": "failure", "reason": "rate_limit"}
}

# METADATA
# labels: { rule: routing.quota.open }
decision contains feed if {
	_model_quota
	_told_to_wait
	feed := {
		"layer": "provider", "breaker": "quota", "level": "model",
		"signal": "open_now", "reason": "rate_limit", "until_ms": input.outcome.retry_after_ms,
	}
}

# METADATA
# labels: { rule: routing.burst.failure }
decision contains feed if {
	_model_quota
	feed := {"layer": "provider", "breaker": "burst", "level": "tenant", "signal": "failure", "reason": "rate_limit"}
}

_model_quota if {
	_failed
	input.operation.kind == "model"
	_blames_dependency
	_quota
}

# ---- tool -------------------------------------------------------------------

# METADATA
# labels: { rule: routing.tool.failure }
decision contains feed if {
	_tool_fault
	not _opens_tool
	feed := {"layer": "tool", "breaker": "tool", "level": "tenant", "signal": "failure", "reason": input.outcome.class}
}

# METADATA
# labels: { rule: routing.tool.open }
decision contains feed if {
	_tool_fault
	_opens_tool
	feed := {
		"layer": "tool", "breaker": "tool", "level": "tenant",
		"signal": "open_now", "reason": input.outcome.class, "until_ms": input.outcome.retry_after_ms,
	}
}

_tool_fault if {
	_failed
	input.operation.kind == "tool"
	_blames_dependency
}

_opens_tool if input.outcome.reason in config.routing.dead_reasons

_opens_tool if _told_to_wait

# METADATA
# labels: { rule: routing.tool.success }
decision contains feed if {
	input.outcome.status == "SUCCEEDED"
	input.operation.kind == "tool"
	some feed in [
		{"layer": "tool", "breaker": "tool", "level": "tenant", "signal": "success", "reason": "ok"},
		{"layer": "authority", "breaker": "authority", "level": "action_class", "signal": "success", "reason": "ok"},
	]
}

# METADATA
# description: |
#   Nobody knows whether the write was applied. Every kind of operation feeds the
#   ambiguity circuit of the action; only reconciliation closes it.
# labels: { rule: routing.ambiguity }
decision contains feed if {
	_failed
	input.outcome.class == "ambiguous_write"
	feed := {"layer": "tool", "breaker": "ambiguity", "level": "tenant", "signal": "failure", "reason": "ambiguous_write"}
}

# ---- workflow ----------------------------------------------------------------

# METADATA
# description: A run that gets nowhere stops at once; its tool is not to blame.
# labels: { rule: routing.loop }
decision contains feed if {
	_failed
	input.outcome.class == "no_progress"
	some feed in [
		{"layer": "workflow", "breaker": "loop", "level": "run_id", "signal": "open_now", "reason": "no_progress"},
		{"layer": "workflow", "breaker": "workflow", "level": "task_class", "signal": "failure", "reason": "no_progress"},
	]
}

# METADATA
# labels: { rule: routing.workflow.failure }
decision contains feed if {
	_failed
	input.operation.kind == "workflow"
	_blames_dependency
	feed := {"layer": "workflow", "breaker": "workflow", "level": "task_class", "signal": "failure", "reason": input.outcome.class}
}

# METADATA
# labels: { rule: routing.workflow.success }
decision contains feed if {
	input.outcome.status == "SUCCEEDED"
	input.operation.kind == "workflow"
	feed := {"layer": "workflow", "breaker": "workflow", "level": "task_class", "signal": "success", "reason": "ok"}
}

# ---- semantic ----------------------------------------------------------------

# METADATA
# description: |
#   A wrong answer counts toward the model, prompt version and schema that gave
#   it, whoever checked it; never toward a provider's or a tool's health.
# labels: { rule: routing.semantic.failure }
decision contains feed if {
	_failed
	input.outcome.class in {"semantic_quality", "validation"}
	not _local
	feed := {"layer": "semantic", "breaker": "semantic", "level": "schema", "signal": "failure", "reason": input.outcome.class}
}

# ---- budget ------------------------------------------------------------------

# METADATA
# description: |
#   A limit of ours that others share is used up: a tenant's day, a workflow's
#   month. Nothing of that scope can succeed until it is filled again.
# labels: { rule: routing.budget.open }
decision contains feed if {
	_own_budget
	input.outcome.reason in config.routing.exhausted_reasons
	feed := {"layer": "budget", "breaker": "budget", "level": "workflow", "signal": "open_now", "reason": input.outcome.reason}
}

# METADATA
# description: One run used up what it had. That is counted, and stops no other run.
# labels: { rule: routing.budget.failure }
decision contains feed if {
	_own_budget
	not input.outcome.reason in config.routing.exhausted_reasons
	feed := {"layer": "budget", "breaker": "budget", "level": "workflow", "signal": "failure", "reason": "budget"}
}

_own_budget if {
	input.outcome.class == "budget"
	input.outcome.status == "FAILED_BEFORE_SEND"
}

_own_budget if {
	_failed
	input.outcome.class == "budget"
	input.outcome.reason in config.routing.own_budget_reasons
}

# METADATA
# description: |
#   The account behind a credential has no credit, or its day's quota is gone. No
#   short wait cures that, and other providers are not concerned.
# labels: { rule: routing.credit.open }
decision contains feed if {
	_failed
	input.outcome.class == "budget"
	not _own_budget
	feed := {
		"layer": "budget", "breaker": "credit", "level": "credential",
		"signal": "open_now", "reason": "budget", "until_ms": input.outcome.retry_after_ms,
	}
}

# ---- authority ---------------------------------------------------------------

# METADATA
# description: A credential that fails is the credential's fault.
# labels: { rule: routing.credential.failure }
decision contains feed if {
	_failed
	input.outcome.class == "authentication"
	not _local
	not _contention
	not _pending
	not _revoked
	feed := {"layer": "authority", "breaker": "credential", "level": "credential", "signal": "failure", "reason": "authentication"}
}

# METADATA
# labels: { rule: routing.credential.revoked }
decision contains feed if {
	_failed
	_revoked
	feed := {"layer": "authority", "breaker": "credential", "level": "credential", "signal": "open_now", "reason": input.outcome.reason}
}

_revoked if {
	input.outcome.class in {"authentication", "authorization"}
	input.outcome.reason in config.routing.revoked_reasons
}

# METADATA
# labels: { rule: routing.credential.success }
decision contains feed if {
	input.outcome.status == "SUCCEEDED"
	feed := {"layer": "authority", "breaker": "credential", "level": "credential", "signal": "success", "reason": "ok"}
}

# METADATA
# description: The caller is known and may not do this.
# labels: { rule: routing.authority.failure }
decision contains feed if {
	_failed
	_refused
	not input.outcome.reason in config.routing.denied_for_good_reasons
	feed := {"layer": "authority", "breaker": "authority", "level": "action_class", "signal": "failure", "reason": input.outcome.class}
}

# METADATA
# description: Asked again and again for what was denied.
# labels: { rule: routing.authority.open }
decision contains feed if {
	_failed
	_refused
	input.outcome.reason in config.routing.denied_for_good_reasons
	feed := {"layer": "authority", "breaker": "authority", "level": "action_class", "signal": "open_now", "reason": input.outcome.reason}
}

_refused if {
	input.outcome.class == "authorization"
	not _local
	not _contention
	not _pending
	not _revoked
}

_refused if _denied

# METADATA
# description: The whole tenant was suspended.
# labels: { rule: routing.tenant_authority.open }
decision contains feed if {
	_failed
	input.outcome.class in {"authentication", "authorization", "policy_denial"}
	input.outcome.reason in config.routing.tenant_reasons
	feed := {"layer": "authority", "breaker": "tenant_authority", "level": "tenant", "signal": "open_now", "reason": input.outcome.reason}
}

# ---- what counts toward nothing is still recorded ---------------------------

# METADATA
# description: Recorded apart, so that the count of what was left out can be seen.
# labels: { rule: routing.excluded }
decision contains feed if {
	_failed
	_excluded
	not _local
	some feed in _record[input.operation.kind]
}

_excluded if input.outcome.class in {"client_input", "cancellation"}

_excluded if {
	input.outcome.class == "policy_denial"
	not _denied
}

_excluded if _contention

_excluded if _pending

_record := {
	"model": [{"layer": "provider", "breaker": "provider", "level": "model", "signal": "excluded", "reason": input.outcome.class}],
	"tool": [{"layer": "tool", "breaker": "tool", "level": "tenant", "signal": "excluded", "reason": input.outcome.class}],
	"workflow": [{"layer": "workflow", "breaker": "workflow", "level": "task_class", "signal": "excluded", "reason": input.outcome.class}],
}
