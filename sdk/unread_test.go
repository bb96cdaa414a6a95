package sdk

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fusebox-dev/fusebox/policies"
)

// Every key of policy.toml either changes what the engine is given, or is in the
// list of those that have no effect (R-POL-8: policy check says so).
func TestUnreadIsTheTruth(t *testing.T) {
	elsewhere := []string{ // read, and not by terms
		"tool.reconcile.url",                     // when a lookup is sent
		"rollout.canary_percent", "rollout.unit", // when a rollout begins
		"tool.reconcile.plugin",             // the bundle's tool is looked up otherwise
		"retry.tool.base", "retry.tool.cap", // the bundle states waits instead
		"fallback.candidate.id", "fallback.candidate.kind", "fallback.candidate.provider", "fallback.candidate.model", "fallback.candidate.tool",
	}
	values := map[string]any{"budget.limit.window": "day", "tool.loop": "off", "tool.condition": "live_key", "policy_error.reads": "allow",
		"queue.replay": "never", "retry.workflow.waits": []time.Duration{3 * time.Second}}
	terms := func(change func(*policies.Settings)) any {
		b, err := policies.Embedded()
		if err != nil {
			t.Fatal(err)
		}
		b.Settings.Prices = []policies.Price{{Provider: "p", Model: "m"}}
		if change != nil {
			change(b.Settings)
		}
		l := &loaded{bundle: b, stage: b.Settings.Rollout.Stage}
		p := l.terms("v")
		p.Rules, p.Close, p.Table, p.Breakers = nil, nil, nil, nil
		return []any{p, detector(&b.Settings.Loop), criteria(&b.Settings.Rollout, &policies.Rollout{}, false)}
	}
	same := terms(nil)
	for key, change := range settingsKeys(t, values) {
		listed := slices.ContainsFunc(unread, func(u string) bool { return key == u || strings.HasPrefix(key, u+".") })
		moved := !reflect.DeepEqual(terms(change), same)
		switch {
		case listed && moved:
			t.Errorf("%s has an effect; take it out of the list", key)
		case !listed && !moved && !slices.Contains(elsewhere, key):
			t.Errorf("%s has no effect, and the list does not say so", key)
		}
	}
}

// settingsKeys lists each key of the settings with a change of it in the first
// entry of its list. Breakers, modules and plugins go to rooms of their own, whole.
func settingsKeys(t *testing.T, values map[string]any) map[string]func(*policies.Settings) {
	out := map[string]func(*policies.Settings){}
	var walk func(typ reflect.Type, key string, get func(reflect.Value) reflect.Value)
	walk = func(typ reflect.Type, key string, get func(reflect.Value) reflect.Value) {
		switch {
		case typ.Kind() == reflect.Struct:
			for f := range typ.Fields() {
				if name := f.Tag.Get("toml"); name != "" {
					walk(f.Type, strings.TrimPrefix(key+"."+name, "."), func(v reflect.Value) reflect.Value { return get(v).FieldByIndex(f.Index) })
				}
			}
		case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
			first := func(v reflect.Value) reflect.Value {
				list := get(v)
				if list.Len() == 0 {
					list.Set(reflect.MakeSlice(typ, 1, 1))
				}
				return list.Index(0)
			}
			walk(typ.Elem(), key, first)
		default:
			out[key] = func(s *policies.Settings) {
				v := get(reflect.ValueOf(s).Elem())
				if to, ok := values[key]; ok {
					v.Set(reflect.ValueOf(to).Convert(typ))
					return
				}
				switch typ.Kind() {
				case reflect.String:
					v.SetString(v.String() + "x")
				case reflect.Bool:
					v.SetBool(!v.Bool())
				case reflect.Float64:
					v.SetFloat(v.Float() + 2)
				case reflect.Uint8:
					v.SetUint((v.Uint() + 1) % 3)
				case reflect.Int, reflect.Int64:
					v.SetInt(v.Int() + 2_000_000_000)
				case reflect.Slice:
					v.Set(reflect.Append(v, reflect.New(typ.Elem()).Elem()))
				default:
					t.Fatalf("%s is a %s", key, typ)
				}
			}
		}
	}
	names := map[string]string{"Fallbacks": "fallback", "Tools": "tool", "Impacts": "impact", "Bulkheads": "bulkhead", "Budget": "budget", "Prices": "price",
		"Queue": "queue", "Retry": "retry", "Loop": "loop", "Rollout": "rollout", "Answers": "policy_error"}
	for f := range reflect.TypeFor[policies.Settings]().Fields() {
		if name, ok := names[f.Name]; ok {
			walk(f.Type, name, func(v reflect.Value) reflect.Value { return v.FieldByIndex(f.Index) })
		} else if f.Name != "Breakers" && f.Name != "Modules" && f.Name != "Plugins" {
			t.Fatalf("settings have %s, which this test does not know", f.Name)
		}
	}
	return out
}

// Only what somebody wrote is reported, with its line.
func TestUnreadNamesWhatWasWritten(t *testing.T) {
	defer func(was []string) { unread = was }(unread)
	unread = []string{"plugin"}
	b := &policies.Bundle{SettingsTOML: []byte("[queue]\npace = 5\n\n[[plugin]]\nname = \"a\"\n")}
	got := Unread(b)
	if len(got) != 1 || got[0].Line != 4 || !strings.HasSuffix(got[0].Text, ": plugin") {
		t.Errorf("got %+v", got)
	}
}
