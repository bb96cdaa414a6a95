package fusebox.fallback_test

import data.fusebox.fallback

candidate(kind, losses) := {
	"id": kind, "kind": kind, "provider": "", "model": "", "tool": "", "losses": losses, "prohibited": [], "message": "m",
}

all := [
	candidate("cached", ["freshness"]),
	candidate("alternate", []),
	candidate("reduced", ["accuracy"]),
	candidate("draft", []),
	candidate("queued", []),
	candidate("human", []),
	candidate("refuse", []),
]

evaluated := {"alternate": ["summary"]}

choose(changes, rejection, candidates) := [c.choose | some c in result] if {
	operation := object.union(
		{"kind": "model", "effect": "read_only", "action_class": "", "task_class": "summary"},
		changes,
	)
	refused := object.union(
		{
			"decision": "reject", "layer": "provider", "breaker": "provider", "reason": "circuit_open",
			"class": "transient_transport", "state": "OPEN",
		},
		rejection,
	)
	result := fallback.decision with input as {
		"schema": "fusebox.fallback/v1",
		"operation": operation,
		"rejection": refused,
		"candidates": candidates,
	}
		with data.fusebox.config.fallback.evaluated as evaluated
}

test_a_read_may_take_them_all_in_the_authors_order if {
	choose({}, {}, all) == ["cached", "alternate", "reduced", "draft", "queued", "human", "refuse"]
}

test_reasons_name_the_kind if {
	result := fallback.decision with input as {
		"operation": {"effect": "read_only", "action_class": "", "task_class": ""},
		"rejection": {"layer": "provider", "class": "none", "breaker": "provider"},
		"candidates": [candidate("refuse", [])],
	}
	result == [{"choose": "refuse", "reason": "refuse"}]
}

test_a_write_takes_only_what_loses_nothing if {
	choose({"effect": "non_repeatable"}, {}, all) == ["alternate", "draft", "queued", "human", "refuse"]
	choose({"effect": "non_repeatable"}, {}, [candidate("alternate", ["accuracy"])]) == []
}

test_an_alternate_must_be_evaluated_for_the_task if {
	choose({"task_class": "translation"}, {}, [candidate("alternate", [])]) == []
	choose({"task_class": "translation", "effect": "non_repeatable"}, {}, [candidate("alternate", [])]) == []
	everywhere := fallback.decision with input as {
		"operation": {"effect": "read_only", "action_class": "", "task_class": "translation"},
		"rejection": {"layer": "provider", "class": "none", "breaker": "provider"},
		"candidates": [candidate("alternate", [])],
	}
		with data.fusebox.config.fallback.evaluated as {"alternate": ["*"]}
	count(everywhere) == 1
}

test_nobody_is_given_an_old_balance if {
	every class in {"account.balance", "permission.read", "inventory.commit", "medical.status"} {
		choose({"action_class": class}, {}, [candidate("cached", ["freshness"])]) == []
		choose({"task_class": class}, {}, [candidate("cached", ["freshness"])]) == []
	}
}

test_privacy_authority_and_audit_are_never_given_up if {
	every loss in {"privacy", "authority", "audit"} {
		choose({}, {}, [candidate("cached", ["freshness", loss]), candidate("reduced", [loss]), candidate("alternate", [loss])]) == []
	}
}

test_what_was_denied_is_not_tried_another_way if {
	choose({}, {"layer": "authority"}, all) == ["queued", "human", "refuse"]
	every class in {"policy_denial", "authorization", "authentication"} {
		choose({}, {"class": class}, all) == ["queued", "human", "refuse"]
	}
}

test_a_loop_or_an_unknown_write_has_no_stand_in if {
	every breaker in {"loop", "ambiguity"} {
		choose({}, {"breaker": breaker}, all) == ["queued", "human", "refuse"]
	}
}

test_nothing_known_allows_nothing if {
	fallback.decision == [] with input as {}
}
