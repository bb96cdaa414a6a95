# METADATA
# title: May this agent do this?
# description: |
#   Deny wins over require_approval, require_approval over allow, and what no
#   rule allows is denied. Teams add rules of their own under rules/<team>; they
#   can deny and ask for approval, never allow. A team's rule that is listed in
#   config.authority.observe is computed and recorded, and decides nothing yet.
# schemas:
#   - input: schema.operation
#   - data.fusebox.config: schema.config

# METADATA
# scope: subpackages
# schemas:
#   - input: schema.operation
package fusebox.authority

import data.fusebox.config

default decision := {"decision": "deny", "reasons": ["no_rule_allows"], "obligations": [], "observed": []}

decision := {
	"decision": "deny",
	"reasons": _deny, "obligations": [],
	"observed": _observed,
} if count(_deny) > 0

decision := {
	"decision": "require_approval",
	"reasons": _lacking, "obligations": [],
	"observed": _observed,
} if {
	count(_deny) == 0
	count(_lacking) > 0
}

decision := {
	"decision": "allow",
	"reasons": _allow, "obligations": _obligations,
	"observed": _observed,
} if {
	count(_deny) == 0
	count(_lacking) == 0
	count(_allow) > 0
}

decision := {
	"decision": "deny",
	"reasons": ["no_rule_allows"], "obligations": [],
	"observed": _observed,
} if {
	count(_deny) == 0
	count(_lacking) == 0
	count(_allow) == 0
}

# ---- deny ----------------------------------------------------------------------

# METADATA
# labels: { rule: authority.deny.agent_revoked }
_deny contains "agent_revoked" if input.agent.id in config.authority.revoked_agents

# METADATA
# description: A credential revoked during a run stops that run at its next call.
# labels: { rule: authority.deny.credential_revoked }
_deny contains "credential_revoked" if {
	input.operation.credential != ""
	input.operation.credential in config.authority.revoked_credentials
}

# METADATA
# labels: { rule: authority.deny.prohibited }
_deny contains "prohibited_action" if input.operation.action_class in config.authority.prohibited

# METADATA
# description: An agent that is bound to tenants works for no other.
# labels: { rule: authority.deny.tenant }
_deny contains "tenant_not_allowed" if {
	tenants := config.authority.agents[input.agent.id].tenants
	not input.operation.tenant in tenants
}

# METADATA
# description: An agent that is bound to action classes does nothing else that writes.
# labels: { rule: authority.deny.action_class }
_deny contains "action_class_not_allowed" if {
	_writes
	classes := config.authority.agents[input.agent.id].action_classes
	not input.operation.action_class in classes
}

# METADATA
# description: The agent that asks must be the one that the operation names.
# labels: { rule: authority.deny.identity }
_deny contains "identity_mismatch" if {
	input.operation.agent != ""
	input.operation.agent != input.agent.id
}

# METADATA
# labels: { rule: authority.deny.amount }
_deny contains "amount_above_limit" if {
	limit := config.authority.limits[input.operation.action_class]
	input.operation.amount > limit.deny_above
}

# METADATA
# description: A refund of minus one euro is a payment.
# labels: { rule: authority.deny.negative_amount }
_deny contains "amount_negative" if input.operation.amount < 0

# METADATA
# labels: { rule: authority.deny.window }
_deny contains "outside_time_window" if {
	_writes
	config.authority.windows[input.operation.action_class]
	not _inside_window
}

_inside_window if {
	window := config.authority.windows[input.operation.action_class]
	input.clock.weekday in window.weekdays
	input.clock.hour >= window.from_hour
	input.clock.hour < window.to_hour
}

# METADATA
# description: Something that may do harm and that nobody has named.
# labels: { rule: authority.deny.undeclared }
_deny contains "undeclared_high_impact" if {
	_high_impact
	input.operation.action_class == ""
}

# METADATA
# labels: { rule: authority.deny.team }
_deny contains reason if {
	some team
	some reason in data.fusebox.authority.rules[team].deny
	not _only_observed(team, reason)
}

# ---- require approval ------------------------------------------------------------

# METADATA
# labels: { rule: authority.approval.class }
_require contains "approval_required" if {
	_writes
	input.operation.action_class in config.authority.approval_required
	not config.authority.limits[input.operation.action_class]
}

