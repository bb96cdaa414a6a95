# METADATA
# title: Rules of the platform team
# description: |
#   An example of a team's rules: only deny and require_approval exist here, and
#   each element is the reason that the caller reads.
# schemas:
#   - input: schema.operation
package fusebox.authority.rules.platform

# METADATA
# description: A subagent does not change permissions, whoever asked it to.
# labels: { rule: platform.subagent_permissions }
deny contains "subagents_change_no_permissions" if {
	input.operation.origin == "subagent"
	input.operation.action_class == "permission.change"
}

# METADATA
# description: What a schedule deletes, a person confirms.
# labels: { rule: platform.scheduled_delete }
require_approval contains "scheduled_delete" if {
	input.operation.origin in {"schedule", "background"}
	input.operation.action_class == "data.delete"
}
