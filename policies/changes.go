package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A SettingChange is one key of policy.toml or of the data that differs between
// two bundles.
type SettingChange struct {
	Key string `json:"key"` // "breaker.provider.trip.consecutive", "data.fusebox.config.admission.queue_expires_s"
	Old string `json:"old"` // "" where it was not written
	New string `json:"new"`
}

// SettingChanges lists what differs between the settings and data of two
// bundles, in the order of the keys. Entries of lists of tables go by their
// names, so that moving one is no change, but for modules and plugins, whose
// order is the order of the chain.
func SettingChanges(old, new *Bundle) []SettingChange {
	a, b := flatSettings(old), flatSettings(new)
	var keys []string
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		if _, both := a[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	out := []SettingChange{}
	for _, k := range keys {
		if a[k] != b[k] {
			out = append(out, SettingChange{k, a[k], b[k]})
		}
	}
	return out
}

func flatSettings(b *Bundle) map[string]string {
	out := map[string]string{}
	raw, _ := parseTOML(SettingsFile, b.SettingsTOML)
	flatten(out, "", raw)
	for i, m := range b.Settings.Modules {
		out["module."+m.Name+".position"] = strconv.Itoa(i + 1)
	}
	for i, p := range b.Settings.Plugins {
		out["plugin."+p.Name+".position"] = strconv.Itoa(i + 1)
	}
	if data, err := parseJSON(b.Data); err == nil {
		flatten(out, "data", data)
	}
	return out
}

func flatten(out map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			at := k
			if path != "" {
				at = path + "." + k
			}
			flatten(out, at, x)
		}
	case []map[string]any:
		for i, x := range v {
			flatten(out, path+"."+entryName(x, i), x)
		}
	case []any:
		texts := make([]string, len(v))
		for i, x := range v {
			if table, ok := x.(map[string]any); ok {
				flatten(out, path+"."+entryName(table, i), table)
				continue
			}
			texts[i] = fmt.Sprint(x)
		}
		if strings.Join(texts, "") != "" || len(v) == 0 {
			out[path] = "[" + strings.Join(texts, ", ") + "]"
		}
	default:
		out[path] = fmt.Sprint(v)
	}
}

// entryName is what a person calls an entry of a list of tables.
func entryName(table map[string]any, i int) string {
	for _, keys := range [][]string{{"name"}, {"id"}, {"tool", "action"}, {"action_class"}, {"provider", "model"}, {"measure"}} {
		var parts []string
		for _, k := range keys {
			if s, ok := table[k].(string); ok {
				parts = append(parts, s)
			}
		}
		if len(parts) > 0 {
			return strings.Join(parts, "/")
		}
	}
	return strconv.Itoa(i + 1)
}