# METADATA
# labels: { rule: authority.approval.amount }
_require contains "amount_needs_approval" if {
	_writes
	limit := config.authority.limits[input.operation.action_class]
	input.operation.amount > limit.approve_above
}

# METADATA
# description: An amount of zero is an amount that nobody stated.
# labels: { rule: authority.approval.no_amount }
_require contains "amount_missing" if {
	_writes
	config.authority.limits[input.operation.action_class]
	input.operation.amount == 0
}

# METADATA
# description: A harmful act whose class this policy does not know.
# labels: { rule: authority.approval.unlisted }
_require contains "unlisted_action_class" if {
	_high_impact
	input.operation.action_class != ""
	not _listed
}

# METADATA
# description: Nobody knows whether the last try was applied.
# labels: { rule: authority.approval.unknown }
_require contains "earlier_attempt_unknown" if {
	input.operation.prior_unknown
	input.operation.effect in {"non_repeatable", "conditionally_repeatable"}
	input.operation.kind != "model"
}

# METADATA
# labels: { rule: authority.approval.team }
_require contains reason if {
	some team
	some reason in data.fusebox.authority.rules[team].require_approval
	not _only_observed(team, reason)
}

# What is still missing, once the approvals at hand are counted.
_lacking contains reason if {
	some reason in _require
	count(_approvers) == 0
}

_lacking contains "second_approval_needed" if {
	count(_require) > 0
	limit := config.authority.limits[input.operation.action_class]
	input.operation.amount > limit.two_above
	count(_approvers) < 2
}

# Nobody approves what they ask for themselves. Only unexpired approvals that
# fit this operation reach the input.
_approvers contains approval.by if {
	some approval in input.approvals
	approval.by != ""
	approval.by != input.agent.id
	approval.by != input.operation.user
}

# ---- allow -----------------------------------------------------------------------

# METADATA
# labels: { rule: authority.allow.read }
_allow contains "read_only" if input.operation.effect == "read_only"

# METADATA
# description: A pure model completion changes nothing.
# labels: { rule: authority.allow.model }
_allow contains "model_call" if input.operation.kind == "model"

# METADATA
# labels: { rule: authority.allow.repeatable }
_allow contains "repeatable_write" if input.operation.effect == "idempotent_write"

# METADATA
# labels: { rule: authority.allow.declared }
_allow contains "declared_action_class" if input.operation.action_class in config.authority.allowed

# METADATA
# labels: { rule: authority.allow.limited }
_allow contains "within_limits" if config.authority.limits[input.operation.action_class]

# METADATA
# labels: { rule: authority.allow.approved }
_allow contains "approved" if {
	count(_require) > 0
	count(_approvers) > 0
}

# ---- observe -----------------------------------------------------------------------
# A new rule of a team begins here: what it would have said is written into the
# receipt, and nobody is stopped by it. Only teams' rules can be observed.

# METADATA
# labels: { rule: authority.observed.deny }
_observed contains concat("", ["deny:", team, ".", reason]) if {
	some team
	some reason in data.fusebox.authority.rules[team].deny
	_only_observed(team, reason)
}

# METADATA
# labels: { rule: authority.observed.approval }
_observed contains concat("", ["require_approval:", team, ".", reason]) if {
	some team
	some reason in data.fusebox.authority.rules[team].require_approval
	_only_observed(team, reason)
}

# All rules of a team, or one of them by its reason.
_only_observed(team, _) if team in config.authority.observe

_only_observed(team, reason) if concat(".", [team, reason]) in config.authority.observe

# ---- what an allowed operation must still do --------------------------------------

_obligations contains "use_approval" if {
	count(_require) > 0
	count(_approvers) > 0
}

_obligations contains "reconcile" if _high_impact

_writes if input.operation.effect != "read_only"

_high_impact if {
	input.operation.effect in {"non_repeatable", "conditionally_repeatable"}
	input.operation.kind != "model"
}

_high_impact if {
	input.operation.impact == "high"
	_writes
}

_listed if input.operation.action_class in config.authority.allowed

_listed if input.operation.action_class in config.authority.approval_required

_listed if config.authority.limits[input.operation.action_class]
