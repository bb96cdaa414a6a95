# METADATA
# title: Which of the declared candidates may stand in
# description: |
#   Candidates come from the contract of the breaker in policy.toml, in the order
#   of its author. This decides which of them are allowed here; what is left out
#   is refused. A fallback is a new path and passes admission again.
# schemas:
#   - input: schema.fallback
#   - data.fusebox.config: schema.config
package fusebox.fallback

import data.fusebox.config

default decision := []

decision := [choice |
	some candidate in input.candidates
	_allowed(candidate)
	choice := {"choose": candidate.id, "reason": candidate.kind}
]

# These send nothing anywhere: they say no, keep the work, or ask a person.
_allowed(candidate) if candidate.kind in {"refuse", "queued", "human"}

# A draft changes nothing, so a write may be drafted too.
_allowed(candidate) if {
	candidate.kind == "draft"
	not _forbidden
}

_allowed(candidate) if {
	candidate.kind == "cached"
	not _forbidden
	_reads
	_bearable(candidate)
	not input.operation.action_class in config.fallback.never_cached
	not input.operation.task_class in config.fallback.never_cached
}

_allowed(candidate) if {
	candidate.kind == "reduced"
	not _forbidden
	_reads
	_bearable(candidate)
}

# Another model or provider only where it was evaluated for this task.
_allowed(candidate) if {
	candidate.kind == "alternate"
	not _forbidden
	_reads
	_bearable(candidate)
	_evaluated(candidate)
}

# A write goes another way only if nothing is lost on it.
_allowed(candidate) if {
	candidate.kind == "alternate"
	not _forbidden
	not _reads
	count(candidate.losses) == 0
	_evaluated(candidate)
}

_evaluated(candidate) if input.operation.task_class in config.fallback.evaluated[candidate.id]

_evaluated(candidate) if "*" in config.fallback.evaluated[candidate.id]

# Privacy, authority and audit are never given up for an answer.
_bearable(candidate) if {
	lost := {loss | some loss in candidate.losses}
	count(lost & {"privacy", "authority", "audit"}) == 0
}

# What was denied is not tried again another way.
_forbidden if input.rejection.layer == "authority"

_forbidden if input.rejection.class in {"policy_denial", "authorization", "authentication"}

_forbidden if input.rejection.breaker in {"loop", "ambiguity"}

_reads if input.operation.effect == "read_only"
