package fusebox.authority.rules.platform_test

import data.fusebox.authority.rules.platform

asked(origin, class) := {"operation": {"origin": origin, "action_class": class}}

test_a_subagent_changes_no_permissions if {
	platform.deny == {"subagents_change_no_permissions"} with input as asked("subagent", "permission.change")
	platform.deny == set() with input as asked("first", "permission.change")
}

test_a_scheduled_delete_is_confirmed if {
	platform.require_approval == {"scheduled_delete"} with input as asked("schedule", "data.delete")
	platform.require_approval == {"scheduled_delete"} with input as asked("background", "data.delete")
	platform.require_approval == set() with input as asked("first", "data.delete")
}
