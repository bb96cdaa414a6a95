# METADATA
# title: What to do with new work while something is open
# description: |
#   The question is asked only when a circuit refuses the operation. Nothing here
#   closes a circuit or sends to what is blocked: work is refused with a visible
#   reason, kept with an expiry, handed to a person, or goes on locally.
# schemas:
#   - input: schema.admission
#   - data.fusebox.config: schema.config
package fusebox.admission

import data.fusebox.config

default decision := {"action": "reject", "reason": "circuit_open", "expires_in_s": 0}

# The order is the policy: the first that fits decides.
decision := {"action": "reject", "reason": "authority_open", "expires_in_s": 0} if {
	"authority" in _layers
} else := {"action": "reject", "reason": "run_stopped", "expires_in_s": 0} if {
	"loop" in _breakers
} else := {"action": "require_approval", "reason": "unknown_mutation", "expires_in_s": 0} if {
	_unknown_mutation
} else := {"action": "proceed", "reason": "local_step", "expires_in_s": 0} if {
	_local_step
} else := {"action": "reject", "reason": "budget_open", "expires_in_s": 0} if {
	"budget" in _layers
	not _background
} else := {"action": "queue", "reason": "background_work_waits", "expires_in_s": config.admission.background_expires_s} if {
	_background
} else := {"action": "queue", "reason": "important_work_waits", "expires_in_s": config.admission.queue_expires_s} if {
	input.operation.priority >= config.admission.queue_from_priority
} else := {"action": "reject", "reason": "low_priority", "expires_in_s": 0}

_layers contains circuit.layer if some circuit in input.blocked

_breakers contains circuit.breaker if some circuit in input.blocked

# Nobody knows whether an earlier attempt was applied: a person decides whether
# it is sent again, or the ambiguity circuit of the action is open.
_unknown_mutation if {
	_writes
	input.operation.prior_unknown
}

_unknown_mutation if {
	_writes
	"ambiguity" in _breakers
}

_writes if {
	input.operation.effect != "read_only"
	input.operation.kind != "model"
}

# A workflow's own read-only step needs none of the dependencies that are open.
_local_step if {
	input.operation.kind == "workflow"
	input.operation.effect == "read_only"
	_layers == {"provider"}
}

_local_step if {
	input.operation.kind == "workflow"
	input.operation.effect == "read_only"
	_layers == {"tool"}
}

_background if input.operation.origin in {"background", "schedule", "queue"}
